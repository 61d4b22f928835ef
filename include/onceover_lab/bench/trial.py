"""A system under test while it runs, and the certainty that nothing of it is left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import psutil

from onceover.errors import Retriable
from onceover_lab.bench.copiers import Arena, Copier, Turn, start_copier
from onceover_lab.bench.watching.proctree import ProcessTree

_LEFTOVER_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True)
class Trial:
    """A running system under test, what is seen of its processes, and when it was started (monotonic)."""

    copier: Copier
    tree: ProcessTree
    started_s: float


@contextmanager
def running(arena: Arena, turn: Turn) -> Iterator[Trial]:
    """Run the turn's system; at the end, however it comes, nothing of it is left."""
    started_s = time.monotonic()
    copier = start_copier(arena, turn)
    tree = ProcessTree(copier.pid)
    try:
        yield Trial(copier, tree, started_s)
    finally:
        tree.close()
        try:
            copier.stop()
        finally:
            _end_leftovers(tree)


def _end_leftovers(tree: ProcessTree) -> None:
    """Make sure that nothing of a stopped system runs on and slows the next one.

    Raises:
        Retriable: the system left a process behind after it was stopped; it has been killed.
    """
    _, left = psutil.wait_procs(tree.living(), timeout=_LEFTOVER_TIMEOUT_S)
    if left:
        names = ", ".join(sorted(f"{process.pid}" for process in left))
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=_LEFTOVER_TIMEOUT_S)
        raise Retriable("the system left processes behind", seen=f"pids {names}, killed", expected="none")
