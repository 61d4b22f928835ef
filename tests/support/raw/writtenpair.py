"""A pair of topics with known faults on two real clusters, and what an audit's course says of them.

Nothing is copied: the target is written as a faulty copy would have left it. The audit reads both, through
bounds and borders that the test makes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from uuid import UUID

from onceover.audit.checks.result import PartitionResult
from onceover.audit.compare.sides import Sides
from onceover.audit.course.partitions import PairPlan, compare_partitions
from onceover.audit.model import Finding, Mode, Range
from onceover.audit.ranges.bounds import Bounds
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.wiring.flows import open_clusters
from tests.support.flows.replica import Replica
from tests.support.raw.mutations import Content, Expected, Pair
from tests.support.raw.rawkafka import Codec, RawRecord
from tests.support.worlds.contentaudit import InlineWorkers

_BATCH: Final = 9
_TASK_RANGES: Final = 2


@dataclass(frozen=True)
class WrittenPair:
    """Where the records of a pair are.

    Args:
        topic: of the same name on both sides.
        source: offset of each record, by partition; ``target`` and ``aborted`` likewise.
    """

    topic: str
    source: list[list[int]]
    target: list[list[int]]
    aborted: list[list[int]]

    def told(self, pair: Pair, findings: Sequence[Finding]) -> Counter[Expected]:
        """Return findings in the words of the mutations: indices and contents instead of offsets."""
        return Counter(self._told(pair, each) for each in findings)

    def _told(self, pair: Pair, finding: Finding) -> Expected:
        assert finding.source is not None and finding.target is not None
        assert finding.payload is None, "nobody asked for payload"
        source = seen = None
        number, offset = finding.source.partition, finding.source_offset
        if offset is not None:
            known = self.aborted if offset in self.aborted[number] else self.source
            source = (number, known[number].index(offset))
        number, offset = finding.target.partition, finding.target_offset
        if offset is not None:
            seen = pair.target[number][self.target[number].index(offset)]
        return Expected(finding.kind, source, number, seen, finding.field)


def write_pair(replica: Replica, pair: Pair) -> WrittenPair:
    """Write both sides of a pair; the source with its aborted transactions between."""
    topic = replica.topic("mutated", len(pair.source))
    replica.target_topic(topic, len(pair.target))
    source: list[list[int]] = [[] for _ in pair.source]
    aborted: list[list[int]] = [[] for _ in pair.source]
    stops = sorted({before for hidden in pair.aborted for before, _ in hidden})
    for begin, end in pairwise([0, *stops, max(map(len, pair.source))]):
        if begin:
            transaction = replica.source.transaction(topic)
            for number, hidden in enumerate(pair.aborted):
                raw = [_raw(content) for before, content in hidden if before == begin]
                first = transaction.send(number, raw)
                aborted[number] += range(first, first + len(raw))
            transaction.abort()
        for number, contents in enumerate(pair.source):
            source[number] += _write(replica, topic, number, contents[begin:end], on_target=False)
    target = [
        _write(replica, topic, number, contents, on_target=True)
        for number, contents in enumerate(pair.target)
    ]
    return WrittenPair(topic, source, target, aborted)


def _write(
    replica: Replica, topic: str, number: int, contents: Sequence[Content], *, on_target: bool
) -> list[int]:
    """Write batches of alternating codecs, cut at the same places on both sides where nothing differs."""
    offsets: list[int] = []
    producer = replica.target if on_target else replica.source
    for index in range(0, len(contents), _BATCH):
        raw = [_raw(content) for content in contents[index : index + _BATCH]]
        codec = list(Codec)[(number + index // _BATCH) % len(Codec)]
        # Every third partition is compressed otherwise on the target: decoded, and no finding.
        first = producer.plain(topic, number, raw, Codec.NONE if on_target and number % 3 == 0 else codec)
        offsets += range(first, first + len(raw))
    return offsets


def _raw(content: Content) -> RawRecord:
    return RawRecord(content.key, content.value, content.headers, content.timestamp_ms)


def audit_pair(
    replica: Replica, written: WrittenPair, rng: random.Random | None = None
) -> list[PartitionResult]:
    """Return what an audit sees, partition by partition.

    Args:
        rng: cuts the partitions into ranges at borders that may be wrong by a few records, as a damaged
            offset map would propose them; None for one range each.
    """
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        ids = _topic_id(source, written.topic), _topic_id(target, written.topic)
        plans = []
        for number in range(len(written.source)):
            tp = TopicPartition(written.topic, number)
            ends = written.source[number][-1] + 1, written.target[number][-1] + 1
            bounds = Bounds(tp, tp, ids, Mode.RECORDS, 0, ends[0], 0, ends[1])
            plans.append(PairPlan(bounds, tuple(_ranges(written, bounds, number, rng))))
        return compare_partitions(plans, InlineWorkers(Sides(source, target)), _TASK_RANGES)


def _topic_id(cluster: Cluster, topic: str) -> UUID:
    return cluster.retry(lambda: cluster.topics([topic]))[topic].topic_id


def _ranges(written: WrittenPair, bounds: Bounds, number: int, rng: random.Random | None) -> list[Range]:
    here, there = written.source[number], written.target[number]
    borders = [(0, 0), (bounds.source_to, bounds.target_to)]
    if rng is not None:
        for index in range(12, min(len(here), len(there)) - 12, 12):
            place = index + rng.choice([-3, 0, 0, 0, 2])
            borders.insert(-1, (here[index], there[place]))
    return [
        Range(bounds.source, one[0], other[0], bounds.target, one[1], other[1])
        for one, other in pairwise(borders)
    ]
