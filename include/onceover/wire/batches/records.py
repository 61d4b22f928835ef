"""The slow path: take a batch apart and put it together again, record by record.

Used where a batch may not pass as bytes (docs/facts.md: holes, a straddled start, LogAppendTime, a size
limit) and for records that Onceover itself writes and reads.

Invariant: a re-encoded record keeps its key, value and headers as the bytes they were. They are
copied, not decoded, so a header key that is no valid UTF-8, a duplicate, a null and an empty value
survive. Only offset delta, timestamp delta and length are written anew.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from onceover.errors import Fatal
from onceover.wire.batches.batch import (
    HEADER_BYTES,
    BatchHeader,
    BatchTooLarge,
    Buffer,
    CorruptBatch,
    seal,
    seal_there,
    verify,
)
from onceover.wire.batches.compression import NONE, WEAKEST_FIRST, compress
from onceover.wire.batches.kernel import Made, rewritten
from onceover.wire.batches.unpack import READERS, Ceiling, Unpacked, too_large, unpack_pieces
from onceover.wire.batches.varint import (
    MalformedVarint,
    decode_uvarint,
    decode_varint,
    encode_varint,
    wrap_int64,
)

Headers: TypeAlias = tuple[tuple[bytes, bytes | None], ...]

# Varints of up to two bytes, ready made: lengths below 8 KiB, positions and millisecond deltas below
# 8192. A list look-up costs a tenth of the arithmetic, and three are needed for every record.
_SMALL: Final = 8192
_VARINTS: Final = [encode_varint(number) for number in range(_SMALL)]
_BYTES: Final = [bytes((number,)) for number in range(256)]
_NULL: Final = encode_varint(-1)
_CONTROL_KEY: Final = struct.Struct(">hh")
# Of one record that is taken apart, when each takes some seventy bytes. No client needs more.
MOST_HEADERS: Final = 100_000
# Markers have one record of a few bytes.
_MARKER: Final = Ceiling(1 << 16, 1 << 16)
# Below it, a base timestamp and a delta cannot add up to more than 63 bits.
_WRAPS_FROM: Final = 1 << 61


class _TooManyHeadersError(Exception):
    """A record whose headers take too much memory when they are taken apart; holds their number."""


class RawRecord(NamedTuple):
    """A record whose content stays packed: ``body`` runs from the key's length to the record's end."""

    offset: int
    timestamp: int
    body: bytes
    attributes: int = 0


# What a RawRecord is made of. The loops below handle plain tuples: a named one costs 0.3 us more.
_Plain: TypeAlias = tuple[int, int, bytes, int]


class Unmergeable(Exception):
    """A record whose own attributes are not 0, which no client writes and brokers take.

    librdkafka takes one of their bits (0x08) for LogAppendTime: it shows the batch's largest timestamp, which
    would be another one in another batch.
    """


class DecodedRecord(NamedTuple):
    """A record taken apart. Header keys are bytes: Kafka does not check that they are UTF-8."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch ready to be stamped, and where its records came from.

    ``source_runs`` lists (first source offset, count) for every run of consecutive source offsets, in
    order: record ``i`` of the batch is the ``i``-th offset of the runs laid end to end.
    """

    batch: bytearray
    count: int
    source_runs: list[tuple[int, int]]


def _corrupt(header: BatchHeader, expected: str, seen: str) -> CorruptBatch:
    """Name the place and the numbers, never the content."""
    return CorruptBatch(
        f"the batch at base offset {header.base_offset} cannot be taken apart",
        expected=expected,
        seen=seen,
        behind=header.next_offset,
    )


def _scan(header: BatchHeader, payload: bytes) -> list[_Plain]:
    """Return the records, with absolute offsets and the timestamps that readers see.

    Readers of a LogAppendTime batch see ``max_timestamp`` on every record.

    Raises:
        CorruptBatch: a length, number or offset that cannot be one, or not exactly ``count`` records.
    """
    records: list[_Plain] = []
    try:
        at, last_delta, stamp_bits = _walk(header, payload, records)
    except (IndexError, MalformedVarint) as error:
        raise _corrupt(header, f"{header.count} records", f"record {len(records)} is malformed") from error
    if at != len(payload) or last_delta > header.last_offset_delta or len(records) != header.count:
        raise _corrupt(
            header,
            f"{header.count} records up to delta {header.last_offset_delta} in {len(payload)} bytes",
            f"{len(records)} records up to delta {last_delta}, then byte {at}",
        )
    if header.is_log_append_time:
        return [(offset, header.max_timestamp, body, bits) for offset, _, body, bits in records]
    if abs(header.base_timestamp) >= _WRAPS_FROM or stamp_bits >= _WRAPS_FROM:
        # Java's arithmetic wraps around, on the way in as on the way out, so that any long survives.
        return [(offset, wrap_int64(stamp), body, bits) for offset, stamp, body, bits in records]
    return records


def _walk(header: BatchHeader, payload: bytes, records: list[_Plain]) -> tuple[int, int, int]:
    """Append every record up to the first wrong one; return position, last delta, all timestamp bits.

    Re-encoding spends most of its time here. One-byte varints decoded in line, and plain tuples instead
    of named ones, brought it from 4.5 to 1.5 us a record.
    """
    append = records.append
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    at, end, last_delta, stamp_bits = 0, len(payload), -1, 0
    for _ in range(header.count):
        size = payload[at]
        size, at = (size, at + 1) if size < 0x80 else decode_uvarint(payload, at)
        after = at + (size >> 1)
        attributes = payload[at]
        stamp = payload[at + 1]
        stamp, at = (stamp, at + 2) if stamp < 0x80 else decode_uvarint(payload, at + 1)
        delta = payload[at]
        delta, at = (delta, at + 1) if delta < 0x80 else decode_uvarint(payload, at)
        # Negative numbers are odd in zigzag, so one bit test refuses a negative length or delta.
        if (size | delta) & 1 or (delta := delta >> 1) <= last_delta or not at <= after <= end:
            break
        timestamp = base_timestamp + ((stamp >> 1) ^ -(stamp & 1))
        append((base_offset + delta, timestamp, payload[at:after], attributes))
        stamp_bits |= stamp
        last_delta, at = delta, after
    return at, last_delta, stamp_bits


def encode_raw(records: Sequence[_Plain], codec: int) -> EncodedBatch:
    """Return ``records`` as one CreateTime batch with offset deltas 0 to n-1: holes disappear.

    Timestamps are absolute and kept; offsets only decide ``source_runs``.

    Raises:
        Fatal: no records.
    """
    if not records:
        raise Fatal("a record batch needs at least one record", expected="1 or more", seen="0")
    base_timestamp = max_timestamp = records[0][1]
    parts: list[bytes] = []
    runs: list[tuple[int, int]] = []
    run_start = records[0][0]
    run_index = index = 0
    for index, (offset, timestamp, body, attributes) in enumerate(records):
        if offset - run_start != index - run_index:
            runs.append((run_start, index - run_index))
            run_start, run_index = offset, index
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        delta = timestamp - base_timestamp
        head = (
            _BYTES[attributes]
            + (_VARINTS[delta] if 0 <= delta < _SMALL else encode_varint(wrap_int64(delta)))
            + (_VARINTS[index] if index < _SMALL else encode_varint(index))
        )
        size = len(head) + len(body)
        parts += (_VARINTS[size] if size < _SMALL else encode_varint(size), head, body)
    runs.append((run_start, index + 1 - run_index))
    batch = seal(
        compress(codec, b"".join(parts)),
        attributes=codec,
        last_offset_delta=index,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        count=index + 1,
    )
    return EncodedBatch(batch, index + 1, runs)


def reencode(
    unpacked: Unpacked,
    *,
    from_offset: int,
    to_offset: int | None = None,
    max_batch_bytes: int | None = None,
    without: Collection[int] = (),
) -> list[EncodedBatch]:
    """Return the records of a batch, or of a piece of it, as new batches of the same codec, in order.

    Only those from ``from_offset`` on and before ``to_offset`` (None: to the end) are taken, and none of
    the offsets in ``without``.

    With ``max_batch_bytes`` each batch has at most that size, header included. Only a single record
    that does not fit is returned in a larger one: what happens to it is the caller's policy.

    Raises:
        CorruptBatch: the batch cannot be taken apart.
        Fatal: a control batch, which no producer may write.
    """
    header = unpacked.header
    if header.is_control:
        raise Fatal("a control batch must never be copied", where=f"base offset {header.base_offset}")
    if not without and (whole := _compiled(unpacked, from_offset, to_offset, max_batch_bytes)):
        return [whole]
    records = _scan(*unpacked)
    if from_offset > header.base_offset:
        records = [record for record in records if record[0] >= from_offset]
    if to_offset is not None and to_offset <= header.last_offset:
        records = [record for record in records if record[0] < to_offset]
    if without:
        records = [record for record in records if record[0] not in without]
    if not records:
        return []
    return _encode_within(records, header.codec, max_batch_bytes)


def _compiled(
    unpacked: Unpacked, from_offset: int, to_offset: int | None, max_batch_bytes: int | None
) -> EncodedBatch | None:
    """Return what ``reencode`` does, made by the compiled code; None where that is not to be had, is nothing,
    or has to be split."""
    header, payload = unpacked
    made = rewritten(header, payload, from_offset, header.next_offset if to_offset is None else to_offset)
    whole = None if made is None else sealed(made)
    if whole and max_batch_bytes is not None and len(whole.batch) > max_batch_bytes and whole.count > 1:
        return None
    return whole


def sealed(made: Made, *, compressed: bool = False) -> EncodedBatch:
    """Return records that were written by the compiled code as a batch, compressed.

    Args:
        compressed: they are already.
    """
    batch = made.batch
    if made.codec != NONE and not compressed:
        packed = compress(made.codec, bytes(memoryview(batch)[HEADER_BYTES:]))
        batch = bytearray(HEADER_BYTES) + packed
    seal_there(
        batch,
        attributes=made.codec,
        last_offset_delta=made.count - 1,
        base_timestamp=made.base_timestamp,
        max_timestamp=made.max_timestamp,
        count=made.count,
    )
    return EncodedBatch(batch, made.count, made.runs)


def reencode_run(batches: Sequence[Unpacked], *, from_offset: int) -> EncodedBatch | None:
    """Return the records of several neighbouring batches from ``from_offset`` on as one batch.

    The codec is the strongest of them: what one batch kept small is not stored plain because another was.
    None when no record is left.

    Raises:
        CorruptBatch: a batch cannot be taken apart.
        Unmergeable: a record has to stay in its batch.
    """
    records: list[_Plain] = []
    for unpacked in batches:
        records += _scan(*unpacked)
    records = [record for record in records if record[0] >= from_offset]
    if any(attributes for _, _, _, attributes in records):
        raise Unmergeable
    codec = max((unpacked.header.codec for unpacked in batches), key=WEAKEST_FIRST.index)
    return encode_raw(records, codec) if records else None


def encode_bounded(records: list[_Plain], codec: int, limit: int) -> Iterator[EncodedBatch]:
    """Yield ``records`` as batches of at most ``limit`` bytes, in order; a larger record comes alone."""
    total = sum(len(record[2]) for record in records)
    for piece in _cut(records, -(-total // limit)) if total > limit else [records]:
        yield from _encode_within(piece, codec, limit)


def _encode_within(records: list[_Plain], codec: int, limit: int | None) -> list[EncodedBatch]:
    """Encode, and cut finer what came out too large.

    The compressed size is known only afterwards, so this tries rather than guesses; splitting is rare.
    """
    whole = encode_raw(records, codec)
    if limit is None or len(whole.batch) <= limit or len(records) == 1:
        return [whole]
    pieces = -(-len(whole.batch) // max(limit - HEADER_BYTES, 1))
    return [part for piece in _cut(records, pieces) for part in _encode_within(piece, codec, limit)]


def _cut(records: list[_Plain], pieces: int) -> list[list[_Plain]]:
    """Cut into at least two groups of at most 1/``pieces`` of the bytes, or of one record each."""
    share = sum(len(record[2]) for record in records) / pieces
    groups: list[list[_Plain]] = [[]]
    filled = 0
    for record in records:
        size = len(record[2])
        if groups[-1] and filled + size > share:
            groups.append([])
            filled = 0
        groups[-1].append(record)
        filled += size
    return groups


def encode_body(key: bytes | None, value: bytes | None, headers: Headers = ()) -> bytes:
    """Return the packed content of a record; ``None`` is null, which differs from empty."""
    parts = [*_field(key), *_field(value), encode_varint(len(headers))]
    for name, content in headers:
        parts += (*_field(name), *_field(content))
    return b"".join(parts)


def _field(content: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if content is None else (encode_varint(len(content)), content)


def encode(
    records: Sequence[tuple[int, bytes | None, bytes | None, Headers]], codec: int = 0
) -> EncodedBatch:
    """Return (timestamp, key, value, headers) records as one batch.

    Raises:
        Fatal: no records.
    """
    return encode_raw(
        [
            RawRecord(index, timestamp, encode_body(key, value, headers))
            for index, (timestamp, key, value, headers) in enumerate(records)
        ],
        codec,
    )


def decode(header: BatchHeader, batch: Buffer, ceiling: Ceiling = READERS) -> Iterator[DecodedRecord]:
    """Yield the records of ``batch`` taken apart, its checksum compared before.

    Raises:
        CorruptBatch: anything malformed, down to the last byte of a header; records before it were yielded.
        BatchTooLarge: a record takes more than ``ceiling``, or has too many headers; likewise.
    """
    verify(header, batch)
    for piece in unpack_pieces(header, batch, ceiling):
        yield from decode_payload(piece)


def decode_payload(
    unpacked: Unpacked, from_offset: int | None = None, to_offset: int | None = None
) -> Iterator[DecodedRecord]:
    """Yield the records of a decompressed batch taken apart, one at a time: their headers take 30-fold.

    Args:
        unpacked: the batch.
        from_offset: records before it are left out, and not taken apart; ``to_offset`` likewise for those
            from it on.

    Raises:
        CorruptBatch: anything malformed, down to the last byte of a header; records before it were yielded.
        BatchTooLarge: a record has more than ``MOST_HEADERS``; likewise.
    """
    header, payload = unpacked
    for offset, stamp, body, _ in _scan(header, payload):
        if from_offset is not None and offset < from_offset:
            continue
        if to_offset is not None and offset >= to_offset:
            return
        try:
            yield DecodedRecord(offset, stamp, *_decode_body(body))
        except MalformedVarint as error:
            raise _corrupt(
                header, f"{header.count} whole records", "a malformed key, value or header"
            ) from error
        except _TooManyHeadersError as error:
            raise too_large(header, f"at most {MOST_HEADERS} headers", str(error), offset) from error


def _decode_body(body: bytes) -> tuple[bytes | None, bytes | None, Headers]:
    key, at = _decode_field(body, 0)
    value, at = _decode_field(body, at)
    count, at = decode_varint(body, at)
    if not 0 <= count <= len(body) - at:
        raise MalformedVarint("a number of headers that cannot be one")
    if count > MOST_HEADERS:
        raise _TooManyHeadersError(count)
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        name, at = _decode_field(body, at)
        content, at = _decode_field(body, at)
        if name is None:
            raise MalformedVarint("a header without a name")
        headers.append((name, content))
    if at != len(body):
        raise MalformedVarint("bytes left over after the headers")
    return key, value, tuple(headers)


def _decode_field(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_varint(body, at)
    if size < 0:
        return None, at
    if at + size > len(body):
        raise MalformedVarint("a field reaches past its record")
    return body[at : at + size], at + size


def control_type(header: BatchHeader, batch: Buffer) -> int:
    """Return what the control batch marks: 0 abort, 1 commit, others are not about transactions.

    Only the first record's key is read.

    Raises:
        CorruptBatch: no record, or a key too short to hold a type.
    """
    try:
        piece = next(unpack_pieces(header, batch, _MARKER))
    except BatchTooLarge as error:
        raise _corrupt(header, "a control record", error.seen or "more") from error
    raw = next(iter(_scan(*piece)), None)
    try:
        key = None if raw is None else _decode_field(raw[2], 0)[0]
    except MalformedVarint as error:
        raise _corrupt(header, "a control record", "a malformed key") from error
    if key is None or len(key) < _CONTROL_KEY.size:
        raise _corrupt(header, "a control key of at least 4 bytes", "none, or a shorter one")
    marker: int = _CONTROL_KEY.unpack_from(key)[1]
    return marker
