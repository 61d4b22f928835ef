"""How long a copy stands still when its processes are killed while records flow."""

from __future__ import annotations

from contextlib import closing

from onceover.errors import UsageError
from onceover_lab.bench.clients.latency import LatencyReader, PacedProducer
from onceover_lab.bench.clients.topics import Topics
from onceover_lab.bench.copiers import Arena, MirrorCopier, OnceoverCopier, Turn
from onceover_lab.bench.trial import running


def measure_recovery(arena: Arena, turn: Turn, target: Topics) -> dict[str, float]:
    """Kill the contender's victim with SIGKILL and find out how long a partition stands still.

    Raises:
        Retriable: it was not copied again, or a record was lost or repeated.
        UsageError: the contender names no victim, or its system has none.
    """
    victim = turn.contender.victim
    reader = LatencyReader(arena.target_bootstrap, target, turn.target_topic, turn.workload)
    with closing(reader), running(arena, turn) as trial:
        copier = trial.copier
        if victim is None or not isinstance(copier, OnceoverCopier | MirrorCopier):
            raise UsageError(f"nothing of {turn.contender.name} is to be killed")
        producer = PacedProducer(arena.source_bootstrap, turn.workload)
        try:
            back_s = reader.measure_return(producer, copier.check, lambda: copier.kill(victim))
        finally:
            producer.stop()
    return {"back_s": back_s}
