"""A handler's further target partitions: each pair's answer is exact, or the map does not cover it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.model import TopicPartition
from onceover.wire.offsetlookup import Covered, Translated, arrange, bridge, join, mergeable, translate
from onceover.wire.offsetmap import MapRecord, SegmentBuilder
from tests.support.session.examples import examples

SOURCE = TopicPartition("orders", 0)
OWN, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
# What a handler makes of one source record: records for its own partition, and for another one.
FATES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6)
TRANSACTIONS = st.lists(st.tuples(FATES, st.integers(0, 4)), min_size=1, max_size=6)


@dataclass
class Lane:
    """Writes to two target partitions, of which the other is shared with strangers."""

    generation: int = 1
    source: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=lambda: {OWN: 0, OTHER: 0})
    records: dict[TopicPartition, list[MapRecord]] = field(default_factory=lambda: {OWN: [], OTHER: []})
    kept: list[tuple[int, int]] = field(default_factory=list)

    def transaction(self, fates: list[tuple[int, int]], strangers: int) -> None:
        start, builders = self.source, {OWN: SegmentBuilder(), OTHER: SegmentBuilder()}
        self.ends[OTHER] += strangers
        for counts in fates:
            for target, count in zip((OWN, OTHER), counts, strict=True):
                for _ in range(count):
                    builders[target].add(self.source, self.ends[target], 1)
                    if target == OTHER:
                        self.kept.append((self.source, self.ends[target]))
                    self.ends[target] += 1
            self.source += 1
        for target, builder in builders.items():
            segments = builder.build()
            if target == OWN or segments:
                first = segments[0].target if segments else self.ends[target]
                self.records[target].append(self._record(start, target, first, builder))
            self.ends[target] += 1

    def _record(self, start: int, target: TopicPartition, first: int, builder: SegmentBuilder) -> MapRecord:
        return MapRecord(
            source=SOURCE,
            target=target,
            source_start=start,
            source_end=self.source,
            target_start=first,
            segments=builder.build(),
            bytes=1,
            generation=self.generation,
            lane=0,
            batch=0,
            attempt=0,
            begin_ms=start,
            commit_ms=start,
        )

    def runs(self) -> list[Covered]:
        found: list[Covered] = []
        for record in arrange(self.records[OWN]):
            if found and found[-1].end == record.source_start and found[-1].generation == record.generation:
                found[-1] = found[-1]._replace(end=record.source_end)
            else:
                found.append(Covered(record.source_start, record.source_end, record.generation))
        return found

    def merged(self) -> None:
        for target, records in self.records.items():
            self.records[target] = [join(run) for run in mergeable(arrange(records))]

    def expected(self, offset: int) -> int | None:
        """Where the records from ``offset`` on begin in the other partition, by trying each one."""
        best = None
        for source, target in self.kept:
            if source >= offset:
                return target if best is None else min(best, target)
            best = target + 1
        return best


@settings(max_examples=examples(40))
@given(st.lists(TRANSACTIONS, min_size=1, max_size=3), st.booleans())
def test_every_offset_of_a_further_pair_is_exact(generations: list[object], merged: bool) -> None:
    """Stretches that brought it nothing are known to have brought nothing."""
    lane = Lane()
    for transactions in generations:
        for fates, strangers in transactions:  # pyrefly: ignore[not-iterable]
            lane.transaction(fates, strangers)
        lane.generation += 1
    if merged:
        lane.merged()
    records = bridge(lane.records[OTHER], lane.runs())
    if not lane.kept:
        assert records == []
        return
    first = records[0].source_start
    for offset in range(first, lane.source + 1):
        found = translate(records, offset)
        expected = lane.expected(offset)
        assert isinstance(found, Translated)
        assert found.offset == expected, offset
    assert all(not before.source_end > after.source_start for before, after in pairwise(records))


def test_what_a_newer_generation_copied_anew_is_not_believed() -> None:
    lane = Lane()
    lane.transaction([(1, 1)] * 4, 0)
    lane.generation, lane.source = 2, 2
    lane.transaction([(1, 0)] * 4, 0)
    records = bridge(lane.records[OTHER], lane.runs())
    assert [(r.source_start, r.source_end, r.records) for r in records] == [(0, 2, 2), (2, 6, 0)]


def test_without_the_own_pair_nothing_is_known() -> None:
    lane = Lane()
    lane.transaction([(1, 1)], 0)
    assert bridge(lane.records[OTHER], []) == []
