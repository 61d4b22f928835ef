"""From a snapshot to the plans of an audit: bounds, ranges, and for a flow with a handler who claims what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

from onceover.audit.course.partitions import PairPlan
from onceover.audit.model import Mode, Reason, Unverifiable
from onceover.audit.ranges.bounds import Bounds, ahead, bound, lapsed, surplus
from onceover.audit.ranges.diverted import CopyBegun, DeadLetters, Diverted
from onceover.audit.ranges.logs import PartitionLog, until
from onceover.audit.ranges.snapshot import AuditSnapshot, PartitionSnapshot
from onceover.audit.ranges.spreading import spread, union
from onceover.audit.ranges.tasks import Task
from onceover.audit.ranges.tiling import Copied, Hole, StoredPair, borders, holes, tile
from onceover.audit.records.refusals import Withheld
from onceover.model import TopicPartition
from onceover.positions.store import MapStore
from onceover.wire.offsetlookup import clipped
from onceover.wire.offsetmap import MapRecord

# Between two machines' clocks at most: who enrols a topic, or begins its copy, need not be who diverts its
# first records.
_CLOCKS_MS: Final = 60_000


class PlanInputs(NamedTuple):
    """What plans are made from.

    Args:
        snapshot: what was seen of both sides.
        store: the offset map; None when the flow has none.
        diverted: what the dead-letter topics tell.
        from_watermark: go on where earlier audits ended.
        range_bytes: of a range, about.
        handled: the flow has a handler.
        handler_changed: the flow file is not the one that the flow was started with.
    """

    snapshot: AuditSnapshot
    store: MapStore | None
    diverted: Diverted
    from_watermark: bool
    range_bytes: int
    handled: bool
    handler_changed: bool

    def plans(self) -> list[PairPlan]:
        """Return one plan for each partition of the snapshot, in its order."""
        return [
            self._handled(each) if self.handled else self._plain(each) for each in self.snapshot.partitions
        ]

    def surplus_plans(self) -> Iterator[PairPlan]:
        """Yield plans for what is on the target and claimed by nobody."""
        if self.handled:
            yield from self._unclaimed()
            return
        for seen in self.snapshot.partitions if self.snapshot.repeats else ():
            yield from self._ahead(seen)
        for target, (log, source) in self.snapshot.surplus.items():
            if target.topic in self.snapshot.promoted:
                continue  # added for its clients: nobody adds partitions to a copy
            bounds = surplus(source, log.topic_id, target, log)
            if not bounds.empty:
                yield PairPlan(bounds, tuple(tile(bounds, ())))

    # ---- one to one

    def _plain(self, seen: PartitionSnapshot) -> PairPlan:
        pair = self._pair(seen, seen.target)
        bounds = self._bounds(seen, pair)
        # The latest value of a key may be anywhere: a compacted partition is one range.
        proposed = borders(pair.records()) if bounds.mode is Mode.RECORDS else ()
        return PairPlan(
            bounds,
            tuple(tile(bounds, proposed, self.range_bytes)),
            holes=_holes(seen, pair, alone=True),
            cleaned=_is_compacted(seen),
            repeats=self.snapshot.repeats,
            untimed=seen.untimed,
            letters=self._letters(seen),
            log_start=seen.source_log.start if seen.source_log is not None else bounds.source_from,
        )

    def _ahead(self, seen: PartitionSnapshot) -> Iterator[PairPlan]:
        """Yield a plan for what is behind a position: sent before its progress, or nobody's."""
        if not seen.is_there or seen.target_end is None:
            return
        pair = self._pair(seen, seen.target)
        bounds = ahead(seen, self._bounds(seen, pair))
        if not bounds.empty:
            yield PairPlan(
                bounds,
                tuple(tile(bounds, ())),
                untimed=seen.untimed,
                repeats=True,
                lapsed=lapsed(seen, _sent_from(seen, pair)),
                log_start=bounds.source_from,
            )

    def _bounds(self, seen: PartitionSnapshot, pair: StoredPair) -> Bounds:
        options = {"handled": self.handled, "repeats": self.snapshot.repeats}
        if self.handled and seen.away is None:
            seen = replace(seen, away=self._away_beside(seen))
        return bound(seen, pair, from_watermark=self.from_watermark, **options)

    def _away_beside(self, seen: PartitionSnapshot) -> Withheld | None:
        """Return why not all target partitions can be looked at in which a handler may have put records."""
        of_topic = (each for each in self.snapshot.partitions if each.target.topic == seen.target.topic)
        paired = (each.away for each in of_topic if each.away and each.target_log is None)
        others = (why for tp, why in self.snapshot.untold.items() if tp.topic == seen.source.topic)
        return next(chain(paired, others), None)

    def _pair(self, seen: PartitionSnapshot, target: TopicPartition) -> StoredPair:
        return StoredPair(self.store, seen.source, target, seen.since)

    def _letters(self, seen: PartitionSnapshot) -> DeadLetters:
        pair = self._pair(seen, seen.target)
        return self.diverted.of(seen.source, _begun(seen, pair), pair.records)

    # ---- through a handler

    def _handled(self, seen: PartitionSnapshot) -> PairPlan:
        logs = self._target_logs(seen.target.topic)
        claimed = {target: list(self._pair(seen, target).records()) for target in logs}
        if self._have_lost(seen, claimed, logs):
            seen = replace(seen, watermark=None)
        bounds = self._bounds(seen, self._pair(seen, seen.target))
        if bounds.mode is not Mode.HANDLER:
            return PairPlan(bounds, ())
        bounds = _mapped(bounds, claimed.get(seen.target, ()))
        spreading = spread(bounds, claimed, logs)
        ranges = spreading.ranges if spreading.bounds.source_from < spreading.bounds.source_to else ()
        return PairPlan(
            spreading.bounds,
            ranges,
            holes=_holes(seen, self._pair(seen, seen.target), alone=False),
            cleaned=_is_compacted(seen),
            repeats=self.snapshot.repeats,
            untimed=seen.untimed,
            letters=self._letters(seen),
            spreading=self._task(seen, len(logs)),
            claims=spreading.claims if ranges else (),
        )

    def _have_lost(
        self,
        seen: PartitionSnapshot,
        claimed: Mapping[TopicPartition, Sequence[MapRecord]],
        logs: Mapping[TopicPartition, PartitionLog],
    ) -> bool:
        """Tell whether a log of the target has lost at its end what a handler may have put there.

        What was proven of a source partition may lie in any of them.
        """
        of_topic = (each for each in self.snapshot.partitions if each.target.topic == seen.target.topic)
        return any(each.parted_at[1] is not None for each in of_topic) or any(
            # Not those that were copied since the logs were asked where they end.
            record.source_end <= (seen.position or 0) and record.target_end > logs[target].end
            for target, records in claimed.items()
            for record in records
        )

    def _unclaimed(self) -> Iterator[PairPlan]:
        by_topic: dict[str, list[PartitionSnapshot]] = {}
        for seen in self.snapshot.partitions:
            by_topic.setdefault(seen.target.topic, []).append(seen)
        for topic, group in by_topic.items():
            if not all(seen.is_there for seen in group):
                continue
            logs = self._target_logs(topic)
            for target, log in logs.items():
                records = [list(self._pair(seen, target).records()) for seen in group]
                bounds = self._surplus_bounds(group, target, log, records)
                if not bounds.empty:
                    yield PairPlan(
                        bounds,
                        tuple(tile(bounds, ())),
                        spreading=self._seeking(group, len(logs)),
                        claims=(union(map(_of_what_was_there, group, records)),),
                        untimed=group[0].untimed,
                        repeats=self.snapshot.repeats,
                        lapsed=next(filter(None, map(_forgotten, group)), None),
                    )

    def _seeking(self, group: Sequence[PartitionSnapshot], target_partitions: int) -> Task:
        """Return the task that looks at what nobody claims; at least once it may be made of any partition."""
        task = self._task(group[0], target_partitions, unclaimed=True)
        if not self.snapshot.repeats:
            return task
        return replace(task, origins=tuple((seen.source.partition, seen.position or 0) for seen in group))

    def _surplus_bounds(
        self,
        group: Sequence[PartitionSnapshot],
        target: TopicPartition,
        log: PartitionLog,
        records: Sequence[Sequence[MapRecord]],
    ) -> Bounds:
        """Return where a target partition is looked through for what nobody claims.

        From its beginning, unless records may rightly be there that the map does not know: of before a flow
        that began later than the source or again, or of map records that have expired.
        """
        source = TopicPartition(group[0].source.topic, target.partition)
        end = log.stable
        if any(seen.moved for seen in group):
            # What was copied while the ends were read may not be in the map that was read.
            end = min([end, *(each[-1].target_end for each in records if each)])
        begin = log.start
        for seen, each in zip(group, records, strict=True):
            if seen.start or seen.since or not _reaches_back(seen, self._pair(seen, seen.target)):
                begin = max(begin, each[0].target_start if each else end)
        ids = group[0].enrolled[0], log.topic_id
        return Bounds(source, target, ids, Mode.HANDLER, 0, 0, min(begin, end), end)

    def _task(self, seen: PartitionSnapshot, target_partitions: int, *, unclaimed: bool = False) -> Task:
        return Task(
            seen.enrolled,
            (),
            unclaimed=unclaimed,
            target_partitions=target_partitions,
            handler_changed=self.handler_changed,
        )

    def _target_logs(self, topic: str) -> dict[TopicPartition, PartitionLog]:
        beside = {tp: log for tp, (log, _) in self.snapshot.surplus.items() if tp.topic == topic}
        found = {tp: self._as_copied(tp, log) for tp, log in beside.items()}
        for seen in self.snapshot.partitions:
            if seen.target.topic == topic and seen.target_log is not None:
                found[seen.target] = seen.target_log
        return dict(sorted(found.items()))

    def _as_copied(self, target: TopicPartition, log: PartitionLog) -> PartitionLog:
        """Return the log of a partition without a counterpart; where clients write to it, what was copied.

        Where a topic was promoted is on record of the others alone: here the map tells.
        """
        if target.topic not in self.snapshot.promoted:
            return log
        group = (seen for seen in self.snapshot.partitions if seen.target.topic == target.topic)
        ends = (each.target_end for seen in group for each in self._pair(seen, target).records())
        return until(log, max(ends, default=log.start))


