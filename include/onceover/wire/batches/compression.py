"""The codecs of record batches, written and read so that Kafka's Java classes agree.

Invariant: what :func:`compress` writes, every Kafka broker and client since 1.0 (zstd: 2.1) reads;
what they write, :func:`decompress` reads. Checked against the Java client's own streams.

A few bytes can stand for gigabytes (zstd: 1 for 30,000), so nothing is expanded without a ceiling, and
no size that a stream states about itself is believed.
"""

from __future__ import annotations

import gzip
import mmap
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import cramjam

from onceover.wire.batches.batch import BatchTooLarge, Buffer, CorruptBatch
from onceover.wire.batches.zstdframe import window_bytes

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
# By how far a byte can expand: 1, 22, 255, 1,000 and 30,000 times.
WEAKEST_FIRST: Final = (NONE, SNAPPY, LZ4, GZIP, ZSTD)
CODEC_NAMES: Final = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

# Kafka's own default levels (KIP-390), except lz4: its level 9 takes 35 times the CPU of level 1
# for 12 % fewer bytes (65 against 1.8 ms per MB of JSON, measured).
_GZIP_LEVEL: Final = 6
_LZ4_LEVEL: Final = 1
_ZSTD_LEVEL: Final = 3

# snappy-java's stream: this head (magic, version 1, compatible with 1), then blocks of at most
# 32 KiB of data, each after its compressed length. Only the magic is compared when reading, because
# other brokers write the two versions in little-endian.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

# What a copy of 3 bytes can stand for is 64: no snappy block expands further.
_SNAPPY_RATIO: Final = 22
# With a gzip head, and as large a window as there is.
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
# RFC 8878 recommends every decoder to grant this window; compression levels up to 19 ask for no more.
_ZSTD_WINDOW: Final = 8 << 20
# Most batches expand less than this, so that the ceiling is rarely needed as room.
_USUAL_RATIO: Final = 10
_SMALL_BYTES: Final = 64 << 10
# How cramjam says that the room did not suffice (Rust's text for a write of nothing); all else is damage.
_NO_ROOM: Final = "failed to write whole buffer"


def decompress(codec: int, payload: Buffer, limit_bytes: int) -> bytes:
    """Return the records of a batch whose attributes name ``codec``.

    Args:
        limit_bytes: the most that may come out.

    Raises:
        CorruptBatch: the bytes are no stream of that codec, are cut off, or the codec is unknown.
        BatchTooLarge: more than ``limit_bytes`` come out; no more than that was ever expanded.
    """
    view = memoryview(payload)
    _check_known(codec)
    with _Damage(codec, view):
        if codec in _INTO:
            return _decompress_into(codec, view, limit_bytes)
        parts, size = [], 0
        for part in _CHUNKS[codec](view, limit_bytes + 1):
            parts.append(part)
            size += len(part)
            if size > limit_bytes:
                raise _too_large(codec, view, limit_bytes)
        return b"".join(parts)


def decompress_chunks(codec: int, payload: Buffer, chunk_bytes: int, block_bytes: int) -> Iterator[bytes]:
    """Yield what ``decompress`` returns a piece at a time: for batches that are too large as a whole.

    Args:
        chunk_bytes: the most that is yielded at once, where the codec can do it.
        block_bytes: the most that the codec may take where it cannot: a block of snappy, zstd's window
            (8 MiB of which are always granted).

    Raises:
        CorruptBatch: as ``decompress``; pieces before the damage were yielded.
        BatchTooLarge: the codec needs more than ``block_bytes``.
    """
    view = memoryview(payload)
    _check_known(codec)
    with _Damage(codec, view):
        if codec == ZSTD and window_bytes(view) > max(block_bytes, _ZSTD_WINDOW):
            raise _too_large(codec, view, block_bytes)
        yield from _CHUNKS[codec](view, block_bytes if codec == SNAPPY else chunk_bytes)


class _Damage:
    """Turns what the codecs raise into our own errors; a context manager."""

    def __init__(self, codec: int, payload: memoryview) -> None:
        self._codec = codec
        self._payload = payload

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, cramjam.DecompressionError | OSError | EOFError | zlib.error):
            raise CorruptBatch(
                f"a record batch cannot be decompressed ({CODEC_NAMES[self._codec]})",
                expected=f"a whole {CODEC_NAMES[self._codec]} stream",
                seen=f"{len(self._payload)} bytes that are none ({type(error).__name__})",
            ) from error


def _check_known(codec: int) -> None:
    if codec not in CODEC_NAMES:
        raise CorruptBatch(
            "a record batch names an unknown compression codec", expected="0 to 4", seen=str(codec)
        )


