"""Batches as a broker stores them, made by aiokafka's builder, for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from onceover.audit.records.batches import Batch, walk
from tests.support.raw.mutations import Content

ABORT, COMMIT = range(2)


def stored(
    contents: Sequence[Content],
    *,
    base: int = 0,
    codec: int = 0,
    producer: int = -1,
    transactional: bool = False,
    deltas: Sequence[int] | None = None,
) -> bytes:
    """Return one batch.

    Args:
        base: offset of its first record.
        deltas: of the records' offsets, where compaction has removed some.
    """
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=int(transactional),
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        batch_size=1 << 20,
    )
    for index, content in enumerate(contents):
        delta = index if deltas is None else deltas[index]
        headers = [(name.decode(), value) for name, value in content.headers]
        builder.append(delta, content.timestamp_ms, content.key, content.value, headers)
    return patched(bytes(builder.build()), at=0, layout=">q", value=base)


def patched(batch: bytes, *, at: int, layout: str, value: int) -> bytes:
    """Return the batch with another number in its header, and the checksum that belongs to it."""
    data = bytearray(batch)
    struct.pack_into(layout, data, at, value)
    struct.pack_into(">I", data, 17, crc32c.crc32c(data[21:]))
    return bytes(data)


def log_append(batch: bytes, timestamp_ms: int) -> bytes:
    """Return the batch as a broker stores it that stamps records itself."""
    stamped = patched(batch, at=35, layout=">q", value=timestamp_ms)
    (attributes,) = struct.unpack_from(">h", stamped, 21)
    return patched(stamped, at=21, layout=">h", value=attributes | 0x08)


def marker(kind: int, *, base: int, producer: int) -> bytes:
    """Return the control batch that ends a transaction."""
    record = Content(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), (), 0)
    plain = stored([record], base=base, producer=producer, transactional=True)
    (attributes,) = struct.unpack_from(">h", plain, 21)
    return patched(plain, at=21, layout=">h", value=attributes | 0x20)


def batches(*parts: bytes) -> list[Batch]:
    """Return the batches of a log."""
    return list(walk(memoryview(b"".join(parts))))
