"""What the benchmark copies, and who copies it: closed tables, no I/O.

Volumes are chosen so that each system is in its steady state for about fifteen seconds on two cores, where
the first and the last commit are far from both ends of that, while the whole default run stays under twenty
minutes. What takes a fast system so long takes a slow one minutes: it copies a smaller topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from onceover.errors import UsageError

PARTITIONS: Final = 6
LANES: Final = 2
"""Lanes of the flow, and ``tasks.max`` of MirrorMaker 2: the same parallelism for both."""


IDLE_SPAN_S: Final = 20.0
"""How long a system is watched that has nothing to do: a hundred times what CPU clocks can tell apart."""


class System(Enum):
    """A program that copies the source into the target or, the last two, reads both."""

    MIRRORMAKER = "mirrormaker"
    ONCEOVER = "onceover"
    LIBRDKAFKA = "librdkafka"
    AUDIT = "audit"
    CONSUMERS = "consumers"


class WorkloadKind(Enum):
    """What a workload measures."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    READING = "reading"
    START = "start"
    RECOVERY = "recovery"
    IDLE = "idle"


FED: Final = frozenset({WorkloadKind.THROUGHPUT, WorkloadKind.READING, WorkloadKind.START})
"""Kinds whose topic is written once, before the first turn."""


class Victim(Enum):
    """What of a copying system is killed with SIGKILL in a recovery workload.

    ``DRIVER`` is all that leads it: Onceover's driver with its JVM, MirrorMaker 2's only process.
    ``WORKER`` is the process of one lane.
    """

    DRIVER = "driver"
    WORKER = "worker"


@dataclass(frozen=True)
class Contender:
    """One system with one setting.

    ``properties`` go to MirrorMaker 2 on top of its tuned ones, ``flow`` into Onceover's flow file.
    ``victim`` is killed in a recovery workload.
    """

    name: str
    system: System
    properties: Mapping[str, str] = field(default_factory=dict)
    flow: Mapping[str, str] = field(default_factory=dict)
    victim: Victim | None = None


@dataclass(frozen=True)
class Workload:
    """One topic of ``partitions`` partitions, and the contenders that copy it in turn.

    ``record_bytes`` is key and value together, before compression. ``rate_per_s`` paces the producer of a
    workload that is not fed beforehand; ``warm_up_s`` pass before it is measured. ``batch_records`` are in a
    batch of the source, None for as many as there is room for in a megabyte. ``mirror_share`` of the records
    is what MirrorMaker 2 copies.
    ``topic_config`` is the source topic's; with ``sync_configs`` false the target topic is made beforehand
    with the broker's defaults. ``source_ms`` and ``target_ms``: how long a question to that cluster and its
    answer are on their way, in addition; None where nothing is put in between.
    """

    name: str
    title: str
    kind: WorkloadKind
    record_bytes: int
    records: int
    codec: str
    contenders: tuple[Contender, ...]
    rate_per_s: int = 0
    warm_up_s: float = 0.0
    batch_records: int | None = None
    mirror_share: float = 1.0
    topic_config: Mapping[str, str] = field(default_factory=dict)
    sync_configs: bool = True
    partitions: int = PARTITIONS
    source_ms: int | None = None
    target_ms: int | None = None

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"

    def portion(self, contender: Contender) -> Workload:
        """Return what this contender copies of it."""
        if contender.system is not System.MIRRORMAKER or self.mirror_share == 1.0:
            return self
        records = max(self.partitions, round(self.records * self.mirror_share))
        return replace(self, name=f"{self.name}-part", records=records, mirror_share=1.0)

    @property
    def is_far(self) -> bool:
        """Whether something is put between the contenders and the clusters."""
        return self.source_ms is not None or self.target_ms is not None


# One transaction a second, as the tuned throughput setting: with the default (one transaction per poll)
# MirrorMaker 2 reaches a half to a third of this (docs/facts.md).
_INTERVAL_1S: Final = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "1000"}
_INTERVAL_200MS: Final = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "200"}
_PER_POLL: Final = {"transaction.boundary": "poll"}

