"""Record batches that mean harm: bombs in every codec, lying lengths and counts, deep headers.

Built by hand from the formats' descriptions, with a CRC that fits unless it is said otherwise: nothing but
their content tells them from honest ones.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import cramjam
import crc32c

from tests.support.rawkafka import Codec, RawRecord, encode_record, varint

_AFTER_CRC = struct.Struct(">hiqqqhii")
_ZSTD_HEAD: Final = b"\x28\xb5\x2f\xfd\x00"
_ZSTD_BLOCK_BYTES: Final = 128 << 10
_PART_BYTES: Final = 1 << 20
_SNAPPY_BLOCK_BYTES: Final = 32 << 10


def seal(
    payload: bytes,
    *,
    codec: Codec = Codec.NONE,
    count: int = 1,
    last_delta: int | None = None,
    base_offset: int = 0,
    attributes: int = 0,
) -> bytes:
    """Return a batch around any payload, with any count and last delta, and a CRC that fits."""
    last = count - 1 if last_delta is None else last_delta
    checked = _AFTER_CRC.pack(int(codec) | attributes, last, 0, 0, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", base_offset, 9 + len(checked), 0, 2, crc32c.crc32c(checked)) + checked


def zstd_frame(first: bytes, zeros: int, *, window_log: int = 20) -> bytes:
    """Return a zstd frame of ``first`` and so many zeros, four bytes for every 128 KiB of them.

    Args:
        window_log: what the frame asks its reader to keep, as a power of two.
    """
    parts = [_ZSTD_HEAD, bytes(((window_log - 10) << 3,)), _zstd_block(0, len(first)), first]
    while zeros > _ZSTD_BLOCK_BYTES:
        parts += (_zstd_block(1, _ZSTD_BLOCK_BYTES), b"\0")
        zeros -= _ZSTD_BLOCK_BYTES
    parts += (_zstd_block(1, zeros, last=True), b"\0")
    return b"".join(parts)


def _zstd_block(kind: int, size: int, *, last: bool = False) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little")


def compressed(codec: Codec, first: bytes, zeros: int) -> bytes:
    """Return a payload of ``codec`` that expands to ``first`` and so many zeros."""
    if codec is Codec.ZSTD:
        return zstd_frame(first, zeros)
    if codec is Codec.GZIP:
        packer = zlib.compressobj(9, wbits=31)
        return b"".join(packer.compress(part) for part in _parts(first, zeros)) + packer.flush()
    if codec is Codec.LZ4:
        # Blocks of their own, as Kafka demands; the size of the whole is stated nowhere.
        frame = cramjam.lz4.Compressor(level=9, content_checksum=False, block_linked=False)
        for part in _parts(first, zeros):
            frame.compress(part)
        return bytes(frame.finish())
    if codec is Codec.SNAPPY:
        out = bytearray(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
        for part in _blocks(_parts(first, zeros)):
            block = bytes(cramjam.snappy.compress_raw(part))
            out += struct.pack(">i", len(block)) + block
        return bytes(out)
    return first + bytes(zeros)


def _parts(first: bytes, zeros: int) -> Iterator[bytes]:
    yield first
    part = bytes(_PART_BYTES)
    while zeros > 0:
        yield part[: min(zeros, len(part))]
        zeros -= len(part)


def _blocks(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Cut parts into what snappy's Java library writes as a block."""
    for part in parts:
        for at in range(0, len(part), _SNAPPY_BLOCK_BYTES):
            yield part[at : at + _SNAPPY_BLOCK_BYTES]


def bomb(codec: Codec, expanded_bytes: int, *, base_offset: int = 0) -> bytes:
    """Return a batch of one honest record whose value is so many zeros."""
    tail = varint(0)  # no headers: the record's last byte
    head = b"\0\0\0" + varint(-1) + varint(expanded_bytes)
    first = varint(len(head) + expanded_bytes + len(tail)) + head
    # The number of headers is a zero byte as well.
    return seal(compressed(codec, first, expanded_bytes + len(tail)), codec=codec, base_offset=base_offset)


def expanding(codec: Codec, count: int, value_bytes: int) -> bytes:
    """Return a batch of ``count`` honest records, each with a value of so many zeros."""
    value = bytes(value_bytes)
    records = b"".join(encode_record(RawRecord(None, value), delta, 0) for delta in range(count))
    payload = bytes(cramjam.zstd.compress(records)) if codec is Codec.ZSTD else compressed(codec, records, 0)
    return seal(payload, codec=codec, count=count)
