"""Files that are nobody's business but their owner's.

Invariant: while ``privately`` holds, whatever this process and those that it starts make is the owner's
alone: folders 0700, files 0600. Below ``ONCEOVER_HOME`` are names, positions and, where somebody asked to see
them, contents of records. What makes its files with a mode of its own has to be told likewise (Hadoop does).

And what is run or believed from a file is the word of whoever may write that file: ``open_to_others`` asks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

UMASK: Final = 0o077


@contextmanager
def privately() -> Iterator[None]:
    """Make files for their owner alone meanwhile, in all threads of this process."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(path: Path) -> str | None:
    """Say how somebody besides this user and root may change a file or a folder's names; None: nobody may.

    Nothing is said of the folders above it: who may write there may put another one in its place.

    Raises:
        FileNotFoundError: there is none.
    """
    return _opened_by(path.stat(), stat.S_IWGRP | stat.S_IWOTH)


def read_by_others(descriptor: int) -> str | None:
    """Say how somebody besides this user and root may read or change an open file; None: nobody may."""
    return _opened_by(os.fstat(descriptor), stat.S_IRWXG | stat.S_IRWXO)


def _opened_by(status: os.stat_result, rights: int) -> str | None:
    if status.st_uid not in {0, os.geteuid()}:
        return f"it belongs to user id {status.st_uid}"
    if status.st_mode & rights:
        return f"mode {stat.S_IMODE(status.st_mode):04o}"
    return None
