"""Tiling bounds with ranges, between borders that the offset map proposes.

Invariant: the ranges of a partition tile its bounds on both sides, whatever the map says: a wrong border
makes two neighbours differ, which are then opened together, and can hide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from onceover.audit.model import Range
from onceover.audit.ranges.bounds import Bounds
from onceover.model import TopicPartition
from onceover.positions.store import MapStore, PairRow
from onceover.wire.offsetlookup import Translated, clipped, translate, translate_back
from onceover.wire.offsetmap import MapRecord

# Of source batches, as stored: the finest place that a first comparison names.
RANGE_BYTES: Final = 64 << 20


class Border(NamedTuple):
    """A place where both logs are proposed to be at the same record; ``bytes`` since the one before."""

    source: int
    target: int
    bytes: int


class Hole(NamedTuple):
    """Source offsets that no map record speaks of: an operator skipped them.

    Args:
        start: first offset; ``end`` the one behind the last.
        known: False where the map may as well have forgotten them.
    """

    start: int
    end: int
    known: bool = True


class Copied(NamedTuple):
    """What is known of a pair of partitions beside its map records.

    Args:
        start: first source offset of the flow; ``position`` the next one to copy.
        alone: nothing but this pair writes to the target partition: the first record to be there was this
            pair's first.
        begins: nothing was copied yet before the first map record.
    """

    start: int
    position: int
    alone: bool
    begins: bool


class StoredPair:
    """The offset map's proposals about one pair of partitions; empty where it holds nothing of it.

    Args:
        store: the map, None when the flow has none.
        source: partition; ``target`` its counterpart.
        since: first generation that speaks of the topics as they are now.
    """

    def __init__(
        self, store: MapStore | None, source: TopicPartition, target: TopicPartition, since: int = 0
    ) -> None:
        self._store = store
        self._pair: PairRow | None = None
        if store is not None:
            pairs = store.pairs(source=source, target=target)
            self._pair = pairs[0]._replace(since=since) if pairs else None

    def to_target(self, offset: int) -> int | None:
        """Return the target offset for a source offset; None where it is not covered."""
        return self._ask(offset, back=False)

    def to_source(self, offset: int) -> int | None:
        """Return the source offset for a target offset; None where it is not covered."""
        return self._ask(offset, back=True)

    def first(self, source: int = 0, target: int = 0) -> tuple[int, int] | None:
        """Return where the map first begins, or begins again, at or behind both offsets."""
        return first_behind(self.records(), source, target)

    def behind(self, offset: int) -> int | None:
        """Return the target offset behind the copies of all source offsets before one; None without any."""
        return behind(self.records(), offset)

    def again(self, offset: int, target: int) -> int | None:
        """Return the first source offset before ``offset`` whose copy is behind ``target``; None without."""
        return again(self.records(), offset, target)

    def records(self) -> Iterator[MapRecord]:
        """Yield the pair's map records in order."""
        if self._store is not None and self._pair is not None:
            yield from self._store.records(self._pair)

    def _ask(self, offset: int, *, back: bool) -> int | None:
        if self._store is None or self._pair is None:
            return None
        found = self._store.around(self._pair, offset, back=back)
        answer = (translate_back if back else translate)(found, offset)
        return answer.offset if isinstance(answer, Translated) else None


def first_behind(records: Iterable[MapRecord], source: int, target: int) -> tuple[int, int] | None:
    """Return where the first record begins that lies at or behind both offsets; None without one."""
    for record in records:
        if record.source_start >= source and record.target_start >= target:
            return record.source_start, record.target_start
    return None


def behind(records: Iterable[MapRecord], offset: int) -> int | None:
    """Return where the target's copies of source offsets before ``offset`` end; None without any."""
    cut = (clipped(each, offset, each.target_end) for each in records if each.source_start < offset)
    return max((each.target_end for each in cut if each is not None), default=None)


def again(records: Iterable[MapRecord], offset: int, target: int) -> int | None:
    """Return the first source offset before ``offset`` whose copy is behind ``target``; None without."""
    for record in records:
        for segment in record.segments:
            first = segment.source + max(0, target - segment.target)
            if first < min(offset, segment.source_end):
                return first
    return None


def borders(records: Iterable[MapRecord]) -> Iterator[Border]:
    """Yield a border at each run of records that one transaction copied, in order."""
    for record in records:
        each = record.bytes / max(1, record.records)
        for segment in record.segments:
            yield Border(segment.source_end, segment.target_end, int(each * segment.count))


def holes(records: Iterable[MapRecord], copied: Copied) -> Iterator[Hole]:
    """Yield what lies between map records, before the first and behind the last, without being spoken of.

    Args:
        records: of one pair, in order.
        copied: what is known of it besides.
    """
    end, known = copied.start, copied.begins
    for record in records:
        known = known or (copied.alone and record.target_start == 0)
        if record.source_start > end:
            yield Hole(end, record.source_start, known)
        end, known = max(end, record.source_end), True
    if copied.position > end:
        yield Hole(end, copied.position, known)


def tile(bounds: Bounds, proposed: Iterable[Border], range_bytes: int = RANGE_BYTES) -> list[Range]:
    """Return the ranges of a partition, each of about ``range_bytes`` of its source; none when it is empty.

    Args:
        bounds: what is compared.
        proposed: the map's borders, in order; those that are out of order are passed over.
    """
    if bounds.empty:
        return []
    make = _maker(bounds)
    found: list[Range] = []
    source, target, size = bounds.source_from, bounds.target_from, 0
    for border in proposed:
        if border.source <= source or border.target < target:
            continue
        if border.source >= bounds.source_to or border.target > bounds.target_to:
            break
        size += border.bytes
        if size >= range_bytes:
            found.append(make(source, border.source, target, border.target))
            source, target, size = border.source, border.target, 0
    found.append(make(source, bounds.source_to, target, bounds.target_to))
    return found


def _maker(bounds: Bounds) -> Callable[[int, int, int, int], Range]:
    def make(source_from: int, source_to: int, target_from: int, target_to: int) -> Range:
        pair = bounds.source, source_from, source_to, bounds.target, target_from, target_to
        return Range(*pair, bounds.mode)

    return make
