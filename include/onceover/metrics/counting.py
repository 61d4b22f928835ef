"""What a flow has committed, counted from the receipts in its offset map. Pure.

Invariant: a counter never falls while this object lives, whoever leads the flow; and no clock decides what is
counted. Upkeep writes receipts again when it merges them: those end at or before a source offset that was
counted already, and count for nothing. So do those of a topic that was no longer copied at the first look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from onceover.metrics import catalogue as m
from onceover.metrics.figures import Figures
from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord


class _Pair(NamedTuple):
    source: TopicPartition
    target: TopicPartition


class _Transaction(NamedTuple):
    lane: int
    generation: int
    batch: int
    attempt: int
    commit_ms: int


class ReceiptCounts:
    """Counts of one flow. Not thread-safe."""

    def __init__(self) -> None:
        self.passed_over = 0
        self._records: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._lane_records: Counter[int] = Counter()
        self._lane_bytes: Counter[int] = Counter()
        self._lane_fetched: Counter[int] = Counter()
        self._lane_transactions: Counter[int] = Counter()
        # Up to where receipts were counted, and the newest transaction of each lane.
        self._ends: dict[_Pair, int] = {}
        self._fetched: dict[TopicPartition, int] = {}
        # Positions of the look before, also of what is copied no more: upkeep goes on merging its receipts.
        self._bases: dict[TopicPartition, int] = {}
        self._later: Mapping[TopicPartition, int] = {}
        self._copied: set[str] = set()
        # Receipts of what has never had a position: enrolled while a look was under way, or copied no more.
        self._strange: list[MapRecord] = []
        # A transaction has receipts in several partitions of the map, which two looks may see it in.
        self._before: set[_Transaction] = set()
        self._now: set[_Transaction] = set()

    def stand_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Take down the positions of a look, *before* the receipts behind the look before are counted.

        A position that was taken back, by hand, takes back what counts as counted: it is copied again.
        """
        bases = self._bases
        for source, position in positions.items():
            if position < bases.get(source, position):
                self._ends = {pair: end for pair, end in self._ends.items() if pair.source != source}
                self._fetched[source] = position
        self._later = dict(positions)
        strange, self._strange = self._strange, []
        self._count(record for record in strange if record.source in positions)

    def count(self, records: Iterable[MapRecord]) -> None:
        """Count receipts, in the order of their log.

        Those of a partition that has never had a position wait for the next look: by then it has one, or what
        upkeep merges there was counted by nobody who is still there.
        """
        told = list(records)
        known = self._bases.keys() | self._later.keys()
        self._strange += [record for record in told if record.source not in known]
        self._count(record for record in told if record.source in known)

    def _count(self, records: Iterable[MapRecord]) -> None:
        for record in records:
            pair = _Pair(record.source, record.target)
            known = self._ends.get(pair, self._bases.get(record.source, -1))
            if record.source_end <= known:
                continue
            self._ends[pair] = record.source_end
            self._records[record.source.topic] += record.records
            self._bytes[record.source.topic] += record.bytes
            self._lane_records[record.lane] += record.records
            self._lane_bytes[record.lane] += record.bytes
            self._count_fetched(record)
            self._count_transaction(record)

    def looked(self) -> None:
        """End a look: what it saw is where the next one begins."""
        self._bases.update(self._later)
        self._copied = {source.topic for source in self._later}
        self._before, self._now = self._now, set()

    def _count_fetched(self, record: MapRecord) -> None:
        """Several pairs of one source partition, with a handler, cover the same source offsets."""
        before = max(record.source_start, self._fetched.get(record.source, record.source_start))
        self._lane_fetched[record.lane] += max(0, record.source_end - before)
        self._fetched[record.source] = max(before, record.source_end)

    def _count_transaction(self, record: MapRecord) -> None:
        made = _Transaction(record.lane, record.generation, record.batch, record.attempt, record.commit_ms)
        if made not in self._before and made not in self._now:
            self._lane_transactions[record.lane] += 1
        self._now.add(made)

    def add_to(self, figures: Figures, flow: str, most_topics: int) -> None:
        """Add the counters to a flow's samples; none of topics where there are too many of them.

        A topic that is not among the positions of the last look is not copied any more.
        """
        topics = [topic for topic in self._records if topic in self._copied]
        if len(topics) <= most_topics:
            for topic in topics:
                figures.put(m.TOPIC_RECORDS, self._records[topic], flow, topic)
                figures.put(m.TOPIC_BYTES, self._bytes[topic], flow, topic)
        for lane in self._lane_records:
            figures.put(m.LANE_RECORDS, self._lane_records[lane], flow, lane)
            figures.put(m.LANE_BYTES, self._lane_bytes[lane], flow, lane)
            figures.put(m.LANE_FETCHED, self._lane_fetched[lane], flow, lane)
            figures.put(m.LANE_COMMITTED, self._lane_transactions[lane], flow, lane)
        figures.put(m.RECEIPTS_PASSED, self.passed_over, flow)
