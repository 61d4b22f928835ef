"""The offset map: which source offset became which target offset (docs/architecture.md). Format and types.

Invariant: what is written can be read back for ever: keys and values carry a version, and a version
that is not known is refused, never half understood. Lookups are in ``onceover.wire.offsetlookup``.

Keys of every version begin with the fields of this one, whatever else follows: whoever cannot read a record
knows by its key whose answers it may have changed.

One map record is written for each (source partition, target partition, transaction), in the
transaction of the data itself. It covers the source range ``[source_start, source_end)`` whole, so
skipped offsets (markers, aborted, compacted, filtered) count as known: nothing was kept there. Inside,
every segment is a run of ``count`` records with consecutive offsets on both sides.

Two records of a pair are *joined* when the second starts at the source offset where the first ended.
Between joined records the flow wrote nothing of this pair to the target partition, so the offsets between
them are transaction markers and aborted attempts, which no read_committed reader meets; with a handler,
also records of other pairs that share the target partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from onceover.errors import Fatal, NeedsOperator
from onceover.model import TopicPartition
from onceover.wire.batches.batch import Buffer
from onceover.wire.batches.varint import MalformedVarint, decode_uvarint, encode_uvarint, unzigzag, zigzag
from onceover.wire.codes import WireCode

VERSION: Final = 1
# A segment packs into 2 to 3 bytes, 30 at worst: such a record stays under 1 MB, which is what a
# topic with default settings takes.
MAX_SEGMENTS: Final = 30_000
_MAX_OFFSET: Final = (1 << 63) - 1

# The low two bits of a packed segment say where it lies after the one before. Measured: nearly all
# segments are of the first two kinds (docs/facts.md).
_NEXT_TRANSACTION: Final = 0  # source gap 0, target gap 1: our commit marker (in merged records)
_SOURCE_MARKER: Final = 1  # source gap 1, target gap 0: a marker of a source transaction
_SOURCE_GAP: Final = 2  # source gap follows, target gap 0: compacted or aborted records
_BOTH_GAPS: Final = 3  # both follow, signed: anything else, also a handler's repeated source offset


class Segment(NamedTuple):
    """``count`` records whose offsets are consecutive on both sides."""

    source: int
    target: int
    count: int  # the format's word; nobody counts items of a segment

    @property
    def source_end(self) -> int:
        """Source offset after the last record."""
        return self.source + self.count

    @property
    def target_end(self) -> int:
        """Target offset after the last record."""
        return self.target + self.count


class MapKey(NamedTuple):
    """Identity of a map record: unique in a flow, so compaction keeps every record."""

    source: TopicPartition
    target: TopicPartition
    source_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRecord:
    """What one transaction did to one pair of partitions. Ends are exclusive, times epoch ms.

    ``target_start`` is where the pair's previous record ended when that is known and nobody else writes
    there, otherwise the first record's offset: no record that a reader could meet lies between it and the
    first segment.
    ``batch`` and ``attempt`` are the lane's instance.

    Raises:
        Fatal: ranges or segments that contradict each other.
    """

    source: TopicPartition
    target: TopicPartition
    source_start: int
    source_end: int
    target_start: int
    segments: tuple[Segment, ...]
    bytes: int
    generation: int
    lane: int
    batch: int
    attempt: int
    begin_ms: int
    commit_ms: int

    def __post_init__(self) -> None:
        source, source_end, target = self.source_start, self.source_start, self.target_start
        for segment in self.segments:
            _check_step(source, source_end, target, segment)
            source, source_end, target = segment.source, segment.source_end, segment.target_end
        # An empty source range would share its key with the record that follows it.
        empty = self.source_start == self.source_end
        if empty or source_end > self.source_end or min(self.source_start, self.target_start) < 0:
            raise Fatal(
                "a map record's segments leave its ranges",
                where=f"{self.source} -> {self.target}",
                expected=f"source {self.source_start} to {self.source_end}, target from {self.target_start}",
                seen=f"segments up to {source_end}",
            )

    @property
    def target_end(self) -> int:
        """Target offset after the last record; ``target_start`` when nothing was kept."""
        return self.segments[-1].target_end if self.segments else self.target_start

    @property
    def key(self) -> MapKey:
        """The record's identity."""
        return MapKey(self.source, self.target, self.source_start)

    @property
    def records(self) -> int:
        """Number of records written to the target."""
        return sum(segment.count for segment in self.segments)

    def joins(self, following: MapRecord) -> bool:
        """True when nothing of the pair lies between this record and ``following``, on both sides."""
        return (
            (self.source, self.target) == (following.source, following.target)
            and self.source_end == following.source_start
            and self.target_end <= following.target_start
        )


