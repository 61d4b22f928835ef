"""What is written in C: built where the project is set up, and not used when it is not what was asked for."""

from __future__ import annotations

import logging
import os
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from onceover import compiled
from onceover.compiled import library
from onceover.wire.batches import kernel

PROJECT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """What scripts/native.py defines."""
    return runpy.run_path(str(PROJECT / "scripts" / "native.py"))


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Another test's answer is no answer."""
    compiled.library.cache_clear()


def test_every_library_was_made_from_the_source_that_is_here(script: dict[str, Any]) -> None:
    """`make setup` does it; where this fails, everything works, at a tenth of the speed."""
    sources = script["sources"]()
    assert kernel.SOURCE in sources
    assert [str(source) for source in sources if not script["is_current"](source)] == []
    assert kernel.kernel() is not None


def test_a_library_of_other_sources_or_flags_is_not_current(script: dict[str, Any], tmp_path: Path) -> None:
    """Also where it is younger: another branch was checked out."""
    source = tmp_path / "kernel.c"
    shutil.copy(kernel.SOURCE, source)
    assert not script["is_current"](source)
    shutil.copy(script["library"](kernel.SOURCE), script["library"](source))
    assert script["is_current"](source)
    source.write_bytes(source.read_bytes() + b"\n")
    assert not script["is_current"](source)


def test_a_library_of_another_version_is_not_used_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It would take its arguments for something else."""
    with caplog.at_level(logging.WARNING):
        assert [library(kernel.SOURCE, 0, "copies are slower") for _ in range(3)] == [None] * 3
    (said,) = caplog.messages
    assert said.startswith("copies are slower: libkernel.so is of version ") and "scripts/native.py" in said


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF of something else"])
def test_without_a_library_there_is_none(
    content: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was built, or for another machine."""
    if content is not None:
        (tmp_path / "libkernel.so").write_bytes(content)
    assert library(tmp_path / "kernel.c", 1, "copies are slower") is None
    (said,) = caplog.messages
    assert ("is not there" if content is None else "cannot be loaded") in said


def test_a_library_is_loaded_in_no_time_and_works_in_a_process_that_is_forked() -> None:
    """Spark's workers are, from one that has imported everything (onceover.spark.daemon)."""
    began_s = time.perf_counter()
    found = library(kernel.SOURCE, kernel.ABI, "")
    assert time.perf_counter() - began_s < 0.05
    assert found is not None
    child = os.fork()
    if not child:
        os._exit(int(found.onceover_abi() != kernel.ABI))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_build_that_fails_says_what_is_slower_in_one_line(script: dict[str, Any], tmp_path: Path) -> None:
    """A machine without a network is set up all the same."""
    folder = tmp_path / "include" / "onceover"
    folder.mkdir(parents=True)
    (folder / "broken.c").write_text("int broken(void) { return missing; }\n")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(PROJECT / "scripts" / "native.py", scripts)
    # A compiler that refuses, found before any is fetched.
    (scripts / "ziglang.py").write_text("import sys; sys.exit('broken.c:1:32: error: undeclared')")
    ran = subprocess.run(
        [sys.executable, str(scripts / "native.py")],
        env={"PYTHONPATH": str(scripts)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1 and ran.stderr == ""
    assert ran.stdout.startswith("   NOT COMPILED") and ran.stdout.endswith("error: undeclared\n")
    assert ran.stdout.count("\n") == 1
    assert not list(folder.glob("*.so*"))
