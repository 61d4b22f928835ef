"""Kafka's compression types, each by the name of the format that clients write."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Final

import cramjam

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

# Java clients frame snappy in blocks (xerial's snappy-java): magic, two versions, then length and block.
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK = struct.Struct(">i")


def decompress(codec: int, payload: memoryview) -> bytes:
    """Return a batch's records as they were before compression.

    Args:
        codec: the lowest three bits of the batch's attributes.

    Raises:
        ValueError: no valid payload of this codec.
    """
    try:
        return _decompress(codec, payload)
    except (cramjam.DecompressionError, zlib.error, OSError, EOFError) as error:
        # The codec's own words stay out: they may quote what they could not read.
        raise ValueError(f"no payload of codec {codec}") from error


def _decompress(codec: int, payload: memoryview) -> bytes:
    if codec == NONE:
        return bytes(payload)
    if codec == GZIP:
        return gzip.decompress(payload)
    if codec == SNAPPY:
        return _snappy(payload)
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(payload))
    if codec == ZSTD:
        return bytes(cramjam.zstd.decompress(payload))
    raise ValueError(f"codec {codec} is none of Kafka's")


def _snappy(payload: memoryview) -> bytes:
    if bytes(payload[: len(_XERIAL)]) != _XERIAL:
        return bytes(cramjam.snappy.decompress_raw(payload))
    blocks = []
    at = _XERIAL_HEADER_BYTES
    while at < len(payload):
        if at + _BLOCK.size > len(payload):
            raise ValueError("a snappy block without its length")
        (size,) = _BLOCK.unpack_from(payload, at)
        at += _BLOCK.size
        if size < 0 or at + size > len(payload):
            raise ValueError("a snappy block that is cut off")
        blocks.append(bytes(cramjam.snappy.decompress_raw(payload[at : at + size])))
        at += size
    return b"".join(blocks)
