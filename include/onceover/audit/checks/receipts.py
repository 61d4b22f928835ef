"""Are the receipts of a pair of partitions continuous, without overlap, and do they add up? Pure.

Invariant: receipts are what the flow says it did. They are compared with each other, and their sum with the
records that were counted on the target; nothing is concluded from a receipt about a record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from onceover.audit.checks.evidence import Commit
from onceover.audit.checks.result import Area, Check, PartitionResult
from onceover.audit.model import Mode, Range, Side
from onceover.wire.offsetmap import MapRecord

CONTINUOUS: Final = "continuous_without_overlap"
ADDS_UP: Final = "adds_up"
# More breaks of one partition say nothing new.
MAX_BREAKS: Final = 20


def check_receipts(
    result: PartitionResult, records: Iterable[MapRecord], *, sent_ahead: bool = False
) -> list[Check]:
    """Return what is right and wrong with the receipts in the scope of a partition's audit.

    Args:
        result: what the audit saw of the partition.
        records: the map records of the partition and its counterpart, in order; gone through once.
        sent_ahead: what an operator went past may be on the target without a receipt, as at_least_once may
            send it before its progress.
    """
    scope = _in_scope(records, result)
    first = next(scope, None)
    # What the map has forgotten cannot add up.
    known = result.source_to if first is None else first.source_start
    counted = [
        digest
        for digest in result.digests
        if digest.side is Side.TARGET and digest.range.source_from >= min(known, result.source_to)
    ]
    spans = _joined(digest.range for digest in counted)
    breaks: list[Check] = []
    receipts = claimed = 0
    unspoken = sum(end - begin for begin, end in spans) if sent_ahead else 0
    before: MapRecord | None = None
    for record in () if first is None else chain((first,), scope):
        if before is not None:
            breaks += _breaks(result, before, record)
        receipts, claimed, before = receipts + 1, claimed + _within(record, spans), record
        unspoken -= _shared(record, spans) if sent_ahead else 0
    whole = Check(
        area=Area.RECEIPTS,
        name=CONTINUOUS,
        source=result.source,
        expected="no gap, no overlap",
        seen=f"{len(breaks)} breaks in {receipts} receipts" if breaks else f"{receipts} receipts in a row",
        ok=not any(each.ok is False for each in breaks),
    )
    return [
        whole,
        *breaks[:MAX_BREAKS],
        *_sum(result, claimed, sum(digest.records for digest in counted), unspoken),
    ]


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the receipts of a pair say in short.

    Args:
        reached: source offset up to which they speak; None when there are none.
        copied: source offset behind the last record that they say was copied; None without one.
        target_ends: target offset behind each receipt's last record, rising; ``commit_ms`` when it came.
        commits: the latest, in their order.
    """

    reached: int | None
    copied: int | None
    target_ends: tuple[int, ...]
    commit_ms: tuple[int, ...]
    commits: tuple[Commit, ...]

    def committed_after(self, target_offset: int) -> int:
        """Return when the record at or after a target offset came, in ms since 1970; 0 for none."""
        place = bisect_right(self.target_ends, target_offset)
        return self.commit_ms[place] if place < len(self.commit_ms) else 0


def ledger(records: Iterable[MapRecord], source_from: int, kept: int) -> Ledger:
    """Return the receipts in short.

    Args:
        records: of one pair, in order.
        source_from: commits that end before it are left out of ``commits``.
        kept: how many commits are kept, at most.
    """
    reached: int | None = None
    copied: int | None = None
    ends: list[int] = []
    times: list[int] = []
    commits: deque[Commit] = deque(maxlen=kept)
    for record in records:
        reached = max(reached or 0, record.source_end)
        if record.records:
            copied = max(copied or 0, record.segments[-1].source_end)
            ends.append(record.target_end)
            times.append(record.commit_ms)
            if record.source_end > source_from:
                commits.append(Commit(record.source, record.source_end, record.records, record.commit_ms))
    return Ledger(reached, copied, tuple(ends), tuple(times), tuple(commits))


def _in_scope(records: Iterable[MapRecord], result: PartitionResult) -> Iterator[MapRecord]:
    for record in records:
        if record.source_start >= result.source_to:
            return
        if record.source_end > result.source_from:
            yield record


def _breaks(result: PartitionResult, before: MapRecord, after: MapRecord) -> Iterator[Check]:
    if after.source_start > before.source_end:
        why = "no receipt speaks of what lies between: an operator went past it"
        yield _break(result, before, after, None, why)
    elif after.source_start < before.source_end:
        yield _break(result, before, after, False, "two receipts claim the same source offsets")
    elif after.target_start < before.target_end:
        yield _break(result, before, after, False, "two receipts claim the same target offsets")


def _break(result: PartitionResult, before: MapRecord, after: MapRecord, ok: bool | None, why: str) -> Check:
    return Check(
        area=Area.RECEIPTS,
        name=CONTINUOUS,
        source=result.source,
        expected=f"source offset {before.source_end}, target offset {before.target_end} or later",
        seen=f"source offset {after.source_start}, target offset {after.target_start}",
        ok=ok,
        offset=before.source_end,
        detail=why,
    )


def _sum(result: PartitionResult, claimed: int, seen: int, unspoken: int) -> Iterator[Check]:
    """Yield whether the receipts' records are as many as were counted on the target.

    Compaction removes records after they were counted, and a handler may write into other partitions: of
    these the receipts cannot add up to what one partition holds.

    Args:
        unspoken: source offsets that no receipt speaks of and that may be on the target all the same.
    """
    if result.mode is Mode.RECORDS and result.digests:
        ok: bool | None = claimed == seen
        detail = "" if ok else "receipts, and records counted on the target"
        if claimed < seen <= claimed + unspoken:
            ok, detail = None, "records that an operator went past may have been sent before that"
        yield Check(
            area=Area.RECEIPTS,
            name=ADDS_UP,
            source=result.source,
            expected=f"{claimed} records",
            seen=f"{seen} records",
            ok=ok,
            detail=detail,
        )


def _joined(ranges: Iterable[Range]) -> list[tuple[int, int]]:
    """Return the source offsets of ranges as stretches that neither touch nor overlap, in order."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted((each.source_from, each.source_to) for each in ranges):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _shared(record: MapRecord, spans: Sequence[tuple[int, int]]) -> int:
    """Return how many source offsets of a receipt lie in the stretches."""
    return sum(max(0, min(record.source_end, end) - max(record.source_start, begin)) for begin, end in spans)


def _within(record: MapRecord, spans: Sequence[tuple[int, int]]) -> int:
    """Return how many records of a receipt lie in the stretches."""
    near = [(b, e) for b, e in spans if b < record.source_end and e > record.source_start]
    if len(near) == 1 and near[0][0] <= record.source_start and record.source_end <= near[0][1]:
        return record.records
    return sum(
        max(0, min(segment.source_end, end) - max(segment.source, begin))
        for begin, end in near
        for segment in record.segments
    )
