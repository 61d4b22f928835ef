"""Which records of a partition can be compared, and why the others cannot. Pure.

Invariant: every source offset from the flow's start (or from what was proven before) to the source's end is
either inside the bounds or named with the reason why it is not (G9); nothing is left out in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import UUID

from onceover.audit.model import Mode, Reason, Unverifiable
from onceover.audit.ranges.logs import PartitionLog
from onceover.audit.ranges.snapshot import PartitionSnapshot
from onceover.audit.records.refusals import Withheld
from onceover.model import TopicPartition
from onceover.state.records.verified import Watermark

_SAYS: Final = {
    Reason.RETENTION: "the {side} no longer holds them: its log begins at {at} by retention",
    Reason.DELETED: "the {side} no longer holds them: its log begins at {at} though nothing expires there",
    Reason.NOT_IN_MAP: "the offset map reaches back to source offset {at} only, and one log begins later "
    "than the copy did",
    Reason.OPEN_TRANSACTION: "they are behind an open transaction of the source, from offset {at} on",
    Reason.NOT_COPIED_YET: "the flow had copied up to offset {at} when the audit began",
    Reason.STOPPED: "the partition is stopped at offset {at}: see `onceover status`",
}
_HIDDEN: Final = "their copies are behind an open transaction of the target, from its offset {at} on"


class PairMap(Protocol):
    """What the offset map says about one pair of partitions. A proposal: nothing is concluded from it."""

    def to_target(self, offset: int) -> int | None:
        """Return the target offset for a source offset; None where it is not covered."""

    def to_source(self, offset: int) -> int | None:
        """Return the source offset for a target offset; None where it is not covered."""

    def first(self, source: int = 0, target: int = 0) -> tuple[int, int] | None:
        """Return where the map first begins, or begins again, at or behind both offsets."""

    def behind(self, offset: int) -> int | None:
        """Return the target offset behind the copies of all source offsets before one; None without any."""

    def again(self, offset: int, target: int) -> int | None:
        """Return the first source offset before ``offset`` whose copy is behind ``target``; None without."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What of one pair of partitions is compared; all ends are exclusive.

    Args:
        ids: topic ids of source and target: only these topics are meant.
        watermark: what was proven before, about these very topics and logs; None for nothing.
        begin: first source offset of the copy: what is proven is proven from there on.
        joins: False where only what came later was asked for, and its place on the target is not known.
    """

    source: TopicPartition
    target: TopicPartition
    ids: tuple[UUID, UUID]
    mode: Mode
    source_from: int
    source_to: int
    target_from: int
    target_to: int
    unverifiable: tuple[Unverifiable, ...] = ()
    watermark: Watermark | None = None
    begin: int = 0
    joins: bool = True

    @property
    def empty(self) -> bool:
        """True when there is nothing to read on either side."""
        return self.source_from >= self.source_to and self.target_from >= self.target_to


def bound(
    seen: PartitionSnapshot, pair_map: PairMap, *, from_watermark: bool, handled: bool, repeats: bool = False
) -> Bounds:
    """Return what of a partition is compared.

    Args:
        seen: what was found out about it.
        pair_map: the offset map's proposals.
        from_watermark: go on where earlier audits ended, where there were any.
        handled: the flow has a handler.
        repeats: delivery is at_least_once: the target may hold more than belongs to the position.
    """
    return _Bounding(seen, pair_map, from_watermark, handled, repeats).bounds()


def ahead(seen: PartitionSnapshot, bounds: Bounds) -> Bounds:
    """Return the bounds of what the target holds behind a position, where data goes before its progress."""
    log = seen.target_log
    begin = end = bounds.target_to
    if log is not None:
        begin, end = max(begin, log.start), max(end, log.stable)
    return replace(bounds, source_from=bounds.source_to, target_from=begin, target_to=end, unverifiable=())


def lapsed(seen: PartitionSnapshot, offset: int) -> Reason | None:
    """Return why the source no longer holds all records from an offset on; None where it does."""
    log = seen.source_log
    return None if log is None or log.start <= offset else _gone(log)


def not_taken_in(source: TopicPartition, log: PartitionLog) -> Unverifiable:
    """Return what is said of a partition that is in the flow's filter and not part of the flow."""
    text = "the flow has not taken the partition in: see `onceover status`"
    return Unverifiable(Reason.NOT_ENROLLED, source, log.start, log.end, log.end - log.start, text)


