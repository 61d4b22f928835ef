"""Record batches as Arrow columns and back: what the vectorised handlers see (docs/handlers.md).

Invariant: keys, values and headers keep their bytes, null and empty differ, and header names need not
be UTF-8. Columns and batches are made of whole arrays; in Python only the step from one record's length
to the next is taken one by one (0.1 us), because nothing but the length says where the next one begins.

Not imported on the passthrough path: pyarrow and numpy take a quarter of a second to load.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceover.wire.batches.batch import BatchHeader, CorruptBatch
from onceover.wire.batches.unpack import READERS, RECORD_BYTES, Ceiling, Unpacked, too_large
from onceover.wire.batches.varint import MalformedVarint, decode_uvarint, decode_varint

Ints: TypeAlias = npt.NDArray[np.int64]
_Bytes: TypeAlias = npt.NDArray[np.uint8]

HEADER: Final = pa.struct([("key", pa.binary()), ("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(HEADER)),
        ("timestamp", pa.int64()),
        ("partition", pa.int32()),
        ("source_offset", pa.int64()),
    ]
)
KEY, VALUE, HEADERS, TIMESTAMP, PARTITION, SOURCE_OFFSET = range(6)

_LOW_BITS: Final = 0x7F
_MORE: Final = 0x80
# The tenth byte of a varint holds the 64th bit and nothing else.
_LAST_SHIFT: Final = 63
# A varint has at most ten bytes; zeros behind the payload let all of them be looked at without a check.
_PADDING: Final = bytes(16)
# Records with more headers are few; arrays for every further one would take far more than they hold.
_LEVELS: Final = 32
_MAX_PAYLOAD: Final = (1 << 31) - 1
# What a header takes beside its bytes while it becomes columns (measured).
PAIR_BYTES: Final = 100


def decode_columns(
    batches: Sequence[Unpacked],
    *,
    partition: int,
    from_offset: int,
    to_offset: int | None = None,
    ceiling: Ceiling = READERS,
) -> Iterator[Any]:
    """Yield the records of neighbouring batches as ``pa.RecordBatch`` of ``SCHEMA``, in order.

    That is one, unless the headers take too much: bytes alone say nothing about them.

    Args:
        batches: in offset order, none of them a control batch.
        partition: goes into the column ``partition``.
        from_offset: records before it are left out; ``to_offset`` likewise for those from it on.
        ceiling: of one such batch, with ``PAIR_BYTES`` for every header; and of a single record's headers.

    Raises:
        CorruptBatch: anything malformed, down to the last byte of a wanted header.
        BatchTooLarge: a wanted record has too many headers; nothing was yielded.
    """
    data = np.frombuffer(b"".join([b.payload for b in batches] + [_PADDING]), np.uint8)
    if len(data) > _MAX_PAYLOAD:
        raise _corrupt(batches[0].header, "at most 2 GiB of records", f"{len(data)} bytes")
    starts, ends = _borders(batches)
    try:
        rows = _rows(data, starts, ends, batches)
        first = int(np.searchsorted(rows.offsets, from_offset))
        last = len(rows.offsets) if to_offset is None else int(np.searchsorted(rows.offsets, to_offset))
        for part in _cuts(rows, first, last, batches, ceiling):
            yield rows.columns(data, part, partition)
    except MalformedVarint as error:
        raise _corrupt(batches[0].header, "whole records", str(error)) from error


def _cuts(
    rows: _Rows, first: int, last: int, batches: Sequence[Unpacked], ceiling: Ceiling
) -> Iterator[slice]:
    """Yield runs of rows that take at most a piece's share together, or one row."""
    pairs = rows.counts[first:last] * PAIR_BYTES
    beyond = np.flatnonzero(pairs > ceiling.record_bytes)
    if beyond.size:
        row = first + int(beyond[0])
        offset = int(rows.offsets[row])
        # The first that reaches so far: pieces of one batch have one base offset.
        header = next(b.header for b in batches if offset < b.header.next_offset)
        most = f"at most {ceiling.record_bytes // PAIR_BYTES} headers"
        raise too_large(header, most, str(int(rows.counts[row])), offset)
    ends = np.cumsum(rows.sizes[first:last] + RECORD_BYTES + pairs)
    at, taken = 0, 0
    while at < len(ends):
        end = max(at + 1, int(np.searchsorted(ends, taken + ceiling.piece_bytes, "right")))
        yield slice(first + at, first + end)
        at, taken = end, int(ends[end - 1])


