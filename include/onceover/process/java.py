"""Finds the Java that Kafka and Spark both run on, or installs the distribution's."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceover.errors import UsageError

# Kafka 4.3 brokers need 17; Spark 4.2 is released for 17 and 21.
SUPPORTED_MAJORS: Final = (17, 21)
# Spark's launcher opens this module; reduced runtimes leave it out, and Spark then does not start.
REQUIRED_MODULE: Final = "jdk.incubator.vector"
DEBIAN_PACKAGES: Final = ("openjdk-17-jdk-headless", "openjdk-21-jdk-headless")
_USUAL_DIRECTORIES: Final = (
    "/usr/lib/jvm",
    "/usr/java",
    "/opt",
    "/opt/homebrew/opt",
    "/usr/local/opt",
    "/Library/Java/JavaVirtualMachines",
)
_LAUNCHERS: Final = (
    "*/bin/java",
    "*/Contents/Home/bin/java",
    "*/libexec/openjdk.jdk/Contents/Home/bin/java",
)
_VERSION: Final = re.compile(r'(?:version "(?:1\.)?|^java\.base@)(\d+)([^"\s]*)', re.MULTILINE)


# What Java reads by itself, in each of its programs.
_JAVAS_OWN: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# What spark-submit hands to its JVM.
_SPARKS: Final = "SPARK_SUBMIT_OPTS"
_SAID_LINES: Final = 2
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that was tried: ``executable`` is its launcher, ``home`` its JAVA_HOME."""

    executable: Path
    major: int
    version: str

    @property
    def home(self) -> Path:
        return self.executable.parent.parent


def parse_version(text: str) -> tuple[int, str] | None:
    """Return (major, full version) from what ``-version`` or ``--list-modules`` prints, else None."""
    match = _VERSION.search(text)
    return (int(match[1]), match[1] + match[2]) if match else None


def collector_flags() -> list[str]:
    """Return what a program with little to collect is told; nothing where the machine's owner has chosen.

    Java does not start with two collectors.
    """
    chosen = any(_COLLECTOR.search(os.environ.get(variable, "")) for variable in (*_JAVAS_OWN, _SPARKS))
    return [] if chosen else ["-XX:+UseSerialGC"]


def with_any_names(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment in which Java finds what it is given by names beyond ASCII.

    It would make question marks of these under LC_ALL=C. Where another variable says the same, Python has
    seen to it for all that it starts.
    """
    return {**environ, **({"LC_ALL": "C.UTF-8"} if environ.get("LC_ALL") in ("C", "POSIX") else {})}


@functools.cache
def find_java() -> Java:
    """Return a usable Java: JAVA_HOME first, then PATH, then the usual directories.

    Raises:
        UsageError: there is none; the text lists what was tried and names the command that installs one.
    """
    rejected: list[str] = []
    for executable in dict.fromkeys(path.resolve() for path in _candidates()):
        java = _probe(executable, rejected)
        if java is not None:
            return java
    raise UsageError(
        "no usable Java was found",
        where="JAVA_HOME, PATH, " + ", ".join(_USUAL_DIRECTORIES),
        expected=f"Java {' or '.join(map(str, SUPPORTED_MAJORS))} with the module {REQUIRED_MODULE}",
        seen="; ".join(rejected) or "no Java at all",
        resolve=_correct(" ".join(rejected)) or f"run: {install_command()}",
    )


def _correct(said: str) -> str | None:
    """Return which variable is to be corrected, where Java has read one, says so, and did not start."""
    found = re.search(rf"(?:Picked up|NOTE: Picked up) ({'|'.join(_JAVAS_OWN)}):", said)
    return f"correct {found.group(1)}, or unset it" if found else None


def ensure_java() -> Java:
    """Return a usable Java; on Debian and its kin, as root, install the distribution's when there is none.

    Raises:
        UsageError: there is none and it cannot be installed from here.
    """
    try:
        return find_java()
    except UsageError:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise
    _apt_get("update")
    _apt_get("install", "--yes", "--no-install-recommends", _debian_package())
    return find_java()


def install_command() -> str:
    """Return the shell command with which a person installs Java on this machine."""
    if shutil.which("apt-get") is not None:
        return f"sudo apt-get update && sudo apt-get install --yes {_debian_package()}"
    if sys.platform == "darwin":
        return "brew install openjdk@17"
    if shutil.which("dnf") is not None:
        return "sudo dnf install java-17-openjdk-headless"
    return "install OpenJDK 17 or 21 with the system's package manager, or set JAVA_HOME to one"


def _candidates() -> Iterator[Path]:
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        yield Path(java_home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    for directory in map(Path, _USUAL_DIRECTORIES):
        for pattern in _LAUNCHERS:
            yield from sorted(directory.glob(pattern))


def _probe(executable: Path, rejected: list[str]) -> Java | None:
    """Return the Java behind ``executable``, or add to ``rejected`` why it is not usable."""
    try:
        # One question for both: each is a JVM's start, before every flow's.
        modules = _run(executable, "--list-modules")
        parsed = parse_version(modules) or parse_version(_run(executable, "-version"))
    except (OSError, subprocess.TimeoutExpired) as error:
        rejected.append(f"{executable}: {error}")
        return None
    if parsed is None:
        said = " / ".join(modules.split("\n")[:_SAID_LINES]).strip()
        rejected.append(f"{executable}: {said or 'no version'}")
        return None
    if parsed[0] not in SUPPORTED_MAJORS:
        rejected.append(f"{executable}: version {parsed[1]}")
        return None
    if REQUIRED_MODULE not in modules:
        rejected.append(f"{executable}: without {REQUIRED_MODULE}")
        return None
    return Java(executable, *parsed)


def _run(executable: Path, argument: str) -> str:
    done = subprocess.run([executable, argument], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def _debian_package() -> str:
    """Return the first supported package that this release of the distribution offers."""
    for package in DEBIAN_PACKAGES:
        shown = subprocess.run(
            ["apt-cache", "show", package], capture_output=True, text=True, timeout=60, check=False
        )
        if shown.returncode == 0 and shown.stdout.strip():
            return package
    return DEBIAN_PACKAGES[0]


def _apt_get(*arguments: str) -> None:
    command = ["apt-get", "-qq", *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode != 0:
        raise UsageError(
            "the distribution's Java could not be installed",
            where=" ".join(command),
            seen=done.stderr.strip()[-500:],
            resolve=f"run: {install_command()}",
        )
