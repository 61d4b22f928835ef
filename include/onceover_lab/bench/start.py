"""How long a system takes from its command to the first record, and to say that nothing is to be done."""

from __future__ import annotations

import re
import time
from contextlib import closing
from datetime import datetime
from typing import Final

from onceover_lab.bench.clients.topics import Topics
from onceover_lab.bench.copiers import Arena, OnceoverCopier, Turn
from onceover_lab.bench.stats import value_at
from onceover_lab.bench.trial import running
from onceover_lab.bench.watching.proctree import ProcessTree
from onceover_lab.bench.watching.watch import ProgressWatch

_TIMEOUT_S: Final = 120.0
_STAMP: Final = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ")
_PHASES: Final = {"leads_s": " runs as generation ", "query_s": ": query started"}


def measure_start(arena: Arena, turn: Turn, target: Topics) -> dict[str, float]:
    """Start the turn's system on records that wait, then, if it is Onceover, once more when all is copied.

    Raises:
        Retriable: it ended, or copied nothing in three minutes.
    """
    workload, wall_s = turn.workload, time.time()
    with (
        closing(ProgressWatch(target, turn.target_topic, workload.partitions)) as watch,
        running(arena, turn) as trial,
    ):
        figures = {"start_up_s": watch.wait_for_first(trial.copier.check).at_s - trial.started_s}
        watch.wait_until_quiet(workload.records, trial.copier.check)
        copier = trial.copier
    if isinstance(copier, OnceoverCopier):
        figures |= phases(copier.job_log(), started_s=wall_s)
        figures |= _nothing_to_do(copier)
    return figures


def phases(log: str, *, started_s: float) -> dict[str, float]:
    """Return the seconds from ``started_s`` (Unix time) to the lines that end a phase, where they are."""
    found: dict[str, float] = {}
    for line in log.splitlines():
        stamp = _STAMP.match(line)
        for name, words in _PHASES.items():
            if stamp and words in line and name not in found:
                at = datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S,%f").astimezone()
                found[name] = at.timestamp() - started_s
    return found


def _nothing_to_do(copier: OnceoverCopier) -> dict[str, float]:
    started_s = time.monotonic()
    child = copier.start_until_caught_up()
    tree = ProcessTree(child.pid)
    try:
        child.wait(_TIMEOUT_S)
        ended_s = time.monotonic()
    finally:
        tree.close()
        child.stop()
    cpu_s = value_at(tree.cpu_samples(), ended_s)
    return {"nothing_to_do_s": ended_s - started_s, "nothing_to_do_cpu_s": cpu_s}