def _too_large(codec: int, payload: memoryview, limit_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(
        "a record batch expands too far to be taken apart",
        expected=f"at most {limit_bytes} bytes at once",
        seen=f"more than that out of {len(payload)} bytes of {CODEC_NAMES[codec]}",
    )


def compress(codec: int, data: Buffer) -> bytes:
    """Return ``data`` as the payload of a batch whose attributes name ``codec``.

    Raises:
        ValueError: the codec is unknown.
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        # A fixed mtime: equal records give equal bytes, whenever they are re-encoded.
        return gzip.compress(data, _GZIP_LEVEL, mtime=0)
    if codec == SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec == LZ4:
        return _compress_lz4(data)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    raise ValueError(f"unknown compression codec {codec}")


def _compress_lz4(data: Buffer) -> bytes:
    # Not cramjam.lz4.compress: it links the blocks, and Kafka refuses dependent blocks (KIP-57).
    compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _compress_snappy(data: memoryview) -> bytes:
    parts: list[bytes] = [_XERIAL_HEAD]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_into(codec: int, payload: memoryview, limit_bytes: int) -> bytes:
    """Expand into a buffer of fixed size, which the codec cannot leave."""
    usual = max(_SMALL_BYTES, _USUAL_RATIO * len(payload))
    for room in (min(usual, limit_bytes), limit_bytes):
        try:
            return _into(_INTO[codec], payload, room)
        except (cramjam.DecompressionError, OSError) as error:
            if _NO_ROOM not in str(error):
                raise
    raise _too_large(codec, payload, limit_bytes)


def _into(expand: Callable[[memoryview, Any], int], payload: memoryview, size: int) -> bytes:
    if size <= _SMALL_BYTES:
        small = bytearray(size)
        return bytes(memoryview(small)[: expand(payload, small)])
    with _room(size) as room:
        return room[: expand(payload, room)]


def _room(size: int) -> mmap.mmap:
    """Return fresh pages, which cost nothing until they are written to, however many they are."""
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    except OSError as error:
        # Not to be taken for damage: this machine has no more.
        raise MemoryError(f"no room for {size} bytes") from error


def _plain_chunks(payload: memoryview, chunk_bytes: int) -> Iterator[bytes]:
    for at in range(0, len(payload), chunk_bytes):
        yield bytes(payload[at : at + chunk_bytes])


def _gzip_chunks(payload: memoryview, chunk_bytes: int) -> Iterator[bytes]:
    """Yield the members of a gzip stream one after the other, as the standard library joins them."""
    rest = bytes(payload)
    if not rest:
        # To the standard library, no bytes are a valid stream of no members.
        raise EOFError("no gzip member")
    while rest:
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            chunk = member.decompress(rest, chunk_bytes)
            rest = member.unconsumed_tail
            if chunk:
                yield chunk
            elif not member.eof:
                raise EOFError("a gzip member is cut off")
        rest = member.unused_data.lstrip(b"\0")


def _stream_chunks(name: str, payload: memoryview, chunk_bytes: int) -> Iterator[bytes]:
    # Arrow takes a quarter of a second and 50 MB to load, which only batches that come in pieces pay.
    import pyarrow as pa

    if not payload:
        raise EOFError("no frame")
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(payload)), name) as stream:
        while chunk := stream.read(chunk_bytes):
            yield chunk


def _lz4_chunks(payload: memoryview, chunk_bytes: int) -> Iterator[bytes]:
    yield from _stream_chunks("lz4", payload, chunk_bytes)


def _zstd_chunks(payload: memoryview, chunk_bytes: int) -> Iterator[bytes]:
    yield from _stream_chunks("zstd", payload, chunk_bytes)


def _is_xerial_head(payload: memoryview, at: int) -> bool:
    return bytes(payload[at : at + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _snappy_chunks(payload: memoryview, block_bytes: int) -> Iterator[bytes]:
    if not _is_xerial_head(payload, 0):
        # librdkafka writes one raw block without any frame, and snappy-java reads that too.
        yield _snappy_block(payload, block_bytes)
        return
    at, end = 0, len(payload)
    while at < end:
        if _is_xerial_head(payload, at):
            # Flushed streams may be concatenated: each brings its head again.
            at += len(_XERIAL_HEAD)
            continue
        size = int.from_bytes(payload[at : at + 4], "big")
        at += 4
        if at + size > end:
            raise EOFError("a snappy block reaches past the end")
        yield _snappy_block(payload[at : at + size], block_bytes)
        at += size
    if at != end:
        raise EOFError("a snappy head or block length is cut off")


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    """Expand one block, which cannot be had in pieces; what it says that it holds is allocated at once."""
    stated = cramjam.snappy.decompress_raw_len(block)
    if stated > _SNAPPY_RATIO * len(block):
        raise EOFError("a snappy block that cannot hold what it says")
    if stated > limit_bytes:
        raise _too_large(SNAPPY, block, limit_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


_INTO: Final[dict[int, Callable[[memoryview, Any], int]]] = {
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
_CHUNKS: Final[dict[int, Callable[[memoryview, int], Iterator[bytes]]]] = {
    NONE: _plain_chunks,
    GZIP: _gzip_chunks,
    SNAPPY: _snappy_chunks,
    LZ4: _lz4_chunks,
    ZSTD: _zstd_chunks,
}