def _borders(batches: Sequence[Unpacked]) -> tuple[Ints, Ints]:
    """Return where each record begins and ends in the payloads laid end to end."""
    starts: list[int] = []
    base = 0
    for header, payload in batches:
        try:
            at = _walk(payload, base, header.count, starts)
        except (IndexError, MalformedVarint):
            at = -1
        if at != len(payload):
            raise _corrupt(header, f"{header.count} records in {len(payload)} bytes", "other lengths")
        base += at
    borders = np.array([*starts, base], np.int64)
    return borders[:-1], borders[1:]


def _walk(payload: bytes, base: int, count: int, starts: list[int]) -> int:
    """Append every record's place; return where the last one ends."""
    append = starts.append
    at = 0
    for _ in range(count):
        append(base + at)
        size = payload[at]
        if size < _MORE:
            at += 1 + (size >> 1)
            continue
        high = payload[at + 1]
        if high < _MORE:
            at += 2 + ((size & _LOW_BITS | high << 7) >> 1)
            continue
        size, at = decode_uvarint(payload, at)
        at += size >> 1
    return at


def _rows(data: _Bytes, starts: Ints, ends: Ints, batches: Sequence[Unpacked]) -> _Rows:
    reader = _Reader(data, starts, ends)
    sizes = reader.unsigned()
    if (sizes & 1).any() or ((sizes >> 1) != ends - reader.at).any():
        raise MalformedVarint("a length that cannot be one")
    reader.at = reader.at + 1  # the attributes of a record are not used by any version
    stamps, deltas = reader.signed(), reader.signed()
    key, value = reader.content(), reader.content()
    counts = reader.signed()
    reader.room(counts)
    offsets, timestamps = _placed(batches, deltas, stamps)
    return _Rows(key, value, counts, reader, timestamps, offsets, ends - starts)


def _placed(batches: Sequence[Unpacked], deltas: Ints, stamps: Ints) -> tuple[Ints, Ints]:
    """Return absolute offsets and the timestamps that readers see."""

    def each(values: list[int]) -> Ints:
        return np.repeat(np.array(values, np.int64), [b.header.count for b in batches])

    headers = [b.header for b in batches]
    if (deltas < 0).any() or (deltas > each([h.last_offset_delta for h in headers])).any():
        raise MalformedVarint("an offset outside its batch")
    offsets = each([h.base_offset for h in headers]) + deltas
    if (np.diff(offsets) <= 0).any():
        raise MalformedVarint("offsets that do not grow")
    # Overflow wraps around, as Java's arithmetic does on the other side.
    timestamps = each([h.base_timestamp for h in headers]) + stamps
    if any(h.is_log_append_time for h in headers):
        appended = each([h.is_log_append_time for h in headers]).astype(bool)
        timestamps = np.where(appended, each([h.max_timestamp for h in headers]), timestamps)
    return offsets, timestamps


class _Spans(NamedTuple):
    """Where the contents of a column lie; ``null`` marks those that are null."""

    first: Ints
    end: Ints
    null: npt.NDArray[np.bool_]

    def part(self, rows: slice) -> _Spans:
        """Return those of some rows."""
        return _Spans(self.first[rows], self.end[rows], self.null[rows])

    def column(self, data: _Bytes) -> Any:
        """Return the contents as a binary array.

        The spans and the gaps between them are taken for one array over the payload itself, of which
        every second element is then copied: Arrow moves the bytes, no index of each byte is made.
        """
        count = len(self.first)
        borders = np.zeros(2 * count + 1, np.int32)
        borders[1::2] = self.first
        borders[2::2] = self.end
        both = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(borders), pa.py_buffer(data)]
        )
        wanted = np.arange(1, 2 * count, 2, dtype=np.int32)
        return both.take(pa.array(wanted, mask=self.null if self.null.any() else None))


