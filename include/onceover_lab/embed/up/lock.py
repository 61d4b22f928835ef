"""One ``up`` or ``down`` of a home at a time.

Guarantee: whoever is inside is alone, and the kernel lets the next one in when that process ends, however it
does. Processes started meanwhile do not hold the lock: Python opens files that children do not inherit.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

log = logging.getLogger(__name__)


@contextmanager
def alone(home: Path, what: str) -> Iterator[None]:
    """Wait until nobody else is at work on ``home``, saying who is; ``what`` is told to who comes next."""
    with _opened(home) as file:
        if not _try_lock(file):
            file.seek(0)
            log.warning("another %s; waiting for its end", file.read() or "command is at work")
            fcntl.flock(file, fcntl.LOCK_EX)
        _sign(file, what)
        yield


@contextmanager
def alone_if_free(home: Path, what: str) -> Iterator[bool]:
    """Be alone as in ``alone``, or yield False at once where somebody else is at work on ``home``."""
    with _opened(home) as file:
        free = _try_lock(file)
        if free:
            _sign(file, what)
        yield free


def emptied(home: Path) -> None:
    """Delete everything below ``home`` but the lock, which others may be waiting for."""
    lock = _lock_of(home)
    for path in home.iterdir():
        if path != lock.parent:
            _delete(path)
    for path in lock.parent.iterdir():
        if path != lock:
            _delete(path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _lock_of(home: Path) -> Path:
    return home / "clusters" / ".lock"


@contextmanager
def _opened(home: Path) -> Iterator[IO[str]]:
    path = _lock_of(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        yield file


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(file: IO[str], what: str) -> None:
    file.truncate(0)
    file.write(f"{what} is at work (pid {os.getpid()})")
    file.flush()
