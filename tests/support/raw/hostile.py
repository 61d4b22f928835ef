"""Record batches that mean harm: bombs in every codec, lying lengths and counts, deep headers.

Built by hand from the formats' descriptions, with a CRC that fits unless it is said otherwise: nothing but
their content tells them from honest ones.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Final

import cramjam
import crc32c

from tests.support.raw.rawkafka import Codec, RawRecord, encode_record, varint

_AFTER_CRC = struct.Struct(">hiqqqhii")
_GZIP_HEAD: Final = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
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
        return _gzip(first, zeros)
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


@cache
def _gzip(first: bytes, zeros: int) -> bytes:
    """Behind a full flush equal parts are compressed alike: one does for all of a gigabyte."""
    packer, part = zlib.compressobj(9, wbits=-15), bytes(_PART_BYTES)
    found = [_GZIP_HEAD, packer.compress(first), packer.flush(zlib.Z_FULL_FLUSH)]
    parts, rest = divmod(zeros, _PART_BYTES)
    if parts:
        found.append((packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH)) * parts)
    found += [packer.compress(bytes(rest)), packer.flush()]
    checksum = zlib.crc32(first)
    for _ in range(parts):
        checksum = zlib.crc32(part, checksum)
    found.append(struct.pack("<II", zlib.crc32(bytes(rest), checksum), (len(first) + zeros) % (1 << 32)))
    return b"".join(found)


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


def bomb(codec: Codec, expanded_bytes: int, *, base_offset: int = 0, attributes: int = 0) -> bytes:
    """Return a batch of one honest record whose value is so many zeros."""
    tail = varint(0)  # no headers: the record's last byte
    head = b"\0\0\0" + varint(-1) + varint(expanded_bytes)
    first = varint(len(head) + expanded_bytes + len(tail)) + head
    # The number of headers is a zero byte as well.
    payload = compressed(codec, first, expanded_bytes + len(tail))
    return seal(payload, codec=codec, base_offset=base_offset, attributes=attributes)


def expanding(codec: Codec, count: int, value_bytes: int, *, attributes: int = 0) -> bytes:
    """Return a batch of ``count`` honest records, each with a value of so many zeros."""
    value = bytes(value_bytes)
    records = b"".join(encode_record(RawRecord(None, value), delta, 0) for delta in range(count))
    payload = bytes(cramjam.zstd.compress(records)) if codec is Codec.ZSTD else compressed(codec, records, 0)
    return seal(payload, codec=codec, count=count, attributes=attributes)


def _body(deltas: tuple[int, int] = (0, 0), fields: bytes = b"\x01\x01\0") -> bytes:
    """Return a record's body: attributes, timestamp delta, offset delta, and what follows as it is."""
    return b"\0" + varint(deltas[0]) + varint(deltas[1]) + fields


def _record(body: bytes, length: int | None = None) -> bytes:
    return varint(len(body) if length is None else length) + body


def _honest(*deltas: int) -> bytes:
    return b"".join(encode_record(RawRecord(b"k", b"v"), delta, 0) for delta in deltas)


def _headers(count: int, pairs: int) -> bytes:
    return _record(_body(fields=b"\x01\x01" + varint(count) + b"\0\x01" * pairs))


