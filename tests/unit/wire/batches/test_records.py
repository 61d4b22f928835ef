"""Records keep their bytes on the slow path; everything malformed is refused by one typed error."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from onceover.errors import Fatal
from onceover.wire.batches import kernel
from onceover.wire.batches.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    BatchTooLarge,
    Buffer,
    CorruptBatch,
    parse_header,
    seal,
)
from onceover.wire.batches.compression import compress
from onceover.wire.batches.records import (
    MOST_HEADERS,
    DecodedRecord,
    EncodedBatch,
    Headers,
    RawRecord,
    _scan,
    control_type,
    decode,
    encode,
    encode_body,
    encode_raw,
    reencode,
)
from onceover.wire.batches.unpack import Unpacked, unpack
from onceover.wire.batches.varint import encode_varint
from tests.support.raw.java_batches import JAVA_BATCHES, JAVA_RECORDS
from tests.support.session.examples import examples


@pytest.fixture(params=["compiled", "python"], autouse=True)
def codec_path(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run each test with the compiled code, and once more where a machine has none."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(kernel, "kernel", lambda: None)
        yield


CODECS = [0, 1, 2, 3, 4]
# For tests that run once for each codec: 30 examples of each are 150.
PER_CODEC = settings(max_examples=examples(20))
CONTENT = st.one_of(st.none(), st.binary(max_size=40))
# Few names, so that duplicates occur; one is no UTF-8.
HEADERS = st.lists(st.tuples(st.sampled_from([b"", b"h", b"\xff\xfe"]), CONTENT), max_size=4).map(tuple)
TIMESTAMPS = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_100_000),
    st.sampled_from([-1, 0, -(2**63), 2**63 - 1, 1 << 61]),
    st.integers(-(2**63), 2**63 - 1),
)
FIELDS = st.lists(st.tuples(TIMESTAMPS, CONTENT, CONTENT, HEADERS), min_size=1, max_size=12)


# More than any batch here takes.
ROOM = 1 << 30


def unpacked(batch: Buffer) -> Unpacked:
    """Return a batch with its records decompressed."""
    return unpack(parse_header(batch), batch, ROOM)


@st.composite
def holed_records(draw: st.DrawFn) -> list[DecodedRecord]:
    """Records as compaction leaves them: offsets grow, with holes, from any start."""
    fields = draw(FIELDS)
    gaps = draw(st.lists(st.integers(1, 200), min_size=len(fields), max_size=len(fields)))
    offset = draw(st.integers(0, 2**40)) - 1
    records = []
    for gap, (timestamp, key, value, headers) in zip(gaps, fields, strict=True):
        offset += gap
        records.append(DecodedRecord(offset, timestamp, key, value, headers))
    return records


def compacted_batch(records: list[DecodedRecord], codec: int, *, tail: int = 0, attributes: int = 0) -> bytes:
    """Return a batch as the log cleaner leaves it, made without the code under test's encoder."""
    base, stamp = records[0].offset, records[0].timestamp
    payload = b""
    for record in records:
        delta = ((record.timestamp - stamp) + 2**63) % 2**64 - 2**63
        body = (
            bytes(1)
            + encode_varint(delta)
            + encode_varint(record.offset - base)
            + encode_body(record.key, record.value, record.headers)
        )
        payload += encode_varint(len(body)) + body
    batch = seal(
        compress(codec, payload),
        attributes=codec | attributes,
        last_offset_delta=records[-1].offset - base + tail,
        base_timestamp=stamp,
        max_timestamp=max(record.timestamp for record in records),
        count=len(records),
    )
    batch[:8] = struct.pack(">q", base)
    return bytes(batch)


def unplaced(record: DecodedRecord) -> tuple[int, bytes | None, bytes | None, Headers]:
    return (record.timestamp, record.key, record.value, record.headers)


def content(encoded: EncodedBatch) -> list[tuple[int, bytes | None, bytes | None, Headers]]:
    batch = bytes(encoded.batch)
    return [unplaced(record) for record in decode(parse_header(batch), batch)]


def source_offsets(encoded: EncodedBatch) -> list[int]:
    return [offset for first, count in encoded.source_runs for offset in range(first, first + count)]


