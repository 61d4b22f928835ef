"""A model of a flow's offset map: what became of every source offset, and the topic that says so.

The topic is played record by record: lanes append, generations skip and repeat, upkeep merges, the broker
compacts and expires. What the map should answer is worked out from single offsets, without records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from onceover.model import TopicPartition
from onceover.positions.merge import MergeRules, plan_runs
from onceover.positions.reader import Chunk, MapEntry, Point
from onceover.positions.store import MapStore
from onceover.wire.offsetlookup import arrange, join
from onceover.wire.offsetmap import MapRecord, SegmentBuilder

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("east.orders", 0)


class Fate(NamedTuple):
    """What became of one source offset: its target offset, if it was kept, in which generation."""

    target: int | None
    generation: int


@dataclass
class MapLog:
    """One pair of partitions and the map topic's partition that speaks of it."""

    source: int = 0
    target: int = 0
    end: int = 0
    generation: int = 1
    fates: dict[int, Fate] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    entries: list[MapEntry] = field(default_factory=list)
    log_start: int = 0
    next_offset: int = 0

    # ---- what happens

    def transaction(self, kept: Sequence[bool], marker: int) -> None:
        """A lane copies source offsets, of which it keeps some, and commits."""
        start, builder = self.source, SegmentBuilder()
        # What was copied before and is now copied again: the newer copy counts.
        for offset in [o for o in self.fates if o >= start]:
            del self.fates[offset]
        self.starts[start] = target_start = self.end
        for keep in kept:
            self.fates[self.source] = Fate(self.target if keep else None, self.generation)
            if keep:
                builder.add(self.source, self.target, 1)
                self.target += 1
                self.end = self.target
            self.source += 1
        self.target += marker
        self.ends[self.source] = self.end
        record = MapRecord(
            source=SOURCE,
            target=TARGET,
            source_start=start,
            source_end=self.source,
            target_start=target_start,
            segments=builder.build(),
            bytes=7 * len(kept),
            generation=self.generation,
            lane=0,
            batch=0,
            attempt=0,
            begin_ms=1000 + self.next_offset,
            commit_ms=1001 + self.next_offset,
        )
        self._append(record)

    def start(self, move: int) -> None:
        """A new generation goes on ``move`` offsets further on or back."""
        self.generation += 1
        self.source = max(0, self.source + move)

    def merge(self, max_segments: int, beside: Sequence[tuple[Sequence[bool], int]] = ()) -> None:
        """Upkeep rewrites what is joined, while a lane commits transactions ``beside`` it."""
        rules = MergeRules(max_segments=max_segments, min_age_ms=0)
        runs = list(plan_runs(self.arranged(), self.source, rules, 1 << 40))
        for kept, marker in beside:
            self.transaction(kept, marker)
        for run in runs:
            self._append(join(run))
        for run in runs:
            for part in run[1:]:
                self.entries.append(MapEntry(self.next_offset, part.key, None))
                self.next_offset += 1

    def compact(self, *, tombstones: bool) -> None:
        """The broker keeps the last record of each key, and tombstones for a while."""
        last = {entry.key: entry.offset for entry in self.entries}
        self.entries = [
            e for e in self.entries if last[e.key] == e.offset and not (tombstones and e.record is None)
        ]

    def expire(self, count: int) -> None:
        """The broker deletes the oldest offsets."""
        self.log_start = min(self.next_offset, self.log_start + count)
        self.entries = [e for e in self.entries if e.offset >= self.log_start]

    def feed(self, store: MapStore, size: int) -> None:
        """Bring a store up to date as ``MapIndex`` does, in chunks of ``size`` entries."""
        at = store.point(0)
        if at is not None and at.offset < self.log_start:
            store.forget(0)
            at = None
        while (begin := at or Point(self.log_start)).offset < self.next_offset:
            found = [e for e in self.entries if e.offset >= begin.offset][:size]
            after = found[-1].offset + 1 if len(found) == size else self.next_offset
            assert store.apply(Chunk(0, found, after, 0), at)
            at = store.point(0)
        store.expire(0, self.log_start)

    # ---- what it says

    def arranged(self) -> list[MapRecord]:
        """What a reader of the whole topic makes of it."""
        last = {entry.key: entry.record for entry in self.entries}
        return arrange(record for record in last.values() if record is not None)

    def covered(self) -> list[int]:
        """The source offsets that the topic still knows about, in order."""
        records = [e.record for e in self.entries if e.record is not None]
        return sorted(
            offset
            for offset, fate in self.fates.items()
            if any(
                r.generation == fate.generation and r.source_start <= offset < r.source_end for r in records
            )
        )

    def forwards(self, offset: int) -> int | None:
        """What a source offset translates to; None is 'not covered'."""
        covered = self.covered()
        known = set(covered)
        if not covered or (offset not in known and offset != covered[-1] + 1):
            return None
        at = offset
        while at in known:
            target = self.fates[at].target
            if target is not None:
                return min(target, self._before(offset, known))
            at += 1
        return self._before(offset, known) if at == covered[-1] + 1 else None

    def _before(self, offset: int, known: set[int]) -> int:
        """Where the kept record before ``offset`` ends; without one, where the stretch starts."""
        at = offset - 1
        while at in known:
            target = self.fates[at].target
            if target is not None:
                return target + 1
            at -= 1
        return self.starts[at + 1]

    def backwards(self, offset: int) -> int | None:
        """What a target offset translates to; None is 'not covered'."""
        covered = self.covered()
        if not covered:
            return None
        known = set(covered)
        kept = [(target, s) for s in covered if (target := self.fates[s].target) is not None]
        for target, source in kept:
            if target >= offset:
                start = self._stretch(source, known)
                return start if start in known and self._before_or_in(start, offset, known) else None
        source = covered[-1] + 1
        start = self._stretch(source, known)
        inside = self._before_or_in(start, offset, known) and offset <= self.ends[source]
        return start if inside else None

    def _stretch(self, source: int, known: set[int]) -> int:
        """The source offset after the kept record before ``source``, or where the stretch starts."""
        at = source - 1
        while at in known and self.fates[at].target is None:
            at -= 1
        return at + 1

    def _before_or_in(self, start: int, offset: int, known: set[int]) -> bool:
        """Whether a stretch without an earlier kept record begins at or before the target offset."""
        return start - 1 in known or self.starts[start] <= offset

    def _append(self, record: MapRecord) -> None:
        self.entries.append(MapEntry(self.next_offset, record.key, record))
        self.next_offset += 1
