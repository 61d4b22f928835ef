"""A folder for what one run of a Spark job needs for itself only: gone with the run, however that ends.

Spark removes its temporary files when it ends in order. A JVM that is killed leaves them, libraries that it
unpacked among them, and nobody looks for those of others in ``/tmp``; of a copy that lasts for weeks,
cleaners of ``/tmp`` take them away too early.

Invariant: a folder is removed by whoever started its run, or by a later start of the flow; never while a
process of the run, or who waits for it, holds its lock. Locks end with their holders, also with SIGKILL.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from onceover.errors import unusable_path
from onceover.private import privately
from onceover.process.boot import boot_id
from onceover.spark.launch.runfiles import is_run

_LOCK: Final = "lock"
# Its name until its lock is held. Nobody takes one of these for left over, but one that was forgotten.
_BEGINS: Final = ".begins"
_BEGINS_WITHIN_S: Final = 3600.0
# Only Linux tells.
_NOEXEC: Final[int] = getattr(os, "ST_NOEXEC", 0)


@contextmanager
def scratch(folder: Path) -> Iterator[int]:
    """Make ``folder`` and hold it; remove it at the end, and what killed runs have left beside it.

    At the end its lock is let go first: where an error passes by while the JVM still ends, the folder is left
    to the next start.

    Args:
        folder: named as ``runfiles.own_report`` names a run.

    Yields:
        A file descriptor for the processes that use the folder to inherit: while one of them has it, nobody
        else removes the folder.

    Raises:
        UsageError: it cannot be made.
    """
    begins = folder.with_name(folder.name + _BEGINS)
    try:
        with _told():
            lock = _begun(begins)
        with lock:
            with _told():
                _remove_abandoned(folder.parent)
                begins.rename(folder)
            yield lock.fileno()
    finally:
        for each in (begins, folder):
            if not (_locked_by(each) and _is_held(each / _LOCK)):
                shutil.rmtree(each, ignore_errors=True)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unusable_path(error) from error


def _begun(begins: Path) -> IO[str]:
    """Make a folder and return its lock, which this process has."""
    with privately():
        begins.mkdir(parents=True)
    # For both: some network file systems give shared locks to readers only, and others to writers.
    lock = (begins / _LOCK).open("w+")
    # Where there are no locks, nobody else can tell that a folder is left over: it stays after a kill.
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.write(lock.fileno(), "\n".join(_machine()).encode())
    return lock


def suits_java(folder: Path) -> bool:
    """Tell whether a JVM can use it for its temporary files, and finds it: Spark splits names at commas.

    Its launcher cuts characters beyond U+FFFF in two, and what is unpacked is run from there.
    """
    whole = folder.absolute()
    there = next(each for each in (whole, *whole.parents) if each.exists())
    plain = all(character != "," and ord(character) <= 0xFFFF for character in str(whole))
    return plain and not os.statvfs(there).f_flag & _NOEXEC


def _machine() -> set[str]:
    """Return what tells whose locks these are: machines may share a file system, and not its locks.

    Containers share a kernel; a machine that was started again has another one, and its old name.
    """
    return {each for each in (socket.gethostname(), boot_id()) if each is not None}


def _locked_by(folder: Path) -> set[str]:
    """Return the machine that has locked a folder; empty where none could, or there is no folder."""
    try:
        return set((folder / _LOCK).read_text(encoding="utf-8").split("\n")) - {""}
    except FileNotFoundError:
        return set()


def _remove_abandoned(folder: Path) -> None:
    for each in folder.iterdir():
        if is_run(each.name.removesuffix(_BEGINS)) and _is_abandoned(each):
            shutil.rmtree(each, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    try:
        if folder.suffix == _BEGINS:
            return time.time() - folder.stat().st_mtime > _BEGINS_WITHIN_S
        # Its lock was there first, and goes with what is in it: somebody has begun to remove it.
        if not (folder / _LOCK).exists():
            return True
        return not _locked_by(folder).isdisjoint(_machine()) and not _is_held(folder / _LOCK)
    except OSError:
        # Another start removes it just now, or it is another user's.
        return False


def _is_held(lock: Path) -> bool:
    """Tell whether a process has the lock, or nobody can tell."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
