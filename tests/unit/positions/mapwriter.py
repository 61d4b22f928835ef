"""Applies a map to a file, a record at a time, for ever: a process to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from onceover.positions.store import MapStore
from tests.unit.positions.maplog import MapLog


def copied(transactions: int = 10) -> MapLog:
    """Return the log of so many plain transactions."""
    log = MapLog()
    for _ in range(transactions):
        log.transaction([True, False, True], 1)
    return log


if __name__ == "__main__":
    store = MapStore(Path(sys.argv[1]))
    log = copied(200)
    while True:
        log.feed(store, 1)
        store.forget(0)