@pytest.mark.parametrize("codec", CODECS)
@PER_CODEC
@given(fields=FIELDS)
def test_any_records_survive_encode_and_decode(
    codec: int, fields: list[tuple[int, bytes | None, bytes | None, Headers]]
) -> None:
    encoded = encode(fields, codec)
    header = parse_header(encoded.batch)
    assert fields == content(encoded)
    assert (header.codec, header.count, header.last_offset_delta) == (codec, len(fields), len(fields) - 1)
    assert header.base_timestamp == fields[0][0]
    assert header.max_timestamp == max(field[0] for field in fields)
    assert encoded.source_runs == [(0, len(fields))]


@pytest.mark.parametrize("codec", CODECS)
@PER_CODEC
@given(records=holed_records(), tail=st.integers(0, 9))
def test_reencoding_closes_holes_and_keeps_all_bytes(
    codec: int, records: list[DecodedRecord], tail: int
) -> None:
    batch = compacted_batch(records, codec, tail=tail)
    (encoded,) = reencode(unpacked(batch), from_offset=0)
    assert [unplaced(record) for record in records] == content(encoded)
    assert [record.offset for record in records] == source_offsets(encoded)
    assert not parse_header(encoded.batch).has_holes


@given(records=holed_records(), data=st.data())
def test_reencoding_takes_only_the_range_asked_for(records: list[DecodedRecord], data: st.DataObject) -> None:
    start = data.draw(st.integers(records[0].offset - 1, records[-1].offset + 1))
    end = data.draw(st.one_of(st.none(), st.integers(start, records[-1].offset + 1)))
    batch = compacted_batch(records, 3)
    expected = [r for r in records if r.offset >= start and (end is None or r.offset < end)]
    parts = reencode(unpacked(batch), from_offset=start, to_offset=end)
    assert [unplaced(record) for record in expected] == [row for part in parts for row in content(part)]
    assert [record.offset for record in expected] == [o for part in parts for o in source_offsets(part)]
    assert len(parts) == (1 if expected else 0)


@pytest.mark.parametrize("codec", CODECS)
@PER_CODEC
@given(records=holed_records(), limit=st.integers(1, 400))
def test_split_batches_fit_the_limit_and_keep_order(
    codec: int, records: list[DecodedRecord], limit: int
) -> None:
    batch = compacted_batch(records, codec)
    parts = reencode(unpacked(batch), from_offset=0, max_batch_bytes=limit)
    assert [unplaced(record) for record in records] == [row for part in parts for row in content(part)]
    assert all(len(part.batch) <= limit or part.count == 1 for part in parts)


def test_a_batch_at_the_limit_is_not_split_and_one_byte_less_is() -> None:
    """message.max.bytes is inclusive (docs/facts.md)."""
    batch = bytes(encode([(0, b"k", b"v" * 100, ())] * 10).batch)
    assert len(reencode(unpacked(batch), from_offset=0, max_batch_bytes=len(batch))) == 1
    assert len(reencode(unpacked(batch), from_offset=0, max_batch_bytes=len(batch) - 1)) == 2


@given(records=holed_records())
def test_log_append_time_becomes_the_timestamp_readers_saw(records: list[DecodedRecord]) -> None:
    batch = compacted_batch(records, 0, attributes=LOG_APPEND_TIME)
    header = parse_header(batch)._replace(max_timestamp=1_700_000_000_123)
    (encoded,) = reencode(unpack(header, batch, ROOM), from_offset=0)
    assert {row[0] for row in content(encoded)} == {1_700_000_000_123}
    assert parse_header(encoded.batch).attributes == 0


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_the_java_client_are_read(codec: int) -> None:
    batch = JAVA_BATCHES[codec]
    assert list(decode(parse_header(batch), batch)) == JAVA_RECORDS


def test_uncompressed_batches_equal_those_of_the_java_client() -> None:
    """Byte for byte, apart from base offset: there is one way to write a record."""
    fields = [unplaced(record) for record in JAVA_RECORDS]
    assert bytes(encode(fields).batch)[8:] == JAVA_BATCHES[0][8:]


PLAIN_HEADERS = st.lists(st.tuples(st.sampled_from(["", "h", "ä"]), CONTENT), max_size=3)
SANE = st.integers(0, 2**50)


