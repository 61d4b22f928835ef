"""Kafka's jars, pinned and checked.

Invariant: a directory returned by ``kafka_jars`` holds exactly the files of the committed manifest,
each with its SHA-256: looked at when they were fetched and again by each process that uses them. It appears
in one step, and two processes never fill it at the same time. Nobody but this user and root may write to it:
a digest says what a file was, and what Java makes of the jars (``embed.archive``) has none.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from onceover.errors import Retriable, UsageError
from onceover.private import open_to_others
from onceover.process.children import run_to_end, tail
from onceover.process.java import find_java, with_any_names

log = logging.getLogger(__name__)

JarSet = Literal["broker", "connect"]
JAR_SETS: Final[tuple[JarSet, ...]] = get_args(JarSet)
DEFAULT_VERSION: Final = "4.3.0"
# Two cold resolutions took 50-85 s on two cores; a slow network may need ten times as long.
RESOLVE_TIMEOUT_S: Final = 900
_LOG4J: Final = (
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    "org.apache.logging.log4j:log4j-core:2.25.4",
)

# (version, set) -> what Ivy resolves. Kafka 3.9 still calls log4j 1 classes directly.
COORDINATES: Final[Mapping[tuple[str, JarSet], tuple[str, ...]]] = {
    ("4.3.0", "broker"): ("org.apache.kafka:kafka_2.13:4.3.0", *_LOG4J),
    ("4.3.0", "connect"): (
        "org.apache.kafka:connect-runtime:4.3.0",
        "org.apache.kafka:connect-mirror:4.3.0",
        "org.apache.kafka:connect-file:4.3.0",
        *_LOG4J,
    ),
    ("3.9.1", "broker"): ("org.apache.kafka:kafka_2.13:3.9.1", "org.slf4j:slf4j-reload4j:1.7.36"),
    ("3.9.1", "connect"): (
        "org.apache.kafka:connect-runtime:3.9.1",
        "org.apache.kafka:connect-mirror:3.9.1",
        "org.apache.kafka:connect-file:3.9.1",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
}

# What `embed.archive` and `embed.datadir` keep beside the jars, so that they vanish together. None is a jar.
_BESIDE: Final = re.compile(r"classes-[\w.+-]+\.(jsa|lock)|bootstrap\.checkpoint(\.[\w-]+)?")
_LOCK: Final = ".lock"
# What nobody else may write, whatever the umask.
_FOLDER_MODE: Final = 0o755
_FILE_MODE: Final = 0o644

# What this process has looked at: it starts a dozen brokers from the same jars.
_seen_whole: set[tuple[Path, str]] = set()


def cache_directory() -> Path:
    """Return where jars are kept: ONCEOVER_CACHE, or ``.cache/jars`` in the project."""
    configured = os.environ.get("ONCEOVER_CACHE")
    if configured:
        return Path(configured).expanduser().resolve()
    return Path(__file__).resolve().parents[3] / ".cache" / "jars"


def kafka_jars(version: str = DEFAULT_VERSION, jar_set: JarSet = "broker") -> Path:
    """Return the directory with the verified jars of ``version``, fetching them when needed.

    A cached set that is not, or no longer, the one that was pinned is fetched anew.

    Raises:
        UsageError: the version is not pinned, or a fetched file differs from the manifest.
        Retriable: the resolution failed, for example without a network.
    """
    return pinned_jars(
        f"kafka-{version}-{jar_set}",
        read_manifest(version, jar_set),
        lambda destination: resolve(version, jar_set, destination),
    )


def pinned_jars(name: str, manifest: str, fetch: Callable[[Path], None]) -> Path:
    """Return the directory ``name`` of the cache with the verified jars of a manifest.

    Args:
        fetch: called when they are needed, with the directory that is to hold them.

    Raises:
        UsageError: a fetched file differs from the manifest, or others may write to the cache.
        OnceoverError: as ``fetch``.
    """
    target = cache_directory() / name
    if (target, manifest) in _seen_whole:
        return target
    refuse_open_cache(target)
    if not _is_verified(target, manifest):
        with _locked(target.with_suffix(target.suffix + _LOCK)):
            # Another process may have filled the cache while this one waited for the lock.
            if not _is_verified(target, manifest):
                _fill(target, manifest, fetch)
    refuse_open_cache(target, *(path for path in target.iterdir() if path.suffix != _LOCK))
    _seen_whole.add((target, manifest))
    return target


def classpath(directory: Path) -> str:
    """Return the Java class path for every jar in ``directory``, by name: Java's own ``*`` takes more."""
    return os.pathsep.join(map(str, sorted(directory.glob("*.jar"))))


def refuse_open_cache(*paths: Path) -> None:
    """Refuse a cache that others may write to: what is run from there would be theirs.

    Args:
        paths: files and folders of the cache that are looked at besides its own folder; those that exist.

    Raises:
        UsageError: names the first such, and the command that closes it.
    """
    cache = cache_directory()
    for path in (cache, *paths):
        seen = open_to_others(path) if path.exists() else None
        if seen is not None:
            raise UsageError(
                "what is run from the cache could be changed by others",
                where=str(path),
                expected="files and folders that nobody but you, or root, may write",
                seen=seen,
                resolve=f"run `rm -r {shlex.quote(str(cache))}`, then `make setup`: it is made anew",
            )


def read_manifest(version: str, jar_set: JarSet) -> str:
    """Return the committed manifest: lines ``<sha256>  <file name>`` in the order of the names.

    Raises:
        UsageError: there is none for that version.
    """
    file = resources.files("onceover_lab.embed") / "checksums" / f"kafka-{version}-{jar_set}.txt"
    if (version, jar_set) not in COORDINATES or not file.is_file():
        pinned = ", ".join(sorted(f"{known} ({name})" for known, name in COORDINATES))
        raise UsageError(
            f"Kafka {version} ({jar_set}) is not pinned",
            expected=f"one of: {pinned}",
            resolve="choose a pinned version",
        )
    return file.read_text(encoding="utf-8")


