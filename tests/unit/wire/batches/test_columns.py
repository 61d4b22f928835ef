"""Records as Arrow columns and back: the same records, the same bytes; what is malformed is refused."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.errors import Fatal
from onceover.wire.batches.batch import (
    LOG_APPEND_TIME,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    parse_header,
)
from onceover.wire.batches.columns import PAIR_BYTES, SCHEMA, decode_columns
from onceover.wire.batches.columns_encode import encode_columns
from onceover.wire.batches.records import DecodedRecord, decode, decode_payload, encode
from onceover.wire.batches.unpack import RECORD_BYTES, Ceiling, Unpacked, unpack, unpack_pieces
from onceover.wire.batches.varint import encode_varint
from tests.support.raw.hostile import seal
from tests.support.session.examples import examples
from tests.support.session.memory import Peak
from tests.unit.wire.batches.test_records import CODECS, FIELDS, compacted_batch, holed_records, unpacked

# The first call of Arrow's kernels takes its time.
BIG = 1 << 30


def columns_of(batches: list[Unpacked], **wanted: Any) -> Any:
    """Return all that is wanted of some batches as one batch of columns."""
    found = list(decode_columns(batches, **wanted))
    assert len(found) < 2
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=SCHEMA)


def records(columns: Any) -> list[DecodedRecord]:
    """Return the rows of a batch of columns, checked to be whole."""
    columns.validate(full=True)
    assert columns.schema.equals(SCHEMA)
    return [
        DecodedRecord(
            row["source_offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((pair["key"], pair["value"]) for pair in row["headers"]),
        )
        for row in columns.to_pylist()
    ]


@given(batches=st.lists(holed_records(), min_size=1, max_size=3), log_append=st.booleans())
def test_columns_hold_what_the_record_codec_reads(
    batches: list[list[DecodedRecord]], log_append: bool
) -> None:
    """Over several batches, with holes, nulls, repeated and strange header names, any 64-bit timestamp."""
    built, after = [], 0
    for batch in batches:
        shifted = [r._replace(offset=r.offset - batch[0].offset + after) for r in batch]
        after = shifted[-1].offset + 5
        attributes = LOG_APPEND_TIME if log_append else 0
        built.append(unpacked(compacted_batch(shifted, 0, attributes=attributes)))
    expected = [record for one in built for record in decode_payload(one)]
    assert records(columns_of(built, partition=4, from_offset=0)) == expected


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(20))
@given(fields=FIELDS)
def test_encoding_writes_the_very_bytes_of_the_record_codec(codec: int, fields: list[Any]) -> None:
    """Two ways to write a batch that give one result."""
    expected = encode(fields, codec)
    columns = columns_of([unpacked(bytes(expected.batch))], partition=0, from_offset=0)
    [encoded] = encode_columns(columns, codec, max_batch_bytes=BIG)
    assert encoded == expected


@given(records=holed_records(), data=st.data())
def test_only_the_range_asked_for_is_taken(records: list[DecodedRecord], data: st.DataObject) -> None:
    """From the committed position on, and up to a barrier."""
    start = data.draw(st.integers(0, records[-1].offset + 2))
    end = data.draw(st.none() | st.integers(0, records[-1].offset + 2))
    one = unpacked(compacted_batch(records, 0))
    columns = columns_of([one], partition=0, from_offset=start, to_offset=end)
    kept = [r.offset for r in records if r.offset >= start and (end is None or r.offset < end)]
    assert columns.column(5).to_pylist() == kept


@given(fields=FIELDS, limit=st.integers(1, 400), repeats=st.integers(1, 3))
def test_cut_batches_fit_the_limit_and_keep_order(fields: list[Any], limit: int, repeats: int) -> None:
    """Several rows of one source record stay several: their offset is repeated in the runs."""
    columns = columns_of([unpacked(bytes(encode(fields).batch))], partition=0, from_offset=0)
    rows = columns.take([row for row in range(len(fields)) for _ in range(repeats)])
    parts = list(encode_columns(rows, 0, max_batch_bytes=limit))
    assert all(len(part.batch) <= limit or part.count == 1 for part in parts)
    content = [r for p in parts for r in decode(parse_header(p.batch), bytes(p.batch))]
    assert [r[1:] for r in content] == [field for field in map(tuple, fields) for _ in range(repeats)]
    offsets = [first + n for part in parts for first, count in part.source_runs for n in range(count)]
    assert offsets == [row for row in range(len(fields)) for _ in range(repeats)]


def test_large_random_batch_survives() -> None:
    """Lengths of one, two and three bytes, many headers: whole columns take the same ways."""
    rng = random.Random(7)
    fields = [
        (
            1_700_000_000_000 + rng.randrange(-9, 10**6),
            rng.choice([None, b"", rng.randbytes(rng.randrange(300))]),
            rng.choice([None, b"", rng.randbytes(rng.randrange(40_000))]),
            tuple((rng.randbytes(3), rng.choice([None, b"", b"xx"])) for _ in range(rng.randrange(5))),
        )
        for _ in range(300)
    ]
    expected = encode(fields)
    columns = columns_of([unpacked(bytes(expected.batch))], partition=0, from_offset=0)
    [encoded] = encode_columns(columns, 0, max_batch_bytes=BIG)
    assert encoded == expected


def with_payload(header: BatchHeader, payload: bytes) -> Unpacked:
    return Unpacked(header, payload)


@given(data=st.data())
def test_damaged_payload_is_refused_or_read_as_the_record_codec_does(data: st.DataObject) -> None:
    """Any byte changed: the same records, or a typed error; never another exception."""
    fields = data.draw(FIELDS)
    one = unpacked(bytes(encode(fields).batch))
    payload = bytearray(one.payload)
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] = data.draw(st.integers(0, 255))
    damaged = with_payload(one.header, bytes(payload))
    try:
        expected: list[DecodedRecord] | None = list(decode_payload(damaged))
    except CorruptBatch:
        expected = None
    try:
        seen = records(columns_of([damaged], partition=0, from_offset=-(2**63)))
    except CorruptBatch:
        return
    assert seen == expected


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x01",
        bytes([12, 0, 0, 0, 1, 1]),  # cut off
        bytes([12, 0, 0, 0, 1, 1, 2]),  # a header that is not there
        bytes([14, 0, 0, 0, 1, 1, 0, 9]),  # bytes left over
        bytes([12, 0, 0, 0, 10, 1, 0]),  # a key longer than its record
        bytes([12, 0, 0, 2, 1, 1, 0]),  # an offset outside its batch
        bytes([30, 0, *[0xFF] * 11, 1, 1, 0]),  # a number of more than 64 bits
        bytes([30, 0, *[0xFF] * 9, 2, 0, 1, 1, 0]),  # of 65 bits, in as many bytes as 64 take
        bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]),  # a header without a name
    ],
)
def test_malformed_record_is_a_corrupt_batch(payload: bytes) -> None:
    """The message names the place and the numbers, never the content."""
    header = parse_header(encode([(0, None, None, ())]).batch)
    with pytest.raises(CorruptBatch, match="base offset 0"):
        columns_of([with_payload(header, payload)], partition=0, from_offset=0)


def test_offsets_that_do_not_grow_are_refused() -> None:
    """Two records at one offset: neither would be known to the map."""
    batch = bytearray(encode([(0, b"a", None, ()), (0, b"b", None, ())]).batch)
    assert batch.count(b"\x02\x02b") == 1
    struct.pack_into(">b", batch, batch.index(b"\x02\x02b"), 0)
    with pytest.raises(CorruptBatch):
        columns_of([unpacked(bytes(batch))], partition=0, from_offset=0)


def test_no_rows_are_no_batch() -> None:
    """A batch without records is refused by every broker."""
    with pytest.raises(Fatal, match="at least one"):
        list(encode_columns(_no_rows(), 0, max_batch_bytes=9))


def _no_rows() -> Any:
    columns = columns_of([unpacked(bytes(encode([(0, b"a", None, ())]).batch))], partition=0, from_offset=0)
    return columns.slice(0, 0)


@given(
    depths=st.lists(st.sampled_from([0, 1, 31, 32, 33, 70]), min_size=1, max_size=6),
    content=st.sampled_from([None, b"", b"x"]),
)
def test_deep_headers_are_read_as_flat_ones_are(depths: list[int], content: bytes | None) -> None:
    """Levels are read together up to some depth, the rest of a record by itself."""
    fields = [
        (n, b"k", b"v", tuple((b"h%d" % i, content) for i in range(depth))) for n, depth in enumerate(depths)
    ]
    batch = encode(fields).batch
    seen = records(columns_of([unpacked(batch)], partition=0, from_offset=0))
    assert seen == list(decode(parse_header(batch), batch))


def test_very_many_headers_take_little_memory_and_time() -> None:
    """Two bytes each on the wire: a million arrays of one element would take a gigabyte and a minute."""
    count = 1_000_000
    body = b"\0\0\0\x01\x01" + encode_varint(count) + b"\0\x01" * count
    batch = seal(encode_varint(len(body)) + body)
    one = unpack(parse_header(batch), batch, BIG)
    with Peak() as peak:
        columns = columns_of([one], partition=0, from_offset=0, ceiling=Ceiling(BIG, BIG))
    assert len(columns.column(2)[0]) == count
    assert peak.grown_mib < 120


@pytest.mark.parametrize("damage", [b"\x01\x01", b"\0\x64", b"\x64\x01"], ids=["no name", "value", "name"])
def test_damage_in_a_deep_header_is_refused(damage: bytes) -> None:
    """A name that is null, and what reaches past its record."""
    body = b"\0\0\0\x01\x01" + encode_varint(50) + b"\0\x01" * 49 + damage
    batch = seal(encode_varint(len(body)) + body)
    with pytest.raises(CorruptBatch):
        columns_of([unpacked(batch)], partition=0, from_offset=0)


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    piece_bytes=st.integers(1, 5000),
    data=st.data(),
)
def test_columns_are_cut_to_what_their_headers_take(
    counts: list[int], piece_bytes: int, data: st.DataObject
) -> None:
    """In order, every wanted record once, never more together than they may take; a single one may."""
    fields = [(n, b"k", b"v", ((b"h", b"x"),) * count) for n, count in enumerate(counts)]
    batches = [unpacked(bytes(encode(fields).batch))]
    start = data.draw(st.integers(0, len(counts)))
    found = list(decode_columns(batches, partition=0, from_offset=start, ceiling=Ceiling(piece_bytes, BIG)))
    assert [r for part in found for r in records(part)] == list(decode_payload(batches[0], start))
    for part in found:
        pairs = len(part.column(2).flatten())
        assert part.num_rows == 1 or part.num_rows * RECORD_BYTES + pairs * PAIR_BYTES <= piece_bytes


def test_a_record_of_too_many_headers_is_named_before_anything_is_yielded() -> None:
    """What is before it can be had, and what is behind it; the near miss takes just as much as it may.

    Also where the batch comes in pieces, which have one base offset.
    """
    counts = [1, 30, 31, 30]
    batch = encode([(n, None, None, ((b"h", None),) * count) for n, count in enumerate(counts)]).batch
    pieces = list(unpack_pieces(parse_header(batch), batch, Ceiling(RECORD_BYTES + 1, BIG)))
    room = Ceiling(BIG, 30 * PAIR_BYTES)

    def offsets(start: int, end: int | None = None) -> list[int]:
        found = decode_columns(pieces, partition=0, from_offset=start, to_offset=end, ceiling=room)
        return [offset for part in found for offset in part.column(5).to_pylist()]

    with pytest.raises(BatchTooLarge, match="base offset 0") as caught:
        offsets(0)
    error = caught.value
    assert (error.offset, error.behind, error.seen, error.expected) == (2, 3, "31", "at most 30 headers")
    assert (offsets(0, 2), offsets(3)) == ([0, 1], [3])
