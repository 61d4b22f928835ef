"""The header of a record batch (magic 2, KIP-98): parse, check, and stamp with our producer fields.

Invariant: the payload of a batch is never looked at here. What a passed batch means to a reader
(keys, values, headers, timestamps, order) depends on the payload and on the fields kept below.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import crc32c

from onceover.errors import NeedsOperator

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
_CRC_FROM = 21
_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
# Bits that must not reach the target: with LogAppendTime set the broker answers 32; with the
# delete horizon kept, tombstones vanish within seconds; control batches are never passed (docs/facts.md).
_CLEARED = LOG_APPEND_TIME | DELETE_HORIZON | TRANSACTIONAL


class CorruptBatch(NeedsOperator):
    """Bytes that are no valid record batch; copying on would lose or damage records.

    Attributes:
        behind: first offset behind the batch, as far as its header can be believed; None when it cannot. For
            whoever reads the batches: it does not survive pickling.
    """

    def __init__(self, message: str, *, behind: int | None = None, **fields: str | None) -> None:
        super().__init__(message, **fields)
        self.behind = behind


class BatchTooLarge(NeedsOperator):
    """A batch that expands to more than there is memory for; its bytes may be in order.

    Attributes:
        behind: as in ``CorruptBatch``; where ``offset`` is known, behind that record only.
        offset: of the record that takes too much, where it is known and what is before it can be had.
    """

    def __init__(
        self, message: str, *, behind: int | None = None, offset: int | None = None, **fields: str | None
    ) -> None:
        super().__init__(message, **fields)
        self.behind = behind
        self.offset = offset


class BatchHeader(NamedTuple):
    """The 61 bytes in front of every record batch, in the order of the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # the format's word; nobody counts items of a header

    @property
    def last_offset(self) -> int:
        """Offset of the last record the batch had when it was written (compaction may have removed it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset a reader asks for after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return LENGTH_PREFIX_BYTES + self.length

    @property
    def codec(self) -> int:
        """Compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """True for transaction markers and other batches that no application reads."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """True when the records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        """True when readers see ``max_timestamp`` on every record (message.timestamp.type)."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def first_timestamp(self) -> int:
        """The first record's timestamp, or the newest one where the header holds something else there.

        With LogAppendTime readers see that on every record; behind a log cleaner the first field is the time
        from which tombstones may go (KIP-534).
        """
        has_another = self.attributes & (LOG_APPEND_TIME | DELETE_HORIZON)
        return self.max_timestamp if has_another else self.base_timestamp

    @property
    def has_holes(self) -> bool:
        """True when compaction removed records: passing such a batch on would corrupt the target."""
        return self.count != self.last_offset_delta + 1


def parse_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """Read the header at ``at``.

    Raises:
        CorruptBatch: fewer than 61 bytes are there.
    """
    try:
        return BatchHeader._make(_HEADER.unpack_from(buffer, at))
    except struct.error as error:
        raise CorruptBatch(
            "a record batch is shorter than its header",
            expected=f"{HEADER_BYTES} bytes",
            seen=f"{len(buffer) - at} bytes",
        ) from error


def iter_batches(records: memoryview, at: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every whole batch of a Fetch response's ``records``; a cut-off last batch is left out.

    A broker cuts a response at ``partition_max_bytes``, so an incomplete batch at the end is normal. The
    first one is always whole (KIP-74), or nothing is sent at all.

    Args:
        at: where to begin, behind batches that were read already.

    Raises:
        CorruptBatch: a length field that cannot be one, or a magic other than 2.
    """
    end = len(records)
    if 0 < end < HEADER_BYTES:
        raise CorruptBatch("a record batch is cut off", expected=f"{HEADER_BYTES} bytes", seen=f"{end} bytes")
    while end - at >= HEADER_BYTES:
        header = parse_header(records, at)
        size = header.size_bytes
        if size < HEADER_BYTES or header.magic != 2:
            raise CorruptBatch(
                f"no record batch at base offset {header.base_offset}",
                expected="magic 2 and a length of at least 49 bytes (brokers of 4.x store nothing else)",
                seen=f"magic {header.magic}, length {header.length}",
            )
        if at + size > end:
            if not at:
                raise CorruptBatch(
                    f"the batch at base offset {header.base_offset} is damaged",
                    expected=f"at most {end} bytes, which is what came",
                    seen=f"a length of {size} bytes",
                )
            return
        yield header, records[at : at + size]
        at += size


def verify(header: BatchHeader, batch: Buffer) -> None:
    """Check the source's CRC-32C before the bytes are passed on under a new one.

    Raises:
        CorruptBatch: the bytes are not those that the producer or broker wrote.
    """
    seen = crc32c.crc32c(memoryview(batch)[_CRC_FROM:])
    if seen != header.crc:
        raise CorruptBatch(
            f"the batch at base offset {header.base_offset} is damaged",
            expected=f"CRC-32C {header.crc:#010x}",
            seen=f"{seen:#010x}",
            behind=header.next_offset,
        )


def stamp(
    batch: bytearray | memoryview,
    header: BatchHeader,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    transactional: bool = True,
) -> None:
    """Make ``batch`` ours, in place: producer fields, transactional bit, base offset 0, new CRC.

    ``batch`` must be writable. ``header`` is the batch's own header as it was parsed. Whether the source's
    batch was transactional does not matter: a broker refuses the bit from a producer without transactions.
    """
    attributes = (header.attributes & ~_CLEARED) | (TRANSACTIONAL if transactional else 0)
    after = (
        attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        header.count,
    )
    view = memoryview(batch)
    crc = crc32c.crc32c(view[HEADER_BYTES:], crc32c.crc32c(_AFTER_CRC.pack(*after)))
    _HEADER.pack_into(view, 0, 0, header.length, -1, 2, crc, *after)


def seal(
    payload: Buffer,
    *,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> bytearray:
    """Return a batch around ``payload`` (compressed as ``attributes`` says), ready to be stamped."""
    batch = bytearray(HEADER_BYTES + len(payload))
    batch[HEADER_BYTES:] = payload
    seal_there(
        batch,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        count=count,
    )
    return batch


def seal_there(
    batch: bytearray,
    *,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> None:
    """Write the header of ``batch``, whose payload stands behind the room for it; otherwise as ``seal``."""
    after = (attributes, last_offset_delta, base_timestamp, max_timestamp, -1, -1, -1, count)
    crc = crc32c.crc32c(memoryview(batch)[HEADER_BYTES:], crc32c.crc32c(_AFTER_CRC.pack(*after)))
    _HEADER.pack_into(batch, 0, 0, len(batch) - LENGTH_PREFIX_BYTES, -1, 2, crc, *after)