def untold(source: TopicPartition, withheld: Withheld) -> Unverifiable:
    """Return what is said of a partition without a counterpart of which nobody tells where its log ends."""
    # At least one, so that it counts.
    return Unverifiable(withheld.reason, source, 0, 1, 1, withheld.why)


def surplus(source: TopicPartition, source_id: UUID, target: TopicPartition, log: PartitionLog) -> Bounds:
    """Return the bounds of a target partition that is the copy of none: whatever is there is surplus.

    Args:
        source: the partition that it would be the copy of.
    """
    ids = source_id, log.topic_id
    return Bounds(source, target, ids, Mode.RECORDS, 0, 0, log.start, log.stable)


@dataclass
class _Bounding:
    seen: PartitionSnapshot
    pair_map: PairMap
    from_watermark: bool
    handled: bool
    repeats: bool = False

    def __post_init__(self) -> None:
        self._gaps: list[Unverifiable] = []
        self._joins = True
        self._catches_up = False
        mark = self.seen.watermark
        proven = mark is not None and mark.of(*self.seen.enrolled) and self._still_there(mark)
        self._mark = self._standing(mark) if mark is not None and proven else None

    def _still_there(self, mark: Watermark) -> bool:
        """Tell whether nothing says that a log has lost at its end what was proven.

        An unclean election, or a disk that was put back, may have taken it. The logs are others then: nothing
        of the proof is about them, and all is looked at that they hold now.
        """
        logs = self.seen.source_log, self.seen.target_log
        proven = mark.offset, mark.target_offset
        return all(
            (log is None or at <= log.end) and (parted is None or at <= parted)
            for log, at, parted in zip(logs, proven, self.seen.parted_at, strict=True)
        )

    def _standing(self, mark: Watermark) -> Watermark | None:
        """Return what counts of a watermark, wherever an operator has put the partition since.

        From there on all is looked at that the target holds, what it had held before among it: it may be
        there twice, or an operator had gone past it. Not before the flow has got to where it was: until then
        what it had held would look like nobody's, and what it copies now is compared alone.
        """
        seen = self.seen
        start = 0 if seen.target_log is None else seen.target_log.start
        if not mark.stands(seen.approval, seen.placed, start):
            return None
        begin = self._copied_again_from(mark)
        if begin is None:
            return mark
        alone = not (self.handled or self.repeats)
        if alone and seen.placed is not None and begin <= (seen.position or 0) < mark.offset:
            self._catches_up = True
            return replace(mark, offset=seen.placed.offset, target_offset=seen.placed.target_end)
        at = self.pair_map.behind(begin) if alone else None
        if at is not None and at <= mark.target_offset:
            return replace(mark, offset=begin, target_offset=at)
        # A copy that began at both logs' beginning is compared from there on; of others nobody knows where.
        return None if seen.start == 0 and not seen.since else mark

    def _copied_again_from(self, mark: Watermark) -> int | None:
        """Return the first source offset that was proven and is copied again since; None without one."""
        approval, placed = self.seen.approval, self.seen.placed
        if approval == mark.approval:
            return None
        # Put back, and then ahead of it, as only the map tells.
        again = self.pair_map.again(mark.offset, mark.target_offset)
        put = None if placed is None or placed.offset >= mark.offset else placed.offset
        return min((each for each in (again, put) if each is not None), default=None)

    def bounds(self) -> Bounds:
        seen = self.seen
        if seen.away is not None:
            return self._untold(seen.away)
        here, there = self._log(seen.source_log, 0), self._log(seen.target_log, 1)
        if here is None or there is None or seen.position is None:
            return self._nothing(here, there)
        source_to = min(seen.position, here.stable)
        target_to = there.stable
        if (seen.moved or self.repeats) and seen.target_end is not None:
            target_to = min(seen.target_end, there.stable)
        source_to = self._visible(there, source_to)
        source_from, target_from = self._lower(here, there, source_to, target_to)
        self._upper(here, seen.position)
        source, target = (min(source_from, source_to), source_to), (min(target_from, target_to), target_to)
        return self._made(self._mode(here, there), source, target)

    # ---- where it begins

    def _lower(
        self, here: PartitionLog, there: PartitionLog, source_to: int, target_to: int
    ) -> tuple[int, int]:
        wanted, border = self._wanted()
        source_from = max(wanted, here.start)
        self._gap(_gone(here), wanted, min(source_from, source_to), side="source", at=here.start, gone=True)
        if wanted < source_from and here.start >= source_to:
            # Nothing that was copied is on the source any more: what belongs to it cannot be told apart.
            end = target_to if self.seen.target_end is None else min(self.seen.target_end, target_to)
            return source_to, end
        target_from = border if source_from == wanted else None
        if target_from is None:
            target_from = self.pair_map.to_target(source_from)
        if target_from is None:
            return self._uncovered(source_from, source_to, target_to)
        self._joins = self._goes_on(target_from)
        if there.start > target_from:
            return self._expired(there, source_from, source_to, target_to)
        return source_from, target_from

    def _wanted(self) -> tuple[int, int | None]:
        """Return the first source offset that is asked for, and its target offset where that is certain."""
        seen, mark = self.seen, self._mark
        if seen.asked_from is not None and seen.asked_from > seen.start:
            return seen.asked_from, None
        if self.from_watermark and mark is not None and mark.offset >= seen.start:
            return mark.offset, mark.target_offset
        # Who has placed the copy has written down where the target ended: whatever lies behind is the copy's,
        # or nobody's. With a handler copies of other partitions may lie before it; at least once, what a
        # predecessor had in hand.
        if seen.began is not None and not (self.handled or self.repeats):
            return seen.start, seen.began
        # A flow enrols empty topics only; records before its first would be nobody's. Where the copy
        # began later than the source (seeded, adopted) or again, there may rightly be others before it.
        border = 0 if seen.start == 0 and not seen.since else None
        return seen.start, border

    def _goes_on(self, target_from: int) -> bool:
        """Tell whether nothing on the target lies between what was proven and a time's first record."""
        if self.seen.asked_from is None or self._mark is None or self.handled:
            return True
        return target_from <= self._mark.target_offset

    def _expired(
        self, there: PartitionLog, source_from: int, source_to: int, target_to: int
    ) -> tuple[int, int]:
        """Begin at the first record that the target still holds."""
        source, target = self.pair_map.to_source(there.start), there.start
        if source is None and self.handled:
            return source_from, target  # what each of its target partitions still holds is looked at there
        if source is None:
            # A marker, or nothing any more: where the map goes on, both logs are at the same record.
            source, target = self.pair_map.first(target=there.start) or (source_to, target_to)
        if source <= source_from:
            # Nothing of the copy is gone: whatever is still there is looked at.
            return source_from, there.start
        self._gap(_gone(there), source_from, min(source, source_to), side="target", at=there.start)
        return source, target

    def _uncovered(self, source_from: int, source_to: int, target_to: int) -> tuple[int, int]:
        """Begin where the map goes on; without such a place no target record is known to be meant."""
        self._joins = self.seen.asked_from is None
        source, target = self.pair_map.first(source=source_from) or (source_to, target_to)
        oldest = self.pair_map.first()
        if oldest is not None and oldest[0] < source_from < source_to:
            # A hole: what was skipped there is told apart by its records.
            return source_from, min(target, target_to)
        source, target = max(source_from, min(source, source_to)), min(target, target_to)
        self._gap(Reason.NOT_IN_MAP, source_from, source, at=source)
        return source, target

    # ---- where it ends

    def _visible(self, there: PartitionLog, source_to: int) -> int:
        """Return up to where a reader of the target sees what was copied: a transaction may be open there."""
        end = self.seen.target_end
        if self.handled or end is None or there.stable >= min(end, there.end):
            return source_to
        at = self.pair_map.to_source(there.stable)
        if at is None:
            at = self._hidden_from(there.stable)
        at = min(at, source_to)
        self._add_gap(Reason.OPEN_TRANSACTION, at, source_to, _HIDDEN.format(at=there.stable))
        return at

    def _hidden_from(self, stable: int) -> int:
        """Return the first source offset whose copy may be hidden: the map does not tell of ``stable``."""
        beyond, begin = self.pair_map.first(target=stable), self._wanted()[0]
        if beyond is None:
            return begin
        # A marker lies there; unless the map has forgotten what was copied before, which may be hidden, too.
        last = self.pair_map.to_target(beyond[0] - 1)
        return beyond[0] if last is not None and last <= stable else begin

    def _upper(self, here: PartitionLog, position: int) -> None:
        at = min(position, here.stable)
        pending = Reason.NOT_COPIED_YET if self.seen.stop is None else Reason.STOPPED
        self._gap(pending, at, here.stable, at=at)
        self._gap(Reason.OPEN_TRANSACTION, here.stable, here.end, at=here.stable)

    # ---- what cannot be compared

    def _log(self, log: PartitionLog | None, side: int) -> PartitionLog | None:
        """Return the log, unless another topic bears its name."""
        return log if log is not None and log.topic_id == self.seen.enrolled[side] else None

    @property
    def _unproven_from(self) -> int:
        return self._mark.offset if self._mark else self.seen.start

    def _untold(self, withheld: Withheld) -> Bounds:
        seen, start = self.seen, self._unproven_from
        end = seen.source_log.end if seen.source_log is not None else seen.position or start
        self._add(withheld.reason, start, max(end, start + 1), withheld.why)
        return self._made(Mode.RECORDS, (start, start), (0, 0))

    def _nothing(self, here: PartitionLog | None, there: PartitionLog | None) -> Bounds:
        seen, start = self.seen, self._unproven_from
        if here is not None and there is not None:
            self._add(Reason.STOPPED, start, here.end, "the flow has lost its progress for the partition")
        else:
            end = here.end if here is not None else (seen.position or start)
            side = "source" if here is None else "target"
            text = f"the {side} topic that was copied is gone: deleted, or made anew under its name"
            # At least one, so that it counts: of a topic that is gone nothing is known.
            self._add(Reason.DELETED, start, max(end, start + 1), text)
        return self._made(Mode.RECORDS, (start, start), (0, 0))

    def _gap(
        self, reason: Reason, start: int, end: int, *, at: int, side: str = "", gone: bool = False
    ) -> None:
        self._add_gap(reason, start, end, _SAYS[reason].format(at=at, side=side), gone=gone)

    def _add_gap(self, reason: Reason, start: int, end: int, message: str, *, gone: bool = False) -> None:
        # What was proven before it was lost is no gap in the evidence.
        proven = self._mark.offset if self._mark is not None else start
        if end > max(start, proven):
            self._add(reason, max(start, proven), end, message, gone=gone)

    def _add(self, reason: Reason, start: int, end: int, message: str, *, gone: bool = False) -> None:
        # At least one, so that it counts.
        size = max(1, end - start)
        self._gaps.append(Unverifiable(reason, self.seen.source, start, end, size, message, gone))

    def _made(self, mode: Mode, source: tuple[int, int], target: tuple[int, int]) -> Bounds:
        seen = self.seen
        pair = seen.source, seen.target, seen.enrolled
        joins = self._joins and not self._catches_up
        return Bounds(*pair, mode, *source, *target, tuple(self._gaps), self._mark, seen.start, joins)

    def _mode(self, here: PartitionLog, there: PartitionLog) -> Mode:
        if self.handled:
            return Mode.HANDLER
        return Mode.COMPACTED if here.compacted or there.compacted else Mode.RECORDS


def _gone(log: PartitionLog) -> Reason:
    return Reason.RETENTION if log.expires else Reason.DELETED