def _is_compacted(seen: PartitionSnapshot) -> bool:
    return any(log is not None and log.compacted for log in (seen.source_log, seen.target_log))


def _holes(seen: PartitionSnapshot, pair: StoredPair, *, alone: bool) -> tuple[Hole, ...]:
    """Return what an operator skipped. Nobody else may: without his hand it is missing."""
    if not seen.by_hand:
        return ()
    begins = alone and seen.target_end == 0
    return tuple(holes(pair.records(), Copied(seen.start, seen.position or 0, alone, begins)))


def _forgotten(seen: PartitionSnapshot) -> Reason | None:
    """Return why the source no longer holds some of what was copied; None where it holds all of it."""
    return Reason.COMPACTED_HISTORY if _is_compacted(seen) else lapsed(seen, seen.start)


def _sent_from(seen: PartitionSnapshot, pair: StoredPair) -> int:
    """Return the first source offset whose record can have been sent without its progress."""
    position = seen.position or 0
    if not seen.by_hand:
        return position
    # It may have been sent before an operator told the flow to go past it.
    return min(position, max((each.source_end for each in pair.records()), default=seen.start))


def _begun(seen: PartitionSnapshot, pair: StoredPair) -> CopyBegun:
    """Return of which topic the partition is copied now, and since when, or some time before that.

    Where it may have been copied again, also between the same topics, the map's record of its start tells,
    unless that has expired: 0 is before all.
    """
    source_id = seen.enrolled[0]
    if not (seen.since or seen.by_hand):
        return CopyBegun(source_id, 0, seen.enrolled_ms - _CLOCKS_MS)
    first = next((each for each in pair.records() if each.source_end > seen.start), None)
    if first is None or first.source_start > seen.start:
        return CopyBegun(source_id, 0)
    return CopyBegun(source_id, first.begin_ms - _CLOCKS_MS)


