"""Arrow columns as record batches: the way back of ``onceover.wire.batches.columns``.

Invariant: the bytes are those that ``wire.batches.records`` would write for the same records; only the source
runs follow the column ``source_offset``, which may repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceover.errors import Fatal
from onceover.wire.batches.batch import seal
from onceover.wire.batches.columns import HEADERS, KEY, SOURCE_OFFSET, TIMESTAMP, VALUE, Ints
from onceover.wire.batches.compression import compress
from onceover.wire.batches.records import EncodedBatch

_LOW_BITS: Final = 0x7F
_MORE: Final = 0x80
# What a record needs besides key, value and headers, at most: length, attributes, timestamp, position,
# two lengths and the number of headers.
_RECORD_OVERHEAD: Final = 40
_HEADER_OVERHEAD: Final = 10
_EMPTY: Final = pa.scalar(b"", pa.binary())
_ATTRIBUTES: Final = pa.scalar(b"\0", pa.binary())


def encode_columns(batch: Any, codec: int, *, max_batch_bytes: int) -> Iterator[EncodedBatch]:
    """Yield the rows of ``batch`` (``SCHEMA``, one target partition) as record batches, in order.

    Each has at most ``max_batch_bytes``, header included, unless a single record does not fit.

    Raises:
        Fatal: no rows.
    """
    if not batch.num_rows:
        raise Fatal("a record batch needs at least one record", expected="1 or more", seen="0")
    # An upper bound that costs nothing: most batches are far below the limit.
    if batch.nbytes + batch.num_rows * _RECORD_OVERHEAD <= max_batch_bytes:
        yield from _encode_within(batch, codec, max_batch_bytes)
        return
    for first, end in _cuts(_row_sizes(batch), max_batch_bytes):
        yield from _encode_within(batch.slice(first, end - first), codec, max_batch_bytes)


def _encode_within(batch: Any, codec: int, limit: int) -> Iterator[EncodedBatch]:
    """Encode; cut in two what is too large after all. The compressed size is known only afterwards."""
    encoded = _encode(batch, codec)
    half = batch.num_rows // 2
    if len(encoded.batch) <= limit or not half:
        yield encoded
        return
    yield from _encode_within(batch.slice(0, half), codec, limit)
    yield from _encode_within(batch.slice(half), codec, limit)


def _cuts(sizes: Ints, limit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of at most ``limit`` bytes together, or of one row."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + limit, "right")))
        yield first, end
        first = end


def _row_sizes(batch: Any) -> Ints:
    """Return what each row takes at most before compression."""
    headers = batch.column(HEADERS)
    counts = _ints(pc.list_value_length(headers))
    pairs = headers.flatten()
    inside = np.concatenate(
        ([0], np.cumsum(_lengths(pairs.field(0)) + np.maximum(_lengths(pairs.field(1)), 0)))
    )
    ends = np.cumsum(counts)
    header_bytes = inside[ends] - inside[ends - counts] + counts * _HEADER_OVERHEAD
    contents = sum(np.maximum(_lengths(batch.column(number)), 0) for number in (KEY, VALUE))
    return np.asarray(contents + header_bytes + _RECORD_OVERHEAD, np.int64)


def _encode(batch: Any, codec: int) -> EncodedBatch:
    count = batch.num_rows
    stamps = _ints(batch.column(TIMESTAMP))
    with np.errstate(over="ignore"):
        deltas = stamps - stamps[0]
    headers = batch.column(HEADERS)
    parts = [
        _ATTRIBUTES,
        _varints(deltas),
        _varints(np.arange(count, dtype=np.int64)),
        *_with_length(batch.column(KEY)),
        *_with_length(batch.column(VALUE)),
        _varints(_ints(pc.list_value_length(headers))),
        _header_blobs(headers),
    ]
    body_sizes = sum(np.maximum(_lengths(part), 0) for part in parts[1:]) + 1
    records = _joined([_varints(np.asarray(body_sizes, np.int64)), *parts])
    sealed = seal(
        compress(codec, _data_of(records)),
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=int(stamps[0]),
        max_timestamp=int(stamps.max()),
        count=count,
    )
    return EncodedBatch(sealed, count, _runs(_ints(batch.column(SOURCE_OFFSET))))


def _runs(offsets: Ints) -> list[tuple[int, int]]:
    """Return (first, count) of every run of consecutive offsets."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(offsets) != 1) + 1))
    counts = np.diff(np.append(starts, len(offsets)))
    return list(zip(offsets[starts].tolist(), counts.tolist(), strict=True))


def _header_blobs(headers: Any) -> Any:
    """Return each row's headers as the bytes that follow their number."""
    counts = _ints(pc.list_value_length(headers))
    if not counts.any():
        return _EMPTY
    pairs = headers.flatten()
    each = _joined([*_with_length(pairs.field(0)), *_with_length(pairs.field(1))])
    # Headers of one record are neighbours already: only the borders between records are kept.
    borders = np.frombuffer(each.buffers()[1], np.int32)[: len(each) + 1]
    kept = borders[np.concatenate(([0], np.cumsum(counts)))]
    return pa.Array.from_buffers(
        pa.binary(), len(counts), [None, pa.py_buffer(np.ascontiguousarray(kept)), each.buffers()[2]]
    )


def _with_length(column: Any) -> tuple[Any, Any]:
    return _varints(_lengths(column)), column


def _lengths(column: Any) -> Ints:
    """Return the length of each content, -1 for null."""
    if isinstance(column, pa.Scalar):
        return np.array([len(column.as_py())], np.int64)
    return _ints(pc.fill_null(pc.binary_length(column), -1))


def _ints(column: Any) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _joined(parts: Sequence[Any]) -> Any:
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")


def _data_of(column: Any) -> bytes:
    """Return the contents of a freshly made binary array, laid end to end."""
    borders = np.frombuffer(column.buffers()[1], np.int32)
    content: bytes = column.buffers()[2].slice(0, int(borders[len(column)])).to_pybytes()
    return content


def _varints(numbers: Ints) -> Any:
    """Return each number as a zigzag varint."""
    values = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    largest = int(values.max(initial=0))
    sizes = np.ones(len(values), np.int64)
    limit = _MORE
    while largest >= limit:
        sizes += values >= np.uint64(limit)
        limit <<= 7
        if limit >> 64:
            break
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    data = np.empty(int(ends[-1]), np.uint8)
    at = ends[:-1]
    for index in range(int(sizes.max(initial=0))):
        chosen = np.flatnonzero(sizes > index)
        byte = (values[chosen] >> np.uint64(7 * index)) & np.uint64(_LOW_BITS)
        more = np.where(sizes[chosen] > index + 1, _MORE, 0).astype(np.uint64)
        data[at[chosen] + index] = (byte | more).astype(np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(data)])