def _check_step(source: int, source_end: int, target_end: int, segment: Segment) -> None:
    """A handler may write several records for one source record, but neither side runs backwards."""
    if (
        segment.count < 1
        or segment.source < source
        or segment.source_end < source_end
        or segment.target < target_end
    ):
        raise Fatal(
            "offset map segments run backwards",
            expected=f"source from {source}, ending at or after {source_end}, target from {target_end}",
            seen=str(segment),
        )


def receipt(flow: str, record: MapRecord) -> dict[str, str | int]:
    """Return the record as a receipt row: the same columns, in the same order, for every record."""
    return {
        "flow": flow,
        "generation": record.generation,
        "lane": record.lane,
        "source_topic": record.source.topic,
        "source_partition": record.source.partition,
        "source_start": record.source_start,
        "source_end": record.source_end,
        "target_topic": record.target.topic,
        "target_partition": record.target.partition,
        "target_start": record.target_start,
        "target_end": record.target_end,
        "records": record.records,
        "bytes": record.bytes,
        "begin_ms": record.begin_ms,
        "commit_ms": record.commit_ms,
    }


class SegmentBuilder:
    """Collects the segments of one transaction and pair, joining those that touch on both sides."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    def add(self, source_first: int, target_first: int, count: int) -> None:
        """Note that ``count`` records from ``source_first`` on were written from ``target_first`` on.

        Raises:
            Fatal: either side runs backwards, or nothing was written.
        """
        segment = Segment(source_first, target_first, count)
        if not self._segments:
            _check_step(0, 0, 0, segment)
            self._segments.append(segment)
            return
        last = self._segments[-1]
        _check_step(last.source, last.source_end, last.target_end, segment)
        if segment.source == last.source_end and segment.target == last.target_end:
            self._segments[-1] = Segment(last.source, last.target, last.count + count)
        else:
            self._segments.append(segment)

    def build(self) -> tuple[Segment, ...]:
        """Return the segments so far."""
        return tuple(self._segments)


def encode_map_key(key: MapKey | MapRecord) -> bytes:
    """Return the key bytes: one way to write a key, as compaction compares bytes."""
    parts = [bytes((VERSION,))]
    for topic, partition in (key.source, key.target):
        name = topic.encode()
        parts += (encode_uvarint(len(name)), name, encode_uvarint(partition))
    parts.append(encode_uvarint(key.source_start))
    return b"".join(parts)


def decode_map_key(data: Buffer) -> MapKey:
    """Return the key.

    Raises:
        NeedsOperator: MAP_UNREADABLE, of a newer version or damaged.
    """
    at = _after_version(data, "key")
    try:
        key, at = _key_fields(data, at)
    except (MalformedVarint, ValueError) as error:
        raise _unreadable("key", "a whole key", "damaged bytes") from error
    if at != len(data):
        raise _unreadable("key", f"{at} bytes", f"{len(data)} bytes")
    return key


def key_named_by(data: Buffer) -> MapKey | None:
    """Return what a key of any version names; None for one that is none of ours."""
    try:
        return _key_fields(data, 1)[0]
    except (MalformedVarint, ValueError):
        return None


def _key_fields(data: Buffer, at: int) -> tuple[MapKey, int]:
    sides: list[TopicPartition] = []
    for _ in range(2):
        size, at = decode_uvarint(data, at)
        name = bytes(data[at : at + size]).decode()
        partition, at = decode_uvarint(data, at + size)
        sides.append(TopicPartition(name, partition))
    source_start, at = decode_uvarint(data, at)
    if max(source_start, sides[0].partition, sides[1].partition) > _MAX_OFFSET:
        raise ValueError("numbers that no offset has")
    return MapKey(sides[0], sides[1], source_start), at


def _after_version(data: Buffer, what: str) -> int:
    if not len(data) or data[0] != VERSION:
        raise _unreadable(what, f"version {VERSION}", f"version {data[0]}" if len(data) else "no bytes")
    return 1


def _unreadable(what: str, expected: str, seen: str) -> NeedsOperator:
    return NeedsOperator(
        f"the {what} of an offset map record cannot be read",
        code=WireCode.MAP_UNREADABLE,
        expected=expected,
        seen=seen,
        resolve="run the newest Onceover that has written this flow; a damaged map can only be begun anew",
    )


def encode_map_value(record: MapRecord) -> bytes:
    """Return the value bytes: version, numbers as varints, packed segments."""
    numbers = [
        record.generation,
        record.lane,
        record.batch,
        record.attempt,
        record.source_end - record.source_start,
        record.target_start,
        record.bytes,
        record.begin_ms,
        zigzag(record.commit_ms - record.begin_ms),
        len(record.segments),
    ]
    source, target = record.source_start, record.target_start
    for segment in record.segments:
        numbers += _pack(segment, segment.source - source, segment.target - target)
        source, target = segment.source_end, segment.target_end
    return bytes((VERSION,)) + b"".join(map(encode_uvarint, numbers))


def _pack(segment: Segment, source_gap: int, target_gap: int) -> tuple[int, ...]:
    count = segment.count << 2
    if (source_gap, target_gap) == (0, 1):
        return (count | _NEXT_TRANSACTION,)
    if (source_gap, target_gap) == (1, 0):
        return (count | _SOURCE_MARKER,)
    if target_gap == 0 and source_gap >= 0:
        return count | _SOURCE_GAP, source_gap
    return count | _BOTH_GAPS, zigzag(source_gap), zigzag(target_gap)


def decode_map_value(key: MapKey, data: Buffer) -> MapRecord:
    """Return the record that ``encode_map_value`` packed under ``key``.

    Raises:
        NeedsOperator: MAP_UNREADABLE, of a newer version or damaged.
    """
    try:
        return _unpack_value(key, _uvarints(data, _after_version(data, "value")))
    except (MalformedVarint, ValueError, StopIteration, Fatal) as error:
        raise _unreadable(
            "value", f"a whole record for {key.source} -> {key.target}", "damaged bytes"
        ) from error


def _uvarints(data: Buffer, at: int) -> list[int]:
    numbers: list[int] = []
    while at < len(data):
        number, at = decode_uvarint(data, at)
        numbers.append(number)
    return numbers


def _unpack_value(key: MapKey, numbers: list[int]) -> MapRecord:
    generation, lane, batch, attempt, source_size, target_start, size_bytes, *rest = numbers
    begin_ms, duration, count, *packed = rest
    segments = _unpack_segments(key.source_start, target_start, packed)
    if len(segments) != count:
        raise ValueError(f"{count} segments announced, {len(segments)} found")
    record = MapRecord(
        source=key.source,
        target=key.target,
        source_start=key.source_start,
        source_end=key.source_start + source_size,
        target_start=target_start,
        segments=segments,
        bytes=size_bytes,
        generation=generation,
        lane=lane,
        batch=batch,
        attempt=attempt,
        begin_ms=begin_ms,
        commit_ms=begin_ms + unzigzag(duration),
    )
    if max(record.source_end, record.target_end, generation) > _MAX_OFFSET:
        raise ValueError("numbers that no offset has")
    return record


def _unpack_segments(source: int, target: int, packed: list[int]) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    numbers = iter(packed)
    for number in numbers:
        tag = number & 3
        if tag == _NEXT_TRANSACTION:
            target += 1
        elif tag == _SOURCE_MARKER:
            source += 1
        elif tag == _SOURCE_GAP:
            source += next(numbers)
        else:
            source += unzigzag(next(numbers))
            target += unzigzag(next(numbers))
        segments.append(Segment(source, target, number >> 2))
        source, target = segments[-1].source_end, segments[-1].target_end
    return tuple(segments)
