"""Kafka's compression types, each by the name of the format that clients write.

Invariant: a payload is expanded a piece at a time, however far: a few kilobytes can stand for gigabytes.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import cramjam

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

# Java clients frame snappy in blocks (xerial's snappy-java): magic, two versions, then length and block.
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK = struct.Struct(">i")
# Three bytes of snappy say "64 bytes from there" at most.
_SNAPPY_FACTOR: Final = 22
# zlib's way to say: the largest window, with gzip's own head and tail.
_GZIP_BITS: Final = 31
_PIECE_BYTES: Final = 4 << 20
# Room for what nearly all batches expand to, which need no stream then. A thread keeps its own: the system
# takes longer to hand out new memory than it takes to fill it.
_kept = threading.local()


class Inexpansible(Exception):
    """The codec cannot give this payload in pieces, and as a whole it is larger than allowed."""


def expand(codec: int, payload: memoryview, whole_bytes: int) -> Iterator[bytes]:
    """Yield a batch's records as they were before compression, a few megabytes at a time.

    Args:
        codec: the lowest three bits of the batch's attributes.
        whole_bytes: the most that may come at once where a codec cannot cut (a block of snappy).

    Raises:
        ValueError: no valid payload of this codec; pieces before the damage were yielded.
        Inexpansible: more than ``whole_bytes`` would have to come at once.
    """
    try:
        yield from _expand(codec, payload, whole_bytes)
    except (cramjam.DecompressionError, zlib.error, OSError, EOFError) as error:
        # The codec's own words stay out: they may quote what they could not read.
        raise ValueError(f"no payload of codec {codec}") from error


def _expand(codec: int, payload: memoryview, whole_bytes: int) -> Iterator[bytes]:
    if codec == NONE:
        yield bytes(payload)
    elif codec == GZIP:
        yield from _gzip(bytes(payload))
    elif codec == SNAPPY:
        yield from _snappy(payload, whole_bytes)
    elif codec == LZ4:
        yield from _framed("lz4", cramjam.lz4.decompress_into, payload)
    elif codec == ZSTD:
        yield from _framed("zstd", cramjam.zstd.decompress_into, payload)
    else:
        raise ValueError(f"codec {codec} is none of Kafka's")


def _gzip(payload: bytes) -> Iterator[bytes]:
    if not payload:
        raise EOFError
    while payload:
        member = zlib.decompressobj(_GZIP_BITS)
        while not member.eof:
            piece = member.decompress(payload, _PIECE_BYTES)
            payload = member.unconsumed_tail
            if not piece and not member.eof:
                raise EOFError
            yield piece
        # Members may follow one another, and zeros may fill up the end.
        payload = member.unused_data.lstrip(b"\0")


def _framed(name: str, into: Callable[[memoryview, Any], int], payload: memoryview) -> Iterator[bytes]:
    room = _room()
    try:
        size = into(payload, room)
    except (cramjam.DecompressionError, OSError):
        # Damaged, or larger than that: the stream tells which.
        yield from _stream(name, payload)
    else:
        yield bytes(memoryview(room)[:size])


def _room() -> bytearray:
    if not hasattr(_kept, "room"):
        _kept.room = bytearray(_PIECE_BYTES)
    room: bytearray = _kept.room
    return room


def _stream(name: str, payload: memoryview) -> Iterator[bytes]:
    # Arrow takes a quarter of a second to load.
    import pyarrow as pa

    if not payload:
        raise EOFError
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(payload)), name) as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece


def _snappy(payload: memoryview, whole_bytes: int) -> Iterator[bytes]:
    if bytes(payload[: len(_XERIAL)]) != _XERIAL:
        yield _snappy_block(payload, whole_bytes)
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(payload):
        if at + _BLOCK.size > len(payload):
            raise ValueError("a snappy block without its length")
        (size,) = _BLOCK.unpack_from(payload, at)
        at += _BLOCK.size
        if size < 0 or at + size > len(payload):
            raise ValueError("a snappy block that is cut off")
        yield _snappy_block(payload[at : at + size], whole_bytes)
        at += size


def _snappy_block(block: memoryview, whole_bytes: int) -> bytes:
    stated = cramjam.snappy.decompress_raw_len(block)
    if stated > _SNAPPY_FACTOR * len(block):
        raise ValueError("a snappy block that cannot hold what it says")
    if stated > whole_bytes:
        raise Inexpansible
    return bytes(cramjam.snappy.decompress_raw(block))
