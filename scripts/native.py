"""Compiles what of the product is written in C, each source to a library beside it (docs/adr/0014).

Quick when done already: a library names the source, the flags and the machine that it was made from and for.
The compiler comes as a Python package; where this Python has none, it is fetched by its hash and removed
again. Only the standard library is needed, so that an image's first stage can run it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[1]
# What begins the text by which a library is known again.
MARK: Final = "onceover-source:"
# No instructions that only some processors of a machine's kind have: those are asked for when it runs.
FLAGS: Final = (
    *("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-sanitize=all", "-s"),
    *("-Wall", "-Wextra", "-Werror"),
)
_IDENTITY: Final = '__attribute__((visibility("default"), used)) const char onceover_source[] = "{}";\n'


def target() -> str:
    """Return for which machine to compile: on Linux for as old a C library as most wheels are made for."""
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    return f"{machine}-macos" if sys.platform == "darwin" else f"{machine}-linux-gnu.2.17"


def sources(root: Path = PROJECT) -> list[Path]:
    """Return the C sources of the product: a library of its own each."""
    return sorted((root / "include" / "onceover").rglob("*.c"))


def identity(source: Path) -> str:
    """Return the text by which the library of ``source``, as it is now, is known again."""
    parts = (source.read_bytes(), " ".join(FLAGS).encode(), target().encode())
    return MARK + hashlib.sha256(b"\0".join(parts)).hexdigest()


def library(source: Path) -> Path:
    """Return where the library of ``source`` is put: Python takes a kernel.so for the module of that name."""
    return source.with_name(f"lib{source.stem}.so")


def is_current(source: Path) -> bool:
    """Tell whether the library beside ``source`` was made from it."""
    made = library(source)
    return made.exists() and identity(source).encode() in made.read_bytes()


def compile_one(source: Path, compiler: list[str], environment: dict[str, str], work: Path) -> None:
    """Make the library beside ``source``: whole, or not at all."""
    named = work / "identity.c"
    named.write_text(_IDENTITY.format(identity(source)), encoding="utf-8")
    made = work / "made.so"
    command = [*compiler, "cc", *FLAGS, "-target", target(), "-o", str(made), str(source), str(named)]
    subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    # Beside its place first: the work folder may lie on another disk.
    beside = library(source).with_suffix(f".so.{os.getpid()}")
    beside.write_bytes(made.read_bytes())
    beside.replace(library(source))


@contextmanager
def compiler() -> Iterator[tuple[list[str], dict[str, str], Path]]:
    """Yield a C compiler's command, its environment and a folder to work in; fetch it where there is none."""
    cache = PROJECT / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="zig-", dir=cache) as folder:
        work = Path(folder)
        environment = {
            **os.environ,
            "ZIG_GLOBAL_CACHE_DIR": str(work / "global"),
            "ZIG_LOCAL_CACHE_DIR": str(work / "local"),
        }
        if importlib.util.find_spec("ziglang") is None:
            packages = work / "packages"
            _fetch(packages, work / "requirements.txt")
            environment["PYTHONPATH"] = str(packages)
        yield [sys.executable, "-m", "ziglang"], environment, work


def _fetch(packages: Path, requirements: Path) -> None:
    uv = str(PROJECT / "scripts" / "uv")
    exported = ("--frozen", "--quiet", "--no-header", "--no-emit-project", "--only-group", "native")
    _run(uv, "export", *exported, "--output-file", str(requirements))
    pinned = ("--require-hashes", "--only-binary", ":all:", "--requirement", str(requirements))
    _run(uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(packages), *pinned)


def _run(*command: str) -> None:
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True)


def main() -> int:
    """Return 0 when every library is there, otherwise 1 after one line that says why."""
    outdated = [source for source in sources() if not is_current(source)]
    if not outdated:
        return 0
    try:
        with compiler() as (command, environment, work):
            for source in outdated:
                compile_one(source, command, environment, work)
                print(f"   compiled {source.relative_to(PROJECT)}")  # noqa: T201 -- a script's own words
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        reason = next((line for line in said if "error" in line), said[-1])
        print(f"   NOT COMPILED, so records are copied and compared by Python alone, slower: {reason}")  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