# Payloads without compression that are no records, or not those that their header promises: what they hold,
# how many records and up to which delta the header says.
LIES: Final[dict[str, tuple[bytes, int, int]]] = {
    "a record of 2 GB that is not there": (varint(1 << 31), 1, 0),
    "a length without an end": (b"\xff" * 4096, 1, 0),
    "a negative length": (_record(_body(), -7), 1, 0),
    "a length of nothing": (_record(_body(), 0), 1, 0),
    "one record too few": (_honest(0), 2, 1),
    "one record too many": (_honest(0, 1), 1, 0),
    "two thousand million records": (_honest(0), (1 << 31) - 1, 1 << 30),
    "minus one record": (_honest(0), -1, 0),
    "no record, and bytes": (_honest(0), 0, 0),
    "nothing, and a record": (b"", 1, 0),
    "bytes left over": (_honest(0) + b"\0\0\0", 1, 0),
    "a delta twice": (_honest(0, 0), 2, 1),
    "deltas that fall": (_honest(1, 0), 2, 1),
    "a delta behind the batch": (_honest(0, 7), 2, 1),
    "a negative delta": (_record(_body((0, -1))), 1, 0),
    "a last delta that is too large": (_honest(0, 1), 2, 9),
    "a last delta that is too small": (_honest(0, 1), 2, 0),
    "a negative last delta": (_honest(0), 1, -2),
    "a timestamp of 64 bits": (_record(_body((-(1 << 63), 0))), 1, 0),
    "a key longer than its record": (_record(_body(fields=varint(99) + b"\x01\0")), 1, 0),
    "a value of 2 GB": (_record(_body(fields=b"\x01" + varint(1 << 31) + b"\0")), 1, 0),
    "a million headers in nine bytes": (_headers(1_000_000, 0), 1, 0),
    "minus one header": (_headers(-1, 0), 1, 0),
    "a header without a name": (_record(_body(fields=b"\x01\x01\x02\x01\x01")), 1, 0),
    "bytes behind the headers": (_record(_body(fields=b"\x01\x01\0\x55")), 1, 0),
    "half a million headers": (_headers(500_000, 500_000), 1, 0),
    "garbage": (bytes(range(1, 250)), 3, 2),
}
_CODEC_LIES: Final[dict[str, tuple[int, bytes]]] = {
    "a codec that there is not": (7, b"x" * 20),
    "zstd that is lz4": (Codec.ZSTD, compressed(Codec.LZ4, _honest(0), 0)),
    "lz4 that is none": (Codec.LZ4, b"no frame of any kind"),
    "gzip with bytes behind": (Codec.GZIP, compressed(Codec.GZIP, _honest(0), 0) + b"behind"),
    "half a gzip": (Codec.GZIP, compressed(Codec.GZIP, _honest(0), 0)[:-9]),
    "zstd with bytes behind": (Codec.ZSTD, compressed(Codec.ZSTD, _honest(0), 0) + b"behind"),
    "a zstd window of 128 MiB": (Codec.ZSTD, zstd_frame(_honest(0), 0, window_log=27)),
    "snappy that says 4 GB": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\0a"),
    "framed snappy that says 4 GB": (
        Codec.SNAPPY,
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 7) + b"\xff\xff\xff\xff\x0f\0a",
    ),
    "a snappy block of minus one byte": (Codec.SNAPPY, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -1)),
    "nothing at all": (Codec.ZSTD, b""),
}


def catalogue(*, attributes: int = 0) -> dict[str, bytes]:
    """Return hostile batches by what is wrong with them; no bombs, which are made to measure."""
    found = {
        name: seal(payload, count=count, last_delta=last, attributes=attributes)
        for name, (payload, count, last) in LIES.items()
    }
    for name, (codec, payload) in _CODEC_LIES.items():
        # Bits, not a codec: some name none.
        found[name] = seal(payload, attributes=codec | attributes)
    return found


def bombs(size_mib: int, *, attributes: int = 0) -> dict[str, bytes]:
    """Return a record that expands that far, and as much in honest records, in every codec."""
    found = {}
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        # Snappy does not make it small enough for a broker to take.
        single_mib = min(size_mib, 15) if codec is Codec.SNAPPY else size_mib
        found[f"a bomb of {codec.name}"] = bomb(codec, single_mib << 20, attributes=attributes)
        found[f"far expanding {codec.name}"] = expanding(codec, size_mib, 1 << 20, attributes=attributes)
    return found


def placed(batch: bytes, base_offset: int) -> bytes:
    """Return a batch as a broker's log holds it at an offset, in its first epoch; the CRC covers neither."""
    return struct.pack(">q", base_offset) + batch[8:12] + struct.pack(">i", 0) + batch[16:]