ONCEOVER: Final = Contender("onceover", System.ONCEOVER)
AT_LEAST_ONCE: Final = Contender("at-least-once", System.ONCEOVER, flow={"delivery": "at_least_once"})
MIRRORMAKER: Final = Contender("mm2", System.MIRRORMAKER, _INTERVAL_1S)
# Two settings, because MirrorMaker 2 trades latency against CPU: a transaction per poll is its fastest.
MIRRORMAKER_PER_POLL: Final = Contender("mm2-poll", System.MIRRORMAKER, _PER_POLL)
MIRRORMAKER_200MS: Final = Contender("mm2-200ms", System.MIRRORMAKER, _INTERVAL_200MS)
CEILING: Final = Contender("librdkafka", System.LIBRDKAFKA)
AUDIT: Final = Contender("audit", System.AUDIT)
CONSUMERS: Final = Contender("consumers", System.CONSUMERS)

# Killed while it copies. MirrorMaker 2 is started again at once, as by a supervisor that needs no time to
# see it; Onceover starts itself again.
MIRRORMAKER_KILLED: Final = Contender("mm2-killed", System.MIRRORMAKER, _PER_POLL, victim=Victim.DRIVER)
DRIVER_KILLED: Final = Contender("driver-killed", System.ONCEOVER, victim=Victim.DRIVER)
WORKER_KILLED: Final = Contender("worker-killed", System.ONCEOVER, victim=Victim.WORKER)

# What a producer with Kafka's defaults puts into a batch of 16 KB.
_SMALL_BATCH: Final = 15

_PAIR: Final = (MIRRORMAKER, ONCEOVER)
_MODES: Final = (ONCEOVER, AT_LEAST_ONCE)

DEFAULT: Final = (
    Workload(
        "1kb-lz4", "1 KB, lz4", WorkloadKind.THROUGHPUT, 1024, 12_000_000, "lz4", _PAIR, mirror_share=0.2
    ),
    Workload(
        "tiny-batches",
        "1 KB, lz4, one record per batch",
        WorkloadKind.THROUGHPUT,
        1024,
        7_000_000,
        "lz4",
        _PAIR,
        batch_records=1,
        mirror_share=0.28,
    ),
    Workload(
        "ceiling",
        "ceiling: librdkafka, 1 KB, lz4",
        WorkloadKind.THROUGHPUT,
        1024,
        5_600_000,
        "lz4",
        (CEILING,),
    ),
    Workload(
        "latency",
        "latency at 500 records/s",
        WorkloadKind.LATENCY,
        1024,
        10_000,
        "lz4",
        (MIRRORMAKER_PER_POLL, MIRRORMAKER_200MS, ONCEOVER),
        rate_per_s=500,
        warm_up_s=5.0,
    ),
    Workload("start", "start", WorkloadKind.START, 1024, 6_000, "lz4", (MIRRORMAKER_PER_POLL, ONCEOVER)),
    Workload(
        "recover",
        "back after kill -9, at 500 records/s",
        WorkloadKind.RECOVERY,
        1024,
        6_000,
        "lz4",
        (MIRRORMAKER_KILLED, DRIVER_KILLED, WORKER_KILLED),
        rate_per_s=500,
        warm_up_s=3.0,
    ),
)


def _idle(partitions: int, rate_per_s: int) -> Workload:
    """Return a workload in which next to nothing is to be done: what a system costs by being there."""
    return Workload(
        f"idle-{partitions}-{rate_per_s}",
        f"{rate_per_s} records/s over {partitions:,} partitions",
        WorkloadKind.IDLE,
        1024,
        partitions,
        "lz4",
        (MIRRORMAKER_PER_POLL, MIRRORMAKER_200MS, ONCEOVER),
        rate_per_s=rate_per_s,
        warm_up_s=5.0,
        partitions=partitions,
    )


def _far(side: str, round_trip_ms: int, batch_records: int | None = None) -> Workload:
    """Return a workload whose source or target is so far away; with 0 what the way itself costs."""
    away = {"source_ms": 0, "target_ms": 0, f"{side}_ms": round_trip_ms}
    small = batch_records is not None
    return Workload(
        f"far-{side}-{round_trip_ms}{'-small' if small else ''}",
        f"1 KB, uncompressed{', batches of 16 KB' if small else ''}, {side} {round_trip_ms} ms away",
        WorkloadKind.THROUGHPUT,
        1024,
        4_000_000,
        "none",
        _PAIR,
        batch_records=batch_records,
        mirror_share=0.3,
        source_ms=away["source_ms"],
        target_ms=away["target_ms"],
    )


