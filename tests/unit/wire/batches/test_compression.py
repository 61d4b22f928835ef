"""Codecs round-trip, read what other writers make, and refuse damage by one typed error."""

from __future__ import annotations

import gzip
import struct

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from onceover.wire.batches import compression
from onceover.wire.batches.batch import CorruptBatch

CODECS = sorted(compression.CODEC_NAMES)
COMPRESSED = CODECS[1:]
LARGE = bytes(range(256)) * 1024
# More than anything here expands to.
ROOM = 1 << 20


@pytest.mark.parametrize("codec", CODECS)
@given(
    st.one_of(st.binary(min_size=1, max_size=300), st.binary(min_size=1, max_size=9).map(lambda b: b * 9999))
)
def test_any_data_survives(codec: int, data: bytes) -> None:
    assert data == compression.decompress(codec, memoryview(compression.compress(codec, data)), ROOM)


@pytest.mark.parametrize(
    ("codec", "encode"),
    [
        (compression.GZIP, aiokafka_codec.gzip_encode),
        (compression.SNAPPY, aiokafka_codec.snappy_encode),
        (compression.LZ4, aiokafka_codec.lz4_encode),
        (compression.ZSTD, aiokafka_codec.zstd_encode),
        (compression.SNAPPY, cramjam.snappy.compress_raw),
        (compression.LZ4, cramjam.lz4.compress),
        (compression.GZIP, lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    ],
)
def test_streams_of_other_writers_are_read(codec: int, encode: object) -> None:
    assert callable(encode)
    assert compression.decompress(codec, bytes(encode(LARGE)), ROOM) == LARGE


@pytest.mark.parametrize(
    ("codec", "decode"),
    [
        (compression.GZIP, aiokafka_codec.gzip_decode),
        (compression.SNAPPY, aiokafka_codec.snappy_decode),
        (compression.LZ4, aiokafka_codec.lz4_decode),
        (compression.ZSTD, aiokafka_codec.zstd_decode),
    ],
)
def test_other_readers_read_our_streams(codec: int, decode: object) -> None:
    assert callable(decode)
    assert decode(compression.compress(codec, LARGE)) == LARGE


def test_lz4_frame_has_the_only_shape_that_kafka_reads() -> None:
    """Version 1, independent blocks, no dictionary, no content size (KIP-57); known block size."""
    frame = compression.compress(compression.LZ4, LARGE)
    magic, flags, block = struct.unpack_from("<IBB", frame)
    assert magic == 0x184D2204
    assert flags >> 6 == 1
    assert flags & 0x20, "blocks must be independent"
    assert not flags & 0x09, "no content size, no dictionary"
    assert block in {0x40, 0x50, 0x60, 0x70}


def test_snappy_has_the_frame_of_the_java_library() -> None:
    stream = compression.compress(compression.SNAPPY, LARGE)
    assert stream.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


def test_concatenated_snappy_streams_are_one() -> None:
    stream = compression.compress(compression.SNAPPY, b"one") + compression.compress(
        compression.SNAPPY, b"two"
    )
    assert compression.decompress(compression.SNAPPY, stream, ROOM) == b"onetwo"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_equal_data_gives_equal_bytes(codec: int) -> None:
    assert compression.compress(codec, LARGE) == compression.compress(codec, LARGE)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("cut", [0, 1, 5, 11, 18, -4, -1])
def test_a_truncated_stream_is_refused(codec: int, cut: int) -> None:
    stream = compression.compress(codec, LARGE[:40000])
    with pytest.raises(CorruptBatch, match="cannot be decompressed"):
        compression.decompress(codec, stream[:cut], ROOM)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_after_the_stream_are_refused(codec: int) -> None:
    with pytest.raises(CorruptBatch, match="cannot be decompressed"):
        compression.decompress(codec, compression.compress(codec, LARGE) + b"\x7fjunkjunk", ROOM)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(st.binary(max_size=40))
def test_garbage_is_refused_or_read_never_something_else(codec: int, garbage: bytes) -> None:
    """No exception of a codec library reaches the caller."""
    try:
        compression.decompress(codec, garbage, ROOM)
    except CorruptBatch as error:
        assert error.expected  # noqa: PT017 - the other outcome, success, is right as well


def test_an_unknown_codec_is_refused_both_ways() -> None:
    with pytest.raises(CorruptBatch, match="unknown compression codec"):
        compression.decompress(5, b"x", ROOM)
    with pytest.raises(ValueError, match="unknown compression codec 5"):
        compression.compress(5, b"x")
