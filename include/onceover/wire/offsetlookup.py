"""Lookups in the offset map, both ways, and its upkeep: order, merge, split (docs/positions.md).

Invariant: an answer is exact, or says that the map does not cover the offset. It is never a guess (G7).
Merging and splitting change no answer.

All functions take the map records of *one* pair of partitions, in the order :func:`arrange` gives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from onceover.errors import Fatal
from onceover.wire.offsetmap import MAX_SEGMENTS, MapRecord, Segment, SegmentBuilder


class Translated(NamedTuple):
    """The exact answer: a reader that starts here first meets the wanted record."""

    offset: int


class NotCovered(NamedTuple):
    """The map does not know the offset; ``start`` to ``end`` (exclusive) spans what it knows, if anything.

    Inside that span an offset can still be uncovered: records were dropped or an operator skipped ahead.
    ``why`` tells when the reason is another than the span.
    """

    start: int | None
    end: int | None
    why: str = ""


Translation: TypeAlias = Translated | NotCovered


class _Side(NamedTuple):
    """One side of the map: the same lookup serves both directions."""

    start: Callable[[MapRecord], int]
    end: Callable[[MapRecord], int]
    first: Callable[[Segment], int]
    last_end: Callable[[Segment], int]


_SOURCE: Final = _Side(
    lambda record: record.source_start,
    lambda record: record.source_end,
    lambda segment: segment.source,
    lambda segment: segment.source_end,
)
_TARGET: Final = _Side(
    lambda record: record.target_start,
    lambda record: record.target_end,
    lambda segment: segment.target,
    lambda segment: segment.target_end,
)


def translate(records: Sequence[MapRecord], source_offset: int) -> Translation:
    """Return the smallest target offset from which a reader first meets what a source reader would.

    That is the first kept record at or after ``source_offset``: aborted, compacted and filtered offsets
    fall on the next kept one. Where nothing was kept from there on (the copy position), it is the
    target end of the last kept record, so the next record to be copied will be met first.
    """
    return _look_up(records, source_offset, _SOURCE, _TARGET)


def translate_back(records: Sequence[MapRecord], target_offset: int) -> Translation:
    """Return the smallest source offset for a target offset, as :func:`translate` does forwards.

    The commit marker after the last record is not in the map. A caller that has made sure that the
    target holds no record from the map's end on may ask for the map's end instead.
    """
    return _look_up(records, target_offset, _TARGET, _SOURCE)


def _look_up(records: Sequence[MapRecord], offset: int, here: _Side, there: _Side) -> Translation:
    if not records:
        return NotCovered(None, None)
    outside = NotCovered(here.start(records[0]), here.end(records[-1]))
    index = bisect_right(records, offset, key=here.end)
    if index == len(records):
        return _at_end(records, there) if offset == here.end(records[-1]) else outside
    joined = index > 0 and records[index - 1].joins(records[index])
    if offset < here.start(records[index]) and not joined:
        return outside
    while True:
        segments = records[index].segments
        position = bisect_right(segments, offset, key=here.last_end)
        if position < len(segments):
            return _at_segment(records, index, position, offset, here, there)
        index += 1
        if index == len(records):
            return _at_end(records, there)
        if not records[index - 1].joins(records[index]):
            # What lies between was never copied under our eyes: the next kept record is unknown.
            return outside


def _at_segment(
    records: Sequence[MapRecord], index: int, position: int, offset: int, here: _Side, there: _Side
) -> Translated:
    segment = records[index].segments[position]
    behind = offset - here.first(segment)
    if behind > 0:
        return Translated(there.first(segment) + behind)
    # min: where a handler made several records of one, the one before ends after this one's source.
    return Translated(min(there.first(segment), _end_before(records, index, position, there)))


def _at_end(records: Sequence[MapRecord], there: _Side) -> Translated:
    return Translated(_end_before(records, len(records) - 1, len(records[-1].segments), there))


def _end_before(records: Sequence[MapRecord], index: int, position: int, there: _Side) -> int:
    """Return where the kept record before this position ends; without one, where the joined run starts."""
    if position:
        return there.last_end(records[index].segments[position - 1])
    while index and records[index - 1].joins(records[index]):
        index -= 1
        if records[index].segments:
            return there.last_end(records[index].segments[-1])
    return there.start(records[index])


def arrange(records: Iterable[MapRecord]) -> list[MapRecord]:
    """Return the records of one pair in offset order, without what newer ones contradict.

    Within a generation ranges only grow on both sides, and a merged record holds its parts whole: parts
    that are still there beside it are dropped. After ``reseed`` or ``skip-to``, which make a new
    generation, source or target offsets can start again from lower ones; what an older generation says
    about such ranges is no longer what a reader finds, so the older record ends there.

    Raises:
        Fatal: records of more than one pair.
    """
    newest_first = sorted(records, key=lambda r: (r.generation, r.source_end, -r.source_start), reverse=True)
    kept: list[MapRecord] = []
    for record in newest_first:
        if not kept:
            kept.append(record)
            continue
        following = kept[-1]
        if (record.source, record.target) != (following.source, following.target):
            raise Fatal(
                "map records of several partition pairs in one lookup",
                expected=f"{following.source} -> {following.target}",
                seen=f"{record.source} -> {record.target}",
            )
        remaining = clipped(record, following.source_start, following.target_start)
        if remaining is not None:
            kept.append(remaining)
    kept.reverse()
    return kept


def clipped(record: MapRecord, source_limit: int, target_limit: int) -> MapRecord | None:
    """Return what ``record`` says of offsets below both limits, None when that is nothing.

    The result keeps the record's key. Where the target's limit cuts, it ends before the first source
    record that is not whole below it.
    """
    if record.source_end <= source_limit and record.target_end <= target_limit:
        return record
    end = min(record.source_end, source_limit)
    kept: list[Segment] = []
    for segment in record.segments:
        count = min(segment.count, source_limit - segment.source, target_limit - segment.target)
        if count < segment.count:
            end = min(end, segment.source + max(0, count))
            kept.append(segment)
            break
        kept.append(segment)
    # Also the earlier records that a handler made of the source record at which it ends.
    while kept and kept[-1].source_end > end:
        last = kept.pop()
        if last.source < end:
            kept.append(last._replace(count=end - last.source))
    if end <= record.source_start or record.target_start > target_limit:
        return None
    written = sum(segment.count for segment in kept)
    size_bytes = record.bytes * written // record.records if record.records else record.bytes
    return replace(record, source_end=end, segments=tuple(kept), bytes=size_bytes)


class Covered(NamedTuple):
    """Source offsets ``start`` to ``end`` (exclusive) that one generation covers without a gap."""

    start: int
    end: int
    generation: int


def bridge(records: Sequence[MapRecord], runs: Sequence[Covered]) -> list[MapRecord]:
    """Return the records of a further pair, completed by what its source partition's own pair covers.

    A pair other than that of the same partition number is written only where it received something; where
    the own pair covers the source, everything between is known to have brought it nothing. What the own
    pair does not cover any more, or a newer generation copied anew, is left out here as well.

    Args:
        records: of the further pair, in any order.
        runs: of the own pair, in offset order.
    """
    found: list[MapRecord] = []
    ordered = arrange(records)
    for run in runs:
        at = run.start
        for record in ordered:
            if record.generation != run.generation or not run.start <= record.source_start < run.end:
                continue
            inside = clipped(record, run.end, record.target_end)
            if inside is None:
                continue
            if at < inside.source_start:
                found.append(_nothing(inside, at, inside.source_start, found))
            found.append(inside)
            at = inside.source_end
        if at < run.end and found and found[-1].source_end == at:
            found.append(_nothing(found[-1], at, run.end, found))
    return found


def _nothing(like: MapRecord, start: int, end: int, before: Sequence[MapRecord]) -> MapRecord:
    """Return a record that says: of these source offsets nothing came here."""
    joined = before and before[-1].source_end == start
    target = before[-1].target_end if joined else like.target_start
    return replace(like, source_start=start, source_end=end, target_start=target, segments=(), bytes=0)


def merge(records: Sequence[MapRecord], *, max_segments: int = MAX_SEGMENTS) -> list[MapRecord]:
    """Join neighbours that are joined in the log, up to ``max_segments`` a record. Answers stay the same."""
    return [join(run) for run in mergeable(records, max_segments=max_segments)]


def mergeable(
    records: Iterable[MapRecord], *, max_segments: int = MAX_SEGMENTS, max_span_ms: int | None = None
) -> Iterator[list[MapRecord]]:
    """Yield the records in runs, each to become one record; a run of one stays as it is.

    Generations are never mixed: which records a newer one contradicts must stay visible.

    Args:
        max_span_ms: from a run's first begin to its last commit.
    """
    run: list[MapRecord] = []
    segments = 0
    for record in records:
        fits = run and segments + len(record.segments) <= max_segments and _continues(run, record)
        if fits and max_span_ms is not None:
            fits = record.commit_ms - run[0].begin_ms <= max_span_ms
        if run and not fits:
            yield run
            run, segments = [], 0
        run.append(record)
        segments += len(record.segments)
    if run:
        yield run


def _continues(run: Sequence[MapRecord], record: MapRecord) -> bool:
    return run[-1].joins(record) and run[-1].generation == record.generation


def join(run: Sequence[MapRecord]) -> MapRecord:
    """Return one record for a run of joined ones, under the key of the first.

    It takes generation, lane and instance of its newest part; times span all parts.
    """
    if len(run) == 1:
        return run[0]
    builder = SegmentBuilder()
    for segment in (segment for record in run for segment in record.segments):
        builder.add(*segment)
    return replace(
        run[-1],
        source_start=run[0].source_start,
        target_start=run[0].target_start,
        segments=builder.build(),
        bytes=sum(record.bytes for record in run),
        begin_ms=min(record.begin_ms for record in run),
        commit_ms=max(record.commit_ms for record in run),
    )


def split(record: MapRecord, *, max_segments: int = MAX_SEGMENTS) -> list[MapRecord]:
    """Cut a record with very many segments (a heavily compacted source) into joined ones that fit a topic.

    Answers stay the same; bytes are shared out by record count, so that they still add up.
    """
    segments, total = record.segments, record.records
    cuts = [0, *_piece_ends(segments, max_segments), len(segments)]
    if len(cuts) == 2:
        return [record]
    parts: list[MapRecord] = []
    done = done_bytes = 0
    for first, end in pairwise(cuts):
        inside = segments[first:end]
        done += sum(segment.count for segment in inside)
        upto_bytes = record.bytes * done // total
        parts.append(
            replace(
                record,
                source_start=inside[0].source if first else record.source_start,
                source_end=segments[end].source if end < len(segments) else record.source_end,
                target_start=segments[first - 1].target_end if first else record.target_start,
                segments=inside,
                bytes=upto_bytes - done_bytes,
            )
        )
        done_bytes = upto_bytes
    return parts


def _piece_ends(segments: Sequence[Segment], max_segments: int) -> Iterator[int]:
    """Yield where a piece ends; never between records that a handler made of one source record."""
    last = 0
    for at in range(1, len(segments)):
        if at - last >= max_segments and segments[at].source >= segments[at - 1].source_end:
            yield at
            last = at