EXTRA: Final = (
    Workload(
        "100b-lz4", "100 B, lz4", WorkloadKind.THROUGHPUT, 100, 80_000_000, "lz4", _PAIR, mirror_share=0.03
    ),
    Workload(
        "1kb-none",
        "1 KB, uncompressed",
        WorkloadKind.THROUGHPUT,
        1024,
        6_000_000,
        "none",
        _PAIR,
        mirror_share=0.3,
    ),
    Workload(
        "1kb-none-small",
        "1 KB, uncompressed, batches of 16 KB",
        WorkloadKind.THROUGHPUT,
        1024,
        3_000_000,
        "none",
        _PAIR,
        batch_records=_SMALL_BATCH,
        mirror_share=0.5,
    ),
    Workload("16kb-zstd", "16 KB, zstd", WorkloadKind.THROUGHPUT, 16_384, 400_000, "zstd", _PAIR),
    # The broker's append time has to become an ordinary record timestamp on the target, so that no batch
    # can pass as bytes (docs/facts.md): this shows the price of decoding and encoding.
    Workload(
        "re-encode",
        "1 KB, lz4, every batch re-encoded",
        WorkloadKind.THROUGHPUT,
        1024,
        3_000_000,
        "lz4",
        _PAIR,
        mirror_share=0.8,
        topic_config={"message.timestamp.type": "LogAppendTime"},
        sync_configs=False,
    ),
    Workload(
        "delivery", "delivery modes, 1 KB, lz4", WorkloadKind.THROUGHPUT, 1024, 8_000_000, "lz4", _MODES
    ),
    Workload(
        "delivery-latency",
        "delivery modes, latency at 500 records/s",
        WorkloadKind.LATENCY,
        1024,
        10_000,
        "lz4",
        _MODES,
        rate_per_s=500,
        warm_up_s=5.0,
    ),
    # Both read both sides of the same copy; the audit compares them as well.
    Workload(
        "audit",
        "audit beside plain consumers, 1 KB, lz4",
        WorkloadKind.READING,
        1024,
        2_000_000,
        "lz4",
        (CONSUMERS, AUDIT),
    ),
    *(_far(side, round_trip_ms) for side in ("source", "target") for round_trip_ms in (0, 20, 100, 250)),
    *(_far("target", round_trip_ms, _SMALL_BATCH) for round_trip_ms in (0, 100)),
    *(_idle(partitions, rate_per_s) for partitions in (12, 1_000) for rate_per_s in (0, 500)),
)


def shares(records: int) -> list[int]:
    """Return how many of them are written into each partition: evenly, the first ones take the rest."""
    return [records // PARTITIONS + (p < records % PARTITIONS) for p in range(PARTITIONS)]


def select_workloads(names: list[str], *, full: bool, scale: float) -> tuple[Workload, ...]:
    """Return the workloads of a run in table order; named ones may come from the full set.

    ``scale`` multiplies the number of records, for a quick look.

    Raises:
        UsageError: an unknown name, or a scale outside (0, 100].
    """
    if not 0 < scale <= 100:
        raise UsageError(
            "the scale of the benchmark is out of range", expected="0 < scale <= 100", seen=str(scale)
        )
    known = {workload.name: workload for workload in (*DEFAULT, *EXTRA)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"unknown workload {unknown[0]!r}",
            expected=", ".join(known),
            seen=unknown[0],
            resolve="--workload",
        )
    chosen = [workload for name, workload in known.items() if name in names]
    if not names:
        chosen = [*DEFAULT, *EXTRA] if full else list(DEFAULT)
    return tuple(replace(w, records=max(w.partitions, round(w.records * scale))) for w in chosen)


def keep_systems(workloads: tuple[Workload, ...], systems: list[str]) -> tuple[Workload, ...]:
    """Return the workloads with only the contenders of the named systems; all when none is named.

    Raises:
        UsageError: no contender is left.
    """
    if not systems:
        return workloads
    kept = (
        replace(w, contenders=tuple(c for c in w.contenders if c.system.value in systems)) for w in workloads
    )
    left = tuple(workload for workload in kept if workload.contenders)
    if not left:
        raise UsageError(
            "no contender is left to measure",
            expected="a system that takes part in the workloads",
            seen=", ".join(systems),
            resolve="name other workloads or systems",
        )
    return left