def _of_what_was_there(seen: PartitionSnapshot, records: Sequence[MapRecord]) -> Sequence[MapRecord]:
    """Return the map records without those of what the source has lost at its end: nobody claims its copies.

    Only where it is shorter than what was copied: those of what was copied since it was looked at are right.
    """
    log, position = seen.source_log, seen.position
    if log is None or position is None or log.end >= position:
        return records
    return [each for record in records if (each := clipped(record, log.end, record.target_end)) is not None]


def _reaches_back(seen: PartitionSnapshot, pair: StoredPair) -> bool:
    """Tell whether the map begins where the copy did; without one, whether nothing was copied."""
    first = next(pair.records(), None)
    begin = seen.position if first is None else first.source_start
    return begin is None or begin <= seen.start


def _mapped(bounds: Bounds, records: Sequence[MapRecord]) -> Bounds:
    """Return the bounds from where the map speaks: without it nobody knows whose a record is."""
    begin = records[0].source_start if records else bounds.source_to
    begin = min(begin, bounds.source_to)
    if begin <= bounds.source_from:
        return bounds
    proven = bounds.source_from if bounds.watermark is None else bounds.watermark.offset
    unsaid = max(bounds.source_from, proven)
    gaps = bounds.unverifiable
    if unsaid < begin:
        text = f"the offset map reaches back to source offset {begin} only"
        gaps += (Unverifiable(Reason.NOT_IN_MAP, bounds.source, unsaid, begin, begin - unsaid, text),)
    return replace(bounds, source_from=begin, unverifiable=gaps)
