"""One ``up`` or ``down`` of a home at a time.

Guarantee: whoever is inside is alone, and the kernel lets the next one in when that process ends, however it
does. Processes started meanwhile do not hold the lock: Python opens files that children do not inherit.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)


@contextmanager
def alone(home: Path, what: str) -> Iterator[None]:
    """Wait until nobody else is at work on ``home``, saying who is; ``what`` is told to who comes next."""
    path = home / "clusters" / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            log.warning("another %s; waiting for its end", file.read() or "command is at work")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{what} is at work (pid {os.getpid()})")
        file.flush()
        yield