@pytest.mark.parametrize("codec", CODECS)
@PER_CODEC
@given(rows=st.lists(st.tuples(SANE, CONTENT, CONTENT, PLAIN_HEADERS), min_size=1, max_size=9))
def test_aiokafka_reads_the_same(
    codec: int, rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
) -> None:
    encoded = encode(
        [(at, key, value, tuple((n.encode(), c) for n, c in headers)) for at, key, value, headers in rows],
        codec,
    )
    reader = AiokafkaBatch(bytes(encoded.batch))
    assert reader.validate_crc()
    assert rows == [(r.timestamp, r.key, r.value, list(r.headers)) for r in reader]


@pytest.mark.parametrize("codec", [0, 1])
@PER_CODEC
@given(rows=st.lists(st.tuples(SANE, CONTENT, CONTENT, PLAIN_HEADERS), min_size=1, max_size=9))
def test_kafka_python_reads_the_same(
    codec: int, rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
) -> None:
    """It brings no lz4, snappy or zstd of its own, so those have one second opinion less."""
    encoded = encode(
        [(at, key, value, tuple((n.encode(), c) for n, c in headers)) for at, key, value, headers in rows],
        codec,
    )
    reader = KafkaPythonBatch(bytes(encoded.batch))
    assert reader.validate_crc()
    assert rows == [(r.timestamp, r.key, r.value, list(r.headers)) for r in reader]


def test_record_attributes_are_kept() -> None:
    encoded = encode_raw([RawRecord(5, 1, encode_body(b"k", b"v"), attributes=0x80)], 0)
    assert [attributes for *_, attributes in _scan(*unpacked(encoded.batch))] == [0x80]


def test_large_lengths_and_positions_leave_the_ready_made_varints() -> None:
    fields = [(index * 10_000, b"k", b"x" * (20_000 if index == 9 else 1), ()) for index in range(8200)]
    assert fields == content(encode(fields, 4))


def damaged(header: BatchHeader, payload: bytes, message: str) -> None:
    with pytest.raises(CorruptBatch, match=message) as caught:
        _scan(header, payload)
    assert "base offset 700" in caught.value.message


def java_payload() -> tuple[BatchHeader, bytes]:
    header = parse_header(JAVA_BATCHES[0])
    return header, JAVA_BATCHES[0][HEADER_BYTES:]


def test_every_truncation_is_refused() -> None:
    header, payload = java_payload()
    for cut in range(len(payload)):
        damaged(header, payload[:cut], "cannot be taken apart")


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_a_wrong_record_count_is_refused(count: int) -> None:
    header, payload = java_payload()
    damaged(header._replace(count=count), payload, "cannot be taken apart")


def test_offsets_beyond_the_batch_are_refused() -> None:
    header, payload = java_payload()
    damaged(header._replace(last_offset_delta=1), payload, "cannot be taken apart")


@pytest.mark.parametrize(
    "deltas", [[0, 0], [1, 0], [-1, 1], [0, -2]], ids=["repeated", "falling", "negative first", "negative"]
)
def test_offsets_that_do_not_grow_are_refused(deltas: list[int]) -> None:
    payload = b""
    for delta in deltas:
        body = b"\0\0" + encode_varint(delta) + encode_body(b"k", b"v")
        payload += encode_varint(len(body)) + body
    header = parse_header(JAVA_BATCHES[0])._replace(count=2, last_offset_delta=5)
    damaged(header, payload, "cannot be taken apart")


@pytest.mark.parametrize("length", [-1, -5, 0, 1, 2, 3])
def test_a_record_length_too_small_for_its_own_fields_is_refused(length: int) -> None:
    payload = encode_varint(length) + b"\0\0\0" + encode_body(b"k", b"v")
    damaged(parse_header(JAVA_BATCHES[0])._replace(count=1), payload, "cannot be taken apart")


def test_a_negative_length_is_refused_even_where_its_bits_would_fit() -> None:
    body = b"\0\0\0" + encode_body(b"k", b"v")
    payload = encode_varint(-len(body) - 1) + body
    damaged(parse_header(JAVA_BATCHES[0])._replace(count=1), payload, "cannot be taken apart")


@given(st.binary(max_size=60), st.integers(0, 4))
def test_garbage_is_refused_or_read_never_something_else(payload: bytes, count: int) -> None:
    header = parse_header(JAVA_BATCHES[0])._replace(count=count, last_offset_delta=count)
    try:
        assert len(_scan(header, payload)) == count
    except CorruptBatch as error:
        assert error.seen  # noqa: PT017 - the other outcome, success, is right as well


