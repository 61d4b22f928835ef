"""What a system costs that has little or nothing to copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final

from onceover_lab.bench.clients.latency import PacedProducer
from onceover_lab.bench.clients.topics import Topics
from onceover_lab.bench.copiers import Arena, Turn
from onceover_lab.bench.stats import value_at
from onceover_lab.bench.trial import running
from onceover_lab.bench.watching.watch import ProgressWatch
from onceover_lab.bench.workloads import IDLE_SPAN_S, Workload

_LOOK_S: Final = 0.5
# Whoever is to be idle has to have begun: every partition gets a record first, at this rate.
_FIRST_PER_S: Final = 500


def measure_idle(arena: Arena, turn: Turn, target: Topics) -> dict[str, float]:
    """Have one record of each partition copied, then watch the system for ``IDLE_SPAN_S`` seconds.

    Raises:
        Retriable: it ended, or did not copy what was there first.
    """
    workload = turn.workload
    with running(arena, turn) as trial:
        first = _fill(arena, workload)
        with closing(ProgressWatch(target, turn.target_topic, workload.partitions)) as watch:
            watch.wait_until_quiet(first, trial.copier.check)
        with _flowing(arena, workload):
            _pass(workload.warm_up_s, trial.copier.check)
            from_s = time.monotonic()
            _pass(IDLE_SPAN_S, trial.copier.check)
            to_s = time.monotonic()
        cpu, memory_bytes = trial.tree.cpu_samples(), trial.tree.peak_memory_bytes()
    cores = (value_at(cpu, to_s) - value_at(cpu, from_s)) / (to_s - from_s)
    return {"cpu_cores": cores, "peak_memory_mb": memory_bytes / 1e6}


def _fill(arena: Arena, workload: Workload) -> int:
    producer = PacedProducer(arena.source_bootstrap, replace(workload, rate_per_s=_FIRST_PER_S))
    try:
        while producer.sent < workload.partitions:
            time.sleep(_LOOK_S)
    finally:
        sent = producer.stop()
    return sent


@contextmanager
def _flowing(arena: Arena, workload: Workload) -> Iterator[None]:
    if workload.rate_per_s == 0:
        yield
        return
    producer = PacedProducer(arena.source_bootstrap, workload)
    try:
        yield
    finally:
        producer.stop()


def _pass(seconds: float, check_alive: Callable[[], None]) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        check_alive()
        time.sleep(_LOOK_S)
