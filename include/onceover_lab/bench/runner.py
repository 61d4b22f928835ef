"""The order of play: every workload, every round, every contender in turn, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from onceover.errors import Retriable
from onceover_lab.bench.clients.batches import feed_batches
from onceover_lab.bench.clients.feed import feed, producer_config
from onceover_lab.bench.clients.topics import Topics
from onceover_lab.bench.copiers import Arena, Turn
from onceover_lab.bench.findings.results import ContenderRun, WorkloadResult
from onceover_lab.bench.measure import Measurer
from onceover_lab.bench.workloads import FED, PARTITIONS, Workload, WorkloadKind

_WARM_UP_TOPIC: Final = "bench-warm-up"
_WARM_UP_RECORDS: Final = 200_000


def run_benchmark(
    arena: Arena, workloads: Sequence[Workload], rounds: int, say: Callable[[str], None]
) -> list[WorkloadResult]:
    """Play all turns and return every run, also the failed ones. ``say`` gets a line of progress."""
    warm_up(arena, say)
    with closing(Topics(arena.source_bootstrap)) as source, closing(Measurer(arena)) as measurer:
        return [_play(arena, source, measurer, workload, rounds, say) for workload in workloads]


def _play(
    arena: Arena,
    source: Topics,
    measurer: Measurer,
    workload: Workload,
    rounds: int,
    say: Callable[[str], None],
) -> WorkloadResult:
    if workload.kind in FED:
        # Those that copy the same share one topic.
        for portion in {each.name: each for each in map(workload.portion, workload.contenders)}.values():
            _feed_source(arena, source, portion, say)
    if workload.kind is WorkloadKind.READING:
        measurer.copy_once(workload)
    runs = []
    for round_number in range(1, rounds + 1):
        for contender in workload.contenders:
            say(f"{workload.title}: round {round_number} of {rounds}, {contender.name} ...")
            run = measurer.measure(Turn(workload.portion(contender), contender, round_number))
            say(f"{workload.title}: round {round_number} of {rounds}, {_describe(run)}")
            runs.append(run)
    source.delete_all()
    return WorkloadResult(workload, tuple(runs))


def warm_up(arena: Arena, say: Callable[[str], None]) -> None:
    """Let both brokers compile their hot code, so that the first contender does not pay for it."""
    say("warming the brokers up ...")
    for bootstrap in (arena.source_bootstrap, arena.target_bootstrap):
        with closing(Topics(bootstrap)) as topics:
            topics.create(_WARM_UP_TOPIC, {}, PARTITIONS)
            config = producer_config(bootstrap, "lz4")
            feed(config, _WARM_UP_TOPIC, record_bytes=1024, records=_WARM_UP_RECORDS)
            topics.count(_WARM_UP_TOPIC)
            topics.delete(_WARM_UP_TOPIC)


def _feed_source(arena: Arena, source: Topics, workload: Workload, say: Callable[[str], None]) -> None:
    say(f"{workload.title}: writing {workload.records:,} records into the source ...")
    source.create(workload.topic, workload.topic_config, workload.partitions)
    amount = {"record_bytes": workload.record_bytes, "records": workload.records}
    if workload.batch_records is None:
        feed(producer_config(arena.source_bootstrap, workload.codec), workload.topic, **amount)
    else:
        feed_batches(
            arena.source_bootstrap,
            workload.codec,
            workload.topic,
            **amount,
            batch_records=workload.batch_records,
        )
    written = sum(source.end_offsets(workload.topic).values())
    if written != workload.records:
        raise Retriable(
            "the source does not hold what was written",
            where=workload.topic,
            expected=f"{workload.records} records",
            seen=f"{written} records",
            resolve="run again",
        )


def _describe(run: ContenderRun) -> str:
    if run.error is not None:
        return f"{run.contender}: FAILED: {run.error}"
    shown = ", ".join(f"{key} {value:,.2f}" for key, value in run.figures.items())
    return f"{run.contender}: {shown}"
