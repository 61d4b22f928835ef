"""Record batches (magic 2, KIP-98) as the audit reads them: walk, compare as bytes, decode.

Written from the format's description beside the replicator's own codec: a wrong idea of one about the
format is not shared by the other (G9).

Invariant: every byte of a batch is accounted for. A checksum that does not match, a length that does not
fit or bytes left over make the batch ``Unreadable``; nothing is guessed. A batch is expanded piece by piece:
memory is bounded by its largest record, and that by what the reader allows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

import crc32c

from onceover.audit.model import Reason
from onceover.audit.records.decompress import Inexpansible, expand
from onceover.audit.records.fields import MalformedError, field, headers, varint
from onceover.audit.records.outlines import BatchNumbers, OutlinedRecords, outlined
from onceover.audit.records.recordhash import HASH_BYTES, AuditedRecord, Headers, make_rec
from onceover.errors import NeedsOperator

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX_BYTES: Final = 12  # base offset and length, which the length does not count
_LEAST_LENGTH: Final = _HEADER.size - _PREFIX_BYTES
_CHECKED_FROM: Final = 21  # behind the checksum
_SIGN, _LONGS = 1 << 63, 1 << 64
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40
# What a reader can tell: how the payload is compressed, and whose timestamps count. The delete horizon
# is in the mask because base_timestamp then is no timestamp (KIP-534).
_READERS_BITS: Final = _CODEC | _LOG_APPEND_TIME | _DELETE_HORIZON
_CONTENT = struct.Struct(">hiqqi")
_CONTROL_KEY = struct.Struct(">hh")
# Of a single record, expanded. Brokers take a megabyte, compressed, unless they are told otherwise.
LARGEST_RECORD_BYTES: Final = 64 << 20
# No client needs more; each takes some seventy bytes when it is taken apart, however short it is.
_MOST_HEADERS: Final = 100_000


class Unreadable(NeedsOperator):
    """Bytes that are no valid record batch: neither the copy nor any reader can make records of them."""

    reason = Reason.UNREADABLE


class TooLarge(Unreadable):
    """A batch with a record that takes more memory than an audit uses for one; it may be in order."""

    reason = Reason.TOO_LARGE


class Batch(NamedTuple):
    """A batch as it was stored; ``data`` is a view of all of it, valid as long as its buffer is.

    Args:
        data: header and payload.
        base_offset: of the first record that was written (compaction may have removed it).
        last_offset: of the last one, likewise.
        attributes: as stored.
        base_timestamp_ms: of the header; records' timestamps count from it.
        max_timestamp_ms: of the header.
        producer_id: -1 for none.
        records: how many are there.
    """

    data: memoryview
    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    records: int

    @property
    def size_bytes(self) -> int:
        """Size as stored, header included."""
        return len(self.data)

    @property
    def is_control(self) -> bool:
        """True for transaction markers, which no reader sees."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        """True when it belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        """True when readers see ``max_timestamp_ms`` on every record."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def first_timestamp_ms(self) -> int:
        """A timestamp of the batch: the first record's, or every record's with LogAppendTime."""
        if self.attributes & (_LOG_APPEND_TIME | _DELETE_HORIZON):
            return self.max_timestamp_ms
        return self.base_timestamp_ms

    @property
    def payload(self) -> memoryview:
        """The records, compressed as the header says."""
        return self.data[_HEADER.size :]

    def control_type(self) -> int:
        """Return what a control batch says: 0 abort, 1 commit, others are none of a reader's business.

        Raises:
            Unreadable: it is damaged.
        """
        first = next(self.decode(), None)
        key = b"" if first is None else first.key or b""
        if len(key) < _CONTROL_KEY.size:
            raise unreadable(
                self.base_offset, "a control record with a version and a type", f"{len(key)} bytes"
            )
        return int(_CONTROL_KEY.unpack_from(key)[1])

    def same_bytes(self, other: Batch) -> bool:
        """Return True when both hold the same records for certain, by comparing bytes alone.

        What broker and producer wrote around the records is left out: offsets, leader epoch, producer, its
        sequence, transaction, checksum. False says nothing: other bytes may be the same records.
        """
        if len(self.data) != len(other.data) or self._outline() != other._outline():
            return False
        # Copied first: views are compared item by item, at 200 MB/s; bytes at memory speed.
        return bytes(self.payload) == bytes(other.payload)

    def content_hash(self) -> bytes:
        """Return 16 bytes that are equal for two batches exactly when ``same_bytes`` is True."""
        # Twice as fast as blake2b where processors have instructions for it, and they do.
        content = sha256(_CONTENT.pack(*self._outline()))
        content.update(self.payload)
        return content.digest()[:HASH_BYTES]

    def decode(
        self, *, timed: bool = True, record_bytes: int = LARGEST_RECORD_BYTES
    ) -> Iterator[AuditedRecord]:
        """Yield the records in order, expanding as few of them at a time as the compression allows.

        Args:
            timed: False leaves timestamps out of the records' hashes.
            record_bytes: the largest record that is taken apart.

        Raises:
            Unreadable: anything malformed; records before it were yielded.
            TooLarge: a record is larger than ``record_bytes``; likewise.
        """
        for part in self.parts(timed=timed, record_bytes=record_bytes):
            if isinstance(part, OutlinedRecords):
                while part:
                    yield part.take()
            else:
                yield part

    def parts(
        self, *, timed: bool = True, record_bytes: int = LARGEST_RECORD_BYTES
    ) -> Iterator[AuditedRecord | OutlinedRecords]:
        """Yield what ``decode`` does, but many together, and not made yet, where they are outlined.

        Raises:
            Unreadable, TooLarge: as ``decode``.
        """
        window, at, left = b"", 0, self.records
        if not 0 <= left <= self.last_offset - self.base_offset + 1:
            raise unreadable(self.base_offset, f"offsets up to {self.last_offset}", f"{left} records")
        for piece in self._expanded(record_bytes):
            window, at = window[at:] + piece, 0
            while left and (known := outlined(window, at, self._numbers, left, timed)):
                # Before they are handed out: whoever gets them takes them out.
                left, at = left - len(known), known.end
                yield known
            while left and (place := self._place(window, at)) is not None:
                yield self._record(window, place, timed)
                left, at = left - 1, place[1]
            if left and len(window) - at > record_bytes:
                raise too_large(self.base_offset, f"a record of at most {record_bytes} bytes", "a larger one")
            if not left and at != len(window):
                break
        if left:
            raise unreadable(self.base_offset, f"{self.records} records", "an end within one")
        if at != len(window):
            raise unreadable(self.base_offset, "nothing behind the last record", f"{len(window) - at} bytes")

    def _outline(self) -> tuple[int, int, int, int, int]:
        return (
            self.attributes & _READERS_BITS,
            self.last_offset - self.base_offset,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.records,
        )

    @property
    def _numbers(self) -> BatchNumbers:
        return BatchNumbers(
            self.base_offset,
            self.last_offset - self.base_offset,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.is_log_append_time,
        )

    def _expanded(self, record_bytes: int) -> Iterator[bytes]:
        try:
            yield from expand(self.attributes & _CODEC, self.payload, record_bytes)
        except ValueError as error:
            raise unreadable(self.base_offset, "a payload that can be decompressed", "none") from error
        except Inexpansible as error:
            text = f"at most {record_bytes} bytes at once"
            raise too_large(self.base_offset, text, "more, which the codec cannot cut") from error

    def _place(self, window: bytes, at: int) -> tuple[int, int] | None:
        """Return where the record at ``at`` has its fields, and where it ends; None when it is cut off."""
        try:
            length, begin = varint(window, at)
        except IndexError:
            return None
        except MalformedError:
            length = begin = -1
        if length < 0:
            raise unreadable(self.base_offset, "a record's length", "none")
        return (begin, begin + length) if begin + length <= len(window) else None

    def _record(self, data: bytes, place: tuple[int, int], timed: bool) -> AuditedRecord:
        at, end = place
        try:
            timestamp_delta, at = varint(data, at + 1)  # behind the attributes, which are unused
            offset_delta, at = varint(data, at)
            key, at = field(data, at)
            value, at = field(data, at)
            headers, at = self._headers(data, at)
        except (IndexError, MalformedError) as error:
            raise unreadable(self.base_offset, f"{self.records} records", "an end within one") from error
        offset = self.base_offset + offset_delta
        if at != end or not self.base_offset <= offset <= self.last_offset:
            raise unreadable(self.base_offset, "a record of the length and offset that it names", "another")
        timestamp_ms = self.max_timestamp_ms
        if not self.is_log_append_time:
            # Kafka's arithmetic wraps around, so that any two longs have one.
            timestamp_ms = (self.base_timestamp_ms + timestamp_delta + _SIGN) % _LONGS - _SIGN
        return make_rec(offset, key, value, headers, timestamp_ms, timed=timed)

    def _headers(self, data: bytes, at: int) -> tuple[Headers, int]:
        count, at = varint(data, at)
        if count <= 0:
            return (), at
        if count > len(data) - at:
            raise MalformedError
        if count > _MOST_HEADERS:
            raise too_large(self.base_offset, f"a record of at most {_MOST_HEADERS} headers", str(count))
        return headers(data, at, count)


def walk(records: memoryview) -> Iterator[Batch]:
    """Yield every whole batch of a Fetch answer; a last one that is cut off is left out.

    A broker cuts an answer at the size that was asked for, so a part of a batch at its end is normal.

    Raises:
        Unreadable: a checksum does not match, a length cannot be one, or the magic is not 2.
    """
    at = 0
    while len(records) - at >= _HEADER.size:
        fields = _HEADER.unpack_from(records, at)
        base_offset, length, _, magic, checksum, attributes, last_delta, base_ms, max_ms, producer = fields[
            :10
        ]
        if length < _LEAST_LENGTH or magic != 2:
            raise unreadable(base_offset, "a batch of magic 2", f"magic {magic}, length {length}")
        end = at + _PREFIX_BYTES + length
        if end > len(records):
            return
        if crc32c.crc32c(records[at + _CHECKED_FROM : end]) != checksum:
            raise unreadable(base_offset, f"checksum {checksum}", "another: the batch is damaged")
        yield Batch(
            records[at:end],
            base_offset,
            base_offset + last_delta,
            attributes,
            base_ms,
            max_ms,
            producer,
            fields[-1],
        )
        at = end


def too_large(base_offset: int, expected: str, seen: str) -> TooLarge:
    """Return the error of a batch that takes more memory than is allowed."""
    return TooLarge(
        "a record batch takes too much memory to be taken apart",
        code=Reason.TOO_LARGE,
        where=f"batch at offset {base_offset}",
        expected=expected,
        seen=seen,
        resolve="raise limits.memory_per_lane: an audit takes apart what a lane may",
    )


def unreadable(base_offset: int, expected: str, seen: str) -> Unreadable:
    """Return the error of a batch that nobody can take apart."""
    return Unreadable(
        "a record batch cannot be read",
        code=Reason.UNREADABLE,
        where=f"batch at offset {base_offset}",
        expected=expected,
        seen=seen,
        resolve="read the topic with Kafka's own dump-log tool; the broker's disk may be damaged",
    )