@pytest.mark.parametrize(
    "body",
    [
        b"",
        encode_varint(5) + b"ab",
        encode_varint(-1) + encode_varint(9),
        encode_varint(-1) * 2,
        encode_varint(-1) * 3,
        encode_varint(-1) * 2 + encode_varint(1) + encode_varint(-1) * 2,
        encode_body(b"k", b"v", ((b"h", b"x"),))[:-1],
        encode_body(b"k", b"v") + b"\0",
    ],
    ids=[
        "empty",
        "cut key",
        "cut value",
        "no header count",
        "negative headers",
        "null name",
        "cut header",
        "rest",
    ],
)
def test_malformed_content_is_refused_by_decode_and_never_shown(body: bytes) -> None:
    batch = bytes(encode_raw([RawRecord(0, 0, body)], 0).batch)
    with pytest.raises(CorruptBatch, match="at base offset 0") as caught:
        list(decode(parse_header(batch), batch))
    assert caught.value.seen == "a malformed key, value or header"


def test_a_damaged_stream_names_batch_and_codec_not_content() -> None:
    whole = JAVA_BATCHES[4]
    batch = seal(
        whole[HEADER_BYTES:-9] + bytes(9),
        attributes=4,
        last_offset_delta=2,
        base_timestamp=0,
        max_timestamp=0,
        count=3,
    )
    batch[:8] = whole[:8]
    with pytest.raises(CorruptBatch, match=r"base offset 700.*zstd"):
        list(decode(parse_header(batch), batch))


@pytest.mark.parametrize(
    "batch",
    [JAVA_BATCHES[0][:-1], JAVA_BATCHES[0][:16] + b"\x01" + JAVA_BATCHES[0][17:]],
    ids=["cut", "magic 1"],
)
def test_a_cut_or_old_batch_is_refused(batch: bytes) -> None:
    with pytest.raises(CorruptBatch, match="base offset 700"):
        list(decode(parse_header(batch), batch))


def test_an_empty_batch_leaves_nothing_to_encode() -> None:
    batch = bytes(seal(b"", attributes=0, last_offset_delta=3, base_timestamp=0, max_timestamp=0, count=0))
    assert reencode(unpacked(batch), from_offset=0) == []
    with pytest.raises(Fatal, match="at least one record"):
        encode([])


@pytest.mark.parametrize("kind", [0, 1, 5])
def test_control_type_is_read_from_the_key(kind: int) -> None:
    batch = bytes(encode([(0, struct.pack(">hh", 0, kind), b"\0\0\0\0\0\0", ())]).batch)
    header = parse_header(batch)._replace(attributes=0x30)
    assert control_type(header, batch) == kind
    with pytest.raises(Fatal, match="control batch must never be copied"):
        reencode(unpack(header, batch, ROOM), from_offset=0)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_control_key_without_a_type_is_refused(key: bytes | None) -> None:
    batch = bytes(encode([(0, key, None, ())]).batch)
    with pytest.raises(CorruptBatch, match="base offset 0"):
        control_type(parse_header(batch), batch)


def test_an_encoded_batch_is_a_value() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        encode([(0, None, None, ())]).count = 2  # pyrefly: ignore[read-only]


def test_a_record_of_very_many_headers_is_not_taken_apart() -> None:
    """Thirty times its bytes; as bytes, and re-encoded, it passes."""
    count = MOST_HEADERS + 1
    body = encode_varint(-1) * 2 + encode_varint(count) + b"\0\x01" * count
    batch = bytes(encode_raw([RawRecord(0, 0, body)], 0).batch)
    with pytest.raises(BatchTooLarge, match="base offset 0") as caught:
        list(decode(parse_header(batch), batch))
    assert (caught.value.seen, caught.value.behind) == (str(count), 1)
    assert [bytes(one.batch) for one in reencode(unpacked(batch), from_offset=0)] == [batch]


def test_more_headers_than_bytes_are_damage() -> None:
    """The near miss: a number that cannot be one."""
    body = encode_varint(-1) * 2 + encode_varint(1 << 40)
    batch = bytes(encode_raw([RawRecord(0, 0, body)], 0).batch)
    with pytest.raises(CorruptBatch):
        list(decode(parse_header(batch), batch))
