"""Nothing is expanded beyond a ceiling; what is too large as a whole comes in pieces, or not at all."""

from __future__ import annotations

import struct

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.wire.batches.batch import BatchTooLarge, Buffer, CorruptBatch, parse_header
from onceover.wire.batches.compression import decompress, decompress_chunks
from onceover.wire.batches.records import DecodedRecord, decode, decode_payload
from onceover.wire.batches.unpack import RECORD_BYTES, Ceiling, Unpacked, unpack, unpack_pieces
from onceover.wire.batches.zstdframe import window_bytes
from tests.support.raw.hostile import bomb, compressed, expanding, seal, zstd_frame
from tests.support.raw.rawkafka import Codec, RawRecord, encode_record, varint
from tests.support.session.examples import examples
from tests.support.session.memory import Peak
from tests.unit.wire.batches.test_records import CODECS, compacted_batch, holed_records

MIB = 1 << 20
# Loading Arrow takes its time, once.
FEWER = settings(max_examples=examples(20))
PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
# One record that fits, of some hundred; their bytes are the same size.
ROOM = Ceiling(64 * MIB, 64 * MIB)


def pieces(batch: Buffer, ceiling: Ceiling) -> list[Unpacked]:
    """Return a batch in pieces."""
    return list(unpack_pieces(parse_header(batch), batch, ceiling))


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused_and_never_expanded(codec: Codec) -> None:
    """A gigabyte of zeros (snappy, which needs 5 % of it: a tenth); with and without pieces."""
    size = 100 * MIB if codec is Codec.SNAPPY else 1000 * MIB
    batch = bomb(codec, size)
    header = parse_header(batch)
    list(decompress_chunks(codec, compressed(codec, b"x", 10), 1 << 16, 1 << 16))  # Arrow is loaded
    with Peak() as peak:
        with pytest.raises(BatchTooLarge, match="base offset 0") as caught:
            unpack(header, batch, 2 * MIB)
        with pytest.raises(BatchTooLarge, match="base offset 0"):
            list(unpack_pieces(header, batch, Ceiling(MIB, 4 * MIB)))
        with pytest.raises(BatchTooLarge):
            list(decode(header, batch, Ceiling(MIB, 4 * MIB)))
    assert caught.value.behind == 1
    assert peak.grown_mib < 20 + len(batch) / MIB


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_that_expands_far_is_read_within_memory(codec: Codec) -> None:
    """Its records are honest and many: 200 MB of them, a few MB at a time."""
    batch = expanding(codec, 200, MIB)
    with Peak() as peak:
        offsets = [r.offset for r in decode(parse_header(batch), batch, Ceiling(2 * MIB, 4 * MIB))]
    assert offsets == list(range(200))
    assert peak.grown_mib < 24


@pytest.mark.parametrize("codec", [Codec.NONE, *PACKED])
def test_a_record_larger_than_its_piece_is_not_gathered_byte_by_byte(codec: Codec) -> None:
    """Single records are asked for where a handler hung: a piece of one byte is none of the expanding."""
    record = encode_record(RawRecord(b"k", bytes(4 * MIB)), 0, 0)
    head = record.rstrip(b"\0")
    batch = seal(compressed(codec, head, len(record) - len(head)), codec=codec)
    pieces(batch, Ceiling(1 << 16, 8 * MIB))  # Arrow is loaded
    with Peak() as peak:
        [piece] = pieces(batch, Ceiling(1, 8 * MIB))
    assert piece.payload == record
    assert peak.grown_mib < 3 * 4 + 4