def make_manifest(directory: Path) -> str:
    """Return the manifest of the jars in ``directory``."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(directory.glob("*.jar"))
    )


def verify(directory: Path, manifest: str) -> None:
    """Check that ``directory`` holds the manifest's jars and nothing else that anybody could run.

    Raises:
        UsageError: names the first file that differs, is missing or is not listed.
    """
    expected = _by_name(manifest)
    paths = sorted(directory.iterdir())
    seen = _by_name(make_manifest(directory))
    seen |= {path.name: "a file that is not listed" for path in paths if _is_strange(path, seen)}
    for name in sorted(expected.keys() | seen.keys()):
        if expected.get(name) != seen.get(name):
            raise UsageError(
                f"jar {name} is not the one that was pinned",
                where=str(directory / name),
                expected=expected.get(name, "no such file"),
                seen=seen.get(name, "no such file"),
                resolve="try again; if it comes back, do not trust the repository the file came from",
            )


def _is_strange(path: Path, jars: Collection[str]) -> bool:
    return path.name not in jars and (not path.is_file() or not _BESIDE.fullmatch(path.name))


def resolve(version: str, jar_set: JarSet, destination: Path) -> None:
    """Copy the jars of ``version`` into ``destination``, unchecked; as ``retrieve``."""
    retrieve(f"Kafka {version} ({jar_set})", COORDINATES[version, jar_set], destination)


def retrieve(what: str, coordinates: tuple[str, ...], destination: Path) -> None:
    """Let the Ivy that PySpark ships resolve and copy jars into ``destination``, unchecked.

    Repositories are Ivy's defaults, or those of the machine's own ``~/.ivy2/ivysettings.xml``.

    Raises:
        Retriable: Ivy failed; the text carries the end of its output.
    """
    with tempfile.TemporaryDirectory(prefix="onceover-ivy-") as work:
        descriptor = Path(work) / "ivy.xml"
        descriptor.write_text(_ivy_descriptor(coordinates), encoding="utf-8")
        command = [str(find_java().executable), *_proxy_options(os.environ), "-cp", str(_ivy_jar())]
        command += ["org.apache.ivy.Main", "-cache", f"{work}/cache", "-ivy", str(descriptor)]
        settings = Path.home() / ".ivy2" / "ivysettings.xml"
        command += ["-settings", str(settings)] if settings.is_file() else ["-m2compatible"]
        command += ["-retrieve", f"{destination}/[artifact]-[revision].[ext]"]
        log_path = Path(work) / "ivy.log"
        code = run_to_end(
            command, name="Ivy", log_path=log_path, timeout_s=RESOLVE_TIMEOUT_S, env=with_any_names()
        )
        if code != 0:
            raise Retriable(
                f"the jars of {what} could not be fetched",
                where="Ivy, with the repositories configured on this machine",
                seen=_telling_lines(tail(log_path, 500)),
                resolve="check the network connection, then run the same command again",
            )


def _fill(target: Path, manifest: str, fetch: Callable[[Path], None]) -> None:
    # In the same directory as the target: a rename is atomic within one file system only.
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fetch(work)
        for path in work.iterdir():
            path.chmod(_FILE_MODE)
        verify(work, manifest)
        work.chmod(_FOLDER_MODE)
        if target.exists():
            shutil.rmtree(target)
        work.rename(target)
    finally:
        if work.exists():
            shutil.rmtree(work)


def _is_verified(target: Path, manifest: str) -> bool:
    """Tell whether the cached set is the pinned one; 0.1 s for the first who asks in this process."""
    if not target.is_dir():
        return False
    try:
        verify(target, manifest)
    except UsageError as error:
        log.warning("%s is fetched anew: %s", target.name, error.message)
        return False
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; the kernel drops it when the process ends."""
    path.parent.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _by_name(manifest: str) -> dict[str, str]:
    return {name: digest for digest, name in (line.split("  ", 1) for line in manifest.splitlines())}


def _ivy_descriptor(coordinates: tuple[str, ...]) -> str:
    lines = [
        f'<dependency org="{organisation}" name="{name}" rev="{revision}" conf="default->default"/>'
        for organisation, name, revision in (item.split(":") for item in coordinates)
    ]
    return (
        '<ivy-module version="2.0"><info organisation="onceover" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    locations = list(spec.submodule_search_locations or []) if spec else []
    for location in locations:
        for jar in sorted(Path(location).glob("jars/ivy-*.jar")):
            return jar
    raise UsageError(
        "PySpark's Ivy jar is missing",
        where=", ".join(locations) or "no pyspark package",
        expected="pyspark/jars/ivy-*.jar",
        resolve="run `make setup`",
    )


def _proxy_options(environment: Mapping[str, str]) -> list[str]:
    """Translate the shell's proxy variables, which Java does not read, into its system properties."""
    options: list[str] = []
    for scheme, default_port in (("http", 80), ("https", 443)):
        url = environment.get(f"{scheme}_proxy") or environment.get(f"{scheme.upper()}_PROXY")
        parts = urlsplit(url or "")
        if parts.hostname:
            options.append(f"-D{scheme}.proxyHost={parts.hostname}")
            options.append(f"-D{scheme}.proxyPort={parts.port or default_port}")
    return options


def _telling_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if any(word in line for word in ("UNRESOLVED", "ERROR", "FAILED"))]
    return " | ".join((telling or lines)[-5:])
