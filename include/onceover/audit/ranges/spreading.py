"""Which target records belong to which source partition, where a handler spreads them. Pure.

Invariant: what the offset map claims is a proposal. Claimed records are compared with what the handler
makes of the source, and what nobody claims is surplus, so that a wrong claim shows and hides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from onceover.audit.model import Mode, Range, Reason, Unverifiable
from onceover.audit.ranges.bounds import Bounds
from onceover.audit.ranges.logs import PartitionLog
from onceover.audit.records.recordhash import AuditedRecord
from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord


class TargetStretch(NamedTuple):
    """Target offsets ``[start, end)`` that hold what comes of one source partition."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SpreadPartition:
    """What is compared of one source partition whose records go to several target partitions.

    Args:
        bounds: what of the source can be compared on every target partition.
        ranges: one for each target partition.
        claims: of each range.
    """

    bounds: Bounds
    ranges: tuple[Range, ...]
    claims: tuple[tuple[TargetStretch, ...], ...]


def spread(
    bounds: Bounds,
    records: Mapping[TopicPartition, Sequence[MapRecord]],
    logs: Mapping[TopicPartition, PartitionLog],
) -> SpreadPartition:
    """Return what is compared of a source partition.

    Args:
        bounds: of the partition and the target partition of its number.
        records: the map's, by target partition; every partition of the target topic is there.
        logs: of the target partitions.
    """
    begin, end = bounds.source_from, bounds.source_to
    for target, found in records.items():
        for record in found:
            for segment in record.segments:
                gone = min(segment.target_end, logs[target].start) - segment.target
                if gone > 0:
                    begin = max(begin, segment.source + gone)
                hidden = segment.target_end - logs[target].stable
                if hidden > 0 and logs[target].stable < logs[target].end:
                    end = min(end, max(segment.source, segment.source_end - hidden))
    cut = _lowered(_raised(bounds, min(begin, bounds.source_to)), end)
    ranges, claims = [], []
    for target, found in records.items():
        mine = tuple(_claims(found, cut.source_from, cut.source_to))
        stable = logs[target].stable
        ends = (min(mine[0].start, stable), min(mine[-1].end, stable)) if mine else (0, 0)
        ranges.append(Range(cut.source, cut.source_from, cut.source_to, target, *ends, Mode.HANDLER))
        claims.append(mine)
    return SpreadPartition(cut, tuple(ranges), tuple(claims))


def _raised(bounds: Bounds, begin: int) -> Bounds:
    if begin <= bounds.source_from:
        return bounds
    text = "a target partition no longer holds what came of them"
    size = begin - bounds.source_from
    gap = Unverifiable(Reason.RETENTION, bounds.source, bounds.source_from, begin, size, text)
    return replace(bounds, source_from=begin, unverifiable=(*bounds.unverifiable, gap))


def _lowered(bounds: Bounds, end: int) -> Bounds:
    if end >= bounds.source_to:
        return bounds
    text = "what came of them is behind an open transaction of a target partition"
    size = bounds.source_to - end
    gap = Unverifiable(Reason.OPEN_TRANSACTION, bounds.source, end, bounds.source_to, size, text)
    begin = min(bounds.source_from, end)
    return replace(bounds, source_from=begin, source_to=end, unverifiable=(*bounds.unverifiable, gap))


def _claims(records: Iterable[MapRecord], begin: int, end: int) -> Iterator[TargetStretch]:
    for record in records:
        for segment in record.segments:
            first, last = max(segment.source, begin), min(segment.source_end, end)
            if first < last:
                yield TargetStretch(
                    segment.target + first - segment.source, segment.target + last - segment.source
                )


def union(records: Iterable[Sequence[MapRecord]]) -> tuple[TargetStretch, ...]:
    """Return everything that is claimed of one target partition, in order."""
    every = sorted(
        TargetStretch(segment.target, segment.target_end)
        for each in records
        for record in each
        for segment in record.segments
    )
    found: list[TargetStretch] = []
    for claim in every:
        if found and claim.start <= found[-1].end:
            found[-1] = TargetStretch(found[-1].start, max(found[-1].end, claim.end))
        else:
            found.append(claim)
    return tuple(found)


def part(
    records: Iterable[AuditedRecord], claims: Sequence[TargetStretch], *, claimed: bool
) -> Iterator[AuditedRecord]:
    """Yield the records that are claimed, or those that are not; both come in the order of offsets."""
    at = 0
    for rec in records:
        while at < len(claims) and claims[at].end <= rec.offset:
            at += 1
        inside = at < len(claims) and claims[at].start <= rec.offset
        if inside is claimed:
            yield rec