@pytest.mark.parametrize("codec", CODECS)
@FEWER
@given(records=holed_records(), tail=st.integers(0, 9), piece_bytes=st.integers(1, 2000))
def test_pieces_laid_end_to_end_are_the_batch(
    codec: int, records: list[DecodedRecord], tail: int, piece_bytes: int
) -> None:
    """Every piece says how far it reaches, the last one to the batch's end; none is too large."""
    batch = compacted_batch(records, codec, tail=tail)
    header = parse_header(batch)
    found = pieces(batch, Ceiling(piece_bytes, 1 << 20))
    assert [record for piece in found for record in decode_payload(piece)] == records
    reached = header.base_offset
    for piece in found:
        inside = [record.offset for record in decode_payload(piece)]
        assert reached <= inside[0] and inside[-1] < piece.header.next_offset
        assert len(inside) == 1 or len(piece.payload) + len(inside) * RECORD_BYTES <= piece_bytes
        reached = piece.header.next_offset
    assert reached == header.next_offset


@FEWER
@given(records=holed_records(), data=st.data())
def test_damage_in_a_piece_is_never_something_else(records: list[DecodedRecord], data: st.DataObject) -> None:
    """Records that were read before it are those of the batch, and the position stays before it."""
    batch = bytearray(compacted_batch(records, 0))
    at = data.draw(st.integers(61, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    whole: list[DecodedRecord] | None
    try:
        whole = list(decode_payload(unpack(parse_header(batch), batch, ROOM.piece_bytes)))
    except CorruptBatch:
        whole = None
    seen: list[DecodedRecord] = []
    try:
        for piece in unpack_pieces(parse_header(batch), batch, Ceiling(RECORD_BYTES, 1 << 20)):
            inside = list(decode_payload(piece))
            assert all(r.offset < piece.header.next_offset for r in inside)
            assert not seen or inside[0].offset > seen[-1].offset
            seen += inside
    except CorruptBatch:
        assert whole is None or seen == whole[: len(seen)]
        return
    assert seen == whole


@pytest.mark.parametrize(
    ("deltas", "count", "tail"),
    [
        ([0, 1, 2, 2], 4, b""),
        ([0, 1, 3, 2], 4, b""),
        ([0, 1, 2, 9], 4, b""),
        ([0, 1, 2, 3], 5, b""),
        ([0, 1, 2, 3], 3, b""),
        ([0, 1, 2, 3], 4, b"\0\0\0"),
        ([0, 1, 2, 3], 1 << 31 - 1, b""),
        ([0, 1, 2, 3], -1, b""),
        ([0, 1, 2, 3], 5, b"\x01\0\0\0\0\0\0"),
        ([0, 1, 2, 3], 5, varint(1 << 31)),
        ([0, 1, 2, 3], 5, b"\xff" * 11),
    ],
    ids=[
        "a delta twice",
        "deltas fall",
        "behind the batch",
        "one missing",
        "one too many",
        "bytes left over",
        "two thousand million records",
        "minus one record",
        "a negative length",
        "a record of 2 GB that is not there",
        "a varint without an end",
    ],
)
def test_a_lying_batch_is_damaged_whole_or_in_pieces(deltas: list[int], count: int, tail: bytes) -> None:
    """Whatever its counts and lengths say; its last record is not given out before all was seen."""
    records = b"".join(encode_record(RawRecord(b"k", b"v"), delta, 0) for delta in deltas)
    batch = seal(records + tail, count=count, last_delta=3)
    header = parse_header(batch)
    for ceiling in (ROOM, Ceiling(RECORD_BYTES, 1 << 16)):
        seen: list[int] = []
        with pytest.raises(CorruptBatch, match="base offset 0"):
            seen.extend(record.offset for record in decode(header, batch, ceiling))
        assert seen == deltas[: len(seen)] and len(seen) < 4


@pytest.mark.parametrize("codec", PACKED)
def test_a_record_is_judged_by_what_it_claims_before_it_is_gathered(codec: Codec) -> None:
    """It would be refused in the end, with as much of it in memory as a record may take."""
    first = encode_record(RawRecord(b"k", b"v"), 0, 0) + varint(200 * MIB)
    batch = seal(compressed(codec, first, 120 * MIB), codec=codec, count=2)
    header = parse_header(batch)
    list(decompress_chunks(codec, compressed(codec, b"x", 10), 1 << 16, 1 << 16))  # Arrow is loaded
    with Peak() as peak, pytest.raises(BatchTooLarge, match="base offset 0"):
        list(unpack_pieces(header, batch, Ceiling(MIB, 100 * MIB)))
    assert peak.grown_mib < 20


def test_a_record_longer_than_its_uncompressed_batch_is_damaged() -> None:
    """All of it is here already: more memory would not help."""
    batch = seal(encode_record(RawRecord(b"k", b"v"), 0, 0) + varint(200 * MIB) + bytes(9999), count=2)
    with pytest.raises(CorruptBatch, match="base offset 0"):
        pieces(batch, Ceiling(1 << 9, 1 << 16))


def test_a_snappy_block_that_lies_about_its_size_is_damaged() -> None:
    """It says 4 GB in five bytes; nothing is allocated for it."""
    lie = b"\xff\xff\xff\xff\x0f" + b"\0a"
    framed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(lie)) + lie
    with Peak() as peak:
        for payload in (lie, framed):
            with pytest.raises(CorruptBatch):
                decompress(Codec.SNAPPY, payload, 1 << 33)
    assert peak.grown_mib < 5


def test_a_large_snappy_block_needs_its_room() -> None:
    """One raw block cannot be had in pieces (librdkafka writes such); with the room for it, it is read."""
    record = encode_record(RawRecord(b"k", bytes(3 * MIB)), 0, 0)
    batch = seal(bytes(cramjam.snappy.compress_raw(record)), codec=Codec.SNAPPY)
    with pytest.raises(BatchTooLarge):
        pieces(batch, Ceiling(MIB, 2 * MIB))
    assert len(pieces(batch, Ceiling(MIB, 4 * MIB))) == 1


def test_an_uncompressed_record_is_read_whatever_its_size() -> None:
    """It is in memory already: the limit gives way for it, and no further."""
    batch = seal(encode_record(RawRecord(b"k", bytes(3 * MIB)), 0, 0))
    assert len(pieces(batch, Ceiling(1 << 10, 1 << 10))) == 1


def test_a_window_larger_than_the_room_is_refused() -> None:
    """A decoder would fill 128 MiB however little of the output is taken at once."""
    record = encode_record(RawRecord(b"k", b""), 0, 0)
    wide = zstd_frame(record, 0, window_log=27)
    assert window_bytes(memoryview(wide)) == 128 * MIB
    assert window_bytes(memoryview(zstd_frame(b"", 0) + wide)) == 128 * MIB
    # A whole that is small is expanded at once, which needs no window.
    assert decompress(Codec.ZSTD, wide, 1 << 10) == record
    many = seal(zstd_frame(record, 1 << 20, window_log=27), codec=Codec.ZSTD)
    with pytest.raises(BatchTooLarge):
        pieces(many, Ceiling(1 << 10, 64 * MIB))
    with pytest.raises(CorruptBatch):
        pieces(many, Ceiling(1 << 10, 128 * MIB))


@given(data=st.binary(max_size=3000), level=st.integers(1, 19))
def test_the_window_of_what_libraries_write_is_found(data: bytes, level: int) -> None:
    """Without a window, the content is one; frames that follow count, too."""
    frame = bytes(cramjam.zstd.compress(data, level=level))
    assert window_bytes(memoryview(frame)) >= len(data)
    assert window_bytes(memoryview(frame + zstd_frame(b"", 0, window_log=23))) == 8 * MIB


@given(st.binary(max_size=60))
def test_garbage_asks_for_no_window(garbage: bytes) -> None:
    """No error, and no loop without an end."""
    window_bytes(memoryview(garbage))
    window_bytes(memoryview(b"\x28\xb5\x2f\xfd" + garbage))