class _Reader:
    """Reads the same field of many records at once; ``at`` is where each of them is read next."""

    def __init__(self, data: _Bytes, at: Ints, end: Ints) -> None:
        self._data = data
        self.at = at
        self._end = end

    def unsigned(self) -> npt.NDArray[np.uint64]:
        """Read a varint of each record as it stands."""
        byte = self._data[self.at]
        value = (byte & _LOW_BITS).astype(np.uint64)
        self.at = self.at + 1
        more = np.flatnonzero(byte & _MORE)
        shift = 7
        while more.size:
            byte = self._data[self.at[more]]
            if shift == _LAST_SHIFT and (byte > 1).any():
                raise MalformedVarint("a number of more than 64 bits")
            value[more] |= (byte & _LOW_BITS).astype(np.uint64) << np.uint64(shift)
            self.at[more] += 1
            more = more[(byte & _MORE) != 0]
            shift += 7
        if (self.at > self._end).any():
            raise MalformedVarint("a field reaches past its record")
        return value

    def signed(self) -> Ints:
        """Read a zigzag varint of each record."""
        value = self.unsigned()
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)

    def content(self) -> _Spans:
        """Read a length and step over what it says."""
        size = self.signed()
        first = self.at
        # Compared before it is added: a length near 2**63 would wrap around.
        if (size > self._end - first).any():
            raise MalformedVarint("a field reaches past its record")
        end = first + np.maximum(size, 0)
        self.at = end.copy()
        return _Spans(first, end, size < 0)

    def rest(self, index: int, count: int) -> tuple[_Spans, _Spans]:
        """Read so many names and values of one record: what few records have is not worth whole arrays."""
        data, at, end = self._data.data, int(self.at[index]), int(self._end[index])
        numbers = array("q")
        for _ in range(2 * count):
            size, at = decode_varint(data, at)
            if size > end - at:
                raise MalformedVarint("a field reaches past its record")
            numbers.extend((at, at + max(size, 0), size < 0))
            at += max(size, 0)
        self.at[index] = at
        spans = np.frombuffer(numbers, np.int64).reshape(-1, 2, 3)
        names, values = (
            _Spans(part[:, 0], part[:, 1], part[:, 2] != 0) for part in (spans[:, 0], spans[:, 1])
        )
        return names, values

    def only(self, chosen: npt.NDArray[np.intp] | slice) -> _Reader:
        """Return a reader of some of the records."""
        return _Reader(self._data, self.at[chosen], self._end[chosen])

    def finish(self) -> None:
        """Check that every record was read to its end."""
        if (self.at != self._end).any():
            raise MalformedVarint("bytes left over after the headers")

    def room(self, counts: Ints) -> None:
        """Check that so many headers can be there at all."""
        if (counts < 0).any() or (counts > self._end - self.at).any():
            raise MalformedVarint("a number of headers that cannot be one")


class _Rows(NamedTuple):
    """Records of which everything but the headers was read; ``reader`` stands before those."""

    key: _Spans
    value: _Spans
    counts: Ints
    reader: _Reader
    timestamps: Ints
    offsets: Ints
    sizes: Ints

    def columns(self, data: _Bytes, part: slice, partition: int) -> Any:
        """Return some of them as columns."""
        offsets = self.offsets[part]
        columns = [
            self.key.part(part).column(data),
            self.value.part(part).column(data),
            _headers(self.reader.only(part), self.counts[part]),
            pa.array(self.timestamps[part]),
            pa.array(np.full(len(offsets), partition, np.int32)),
            pa.array(offsets),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _headers(reader: _Reader, counts: Ints) -> Any:
    """Read the headers level by level: the first of every record that has one, the second, ..."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    if not offsets[-1]:
        reader.finish()
        return _header_lists(offsets, pa.array([], pa.binary()), pa.array([], pa.binary()))
    owners: list[npt.NDArray[np.intp]] = []
    keys: list[_Spans] = []
    values: list[_Spans] = []
    chosen = np.flatnonzero(counts > 0)
    level = reader.only(chosen)
    while chosen.size and len(owners) < _LEVELS:
        keys.append(level.content())
        values.append(level.content())
        owners.append(chosen)
        reader.at[chosen] = level.at
        chosen = chosen[counts[chosen] > len(owners)]
        level = reader.only(chosen)
    for index in chosen.tolist():
        count = int(counts[index]) - _LEVELS
        for spans, found in zip((keys, values), reader.rest(index, count), strict=True):
            spans.append(found)
        owners.append(np.full(count, index, np.intp))
    if any(key.null.any() for key in keys):
        raise MalformedVarint("a header without a name")
    reader.finish()
    order = np.argsort(np.concatenate(owners), kind="stable")
    return _header_lists(offsets, *(_merged(spans, order).column(reader._data) for spans in (keys, values)))


def _merged(levels: Sequence[_Spans], order: npt.NDArray[np.intp]) -> _Spans:
    return _Spans(*(np.concatenate(part)[order] for part in zip(*levels, strict=True)))


def _header_lists(offsets: npt.NDArray[np.int32], keys: Any, values: Any) -> Any:
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs)


def _corrupt(header: BatchHeader, expected: str, seen: str) -> CorruptBatch:
    """Name the place and the numbers, never the content."""
    return CorruptBatch(
        f"the batch at base offset {header.base_offset} cannot be taken apart",
        expected=expected,
        seen=seen,
        behind=header.next_offset,
    )
