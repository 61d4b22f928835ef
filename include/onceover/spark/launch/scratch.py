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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from onceover.private import privately

_LOCK: Final = "lock"
# Its name until its lock is held: nobody takes one of these for left over.
_BEGINS: Final = ".begins"


@contextmanager
def scratch(folder: Path) -> Iterator[int]:
    """Make ``folder`` and hold it; remove it at the end, and what killed runs have left beside it.

    Yields:
        A file descriptor for the processes that use the folder to inherit: while one of them has it, nobody
        else removes the folder.

    Raises:
        OSError: it cannot be made.
    """
    begins = folder.with_name(folder.name + _BEGINS)
    with privately():
        begins.mkdir(parents=True)
    _remove_abandoned(folder.parent)
    with (begins / _LOCK).open("w") as lock:
        # Where a file system has no locks, nobody can tell that a folder is left over, and it stays.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)
        begins.rename(folder)
        try:
            yield lock.fileno()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    for each in folder.iterdir():
        if each.suffix != _BEGINS and each.is_dir() and not _is_held(each / _LOCK):
            shutil.rmtree(each, ignore_errors=True)


def _is_held(lock: Path) -> bool:
    """Tell whether a process has the lock, or nobody can tell."""
    try:
        # As locks that others must not have are only for writers on some network file systems.
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
