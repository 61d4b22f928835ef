"""The fingerprint of a stretch of records: their number, their multiset and their order in three numbers.

Invariant: two stretches that were taken over the same pieces have the same digest exactly when they hold
the same records in the same order, but for a chance of about 2**-64 among 2**32 records, and whoever chooses
the records cannot raise it: ``chain`` is a hash over all pieces, of which nobody can make two alike with less
than 2**64 work. ``sum`` only tells another order from other records.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from onceover.audit.model import ComparedAs, Digest, Range, Side
from onceover.audit.records.batches import Batch
from onceover.audit.records.outlines import Hashed
from onceover.audit.records.recordhash import HASH_BYTES, AuditedRecord

_MODULUS_MASK: Final = (1 << 128) - 1


class RunningDigest:
    """A digest that grows piece by piece; memory does not."""

    def __init__(self) -> None:
        self._records = self._sum = self._bytes = 0
        self._chain = blake2b(digest_size=HASH_BYTES)
        self._first = self._last = -1
        self._whole = self._single = False

    def add_record(self, record: AuditedRecord | None) -> None:
        """Add a record; None, a side's end, adds nothing."""
        if record is None:
            return
        self._single = True
        self._records += 1
        self._bytes += len(record.key or b"") + len(record.value or b"")
        self._mix(record.hash)
        self._seen(record.timestamp_ms, record.timestamp_ms)

    def add_hashed(self, records: Hashed) -> None:
        """Add records as ``add_record`` would, one by one."""
        self._single = True
        self._records += records.records
        self._bytes += records.payload_bytes
        self._sum = (self._sum + records.sum) & _MODULUS_MASK
        self._chain.update(records.hashes)
        if records.negative:
            # A timestamp that is none makes whatever follows the first one.
            self._first = -1
        self._seen(records.first_ms, records.last_ms)

    def add_batch(self, batch: Batch, content: bytes | None = None) -> bytes:
        """Add a whole batch that the other side has byte for byte, and adds too.

        Args:
            batch: it is hashed, not decoded.
            content: its hash, when the other side's has been taken; spares taking it again.

        Returns:
            the hash of its content.
        """
        content = batch.content_hash() if content is None else content
        self._whole = True
        self._records += batch.records
        self._bytes += batch.size_bytes
        self._mix(content)
        self._seen(batch.first_timestamp_ms, batch.max_timestamp_ms)
        return content

    def digest(self, of: Range, side: Side) -> Digest:
        """Return the digest of what was added."""
        return Digest(
            of,
            side,
            self._records,
            self._sum,
            int.from_bytes(self._chain.digest(), "big"),
            self._bytes,
            self._first,
            self._last,
            self._compared(),
        )

    def _mix(self, content: bytes) -> None:
        number = int.from_bytes(content, "big")
        self._sum = (self._sum + number) & _MODULUS_MASK
        self._chain.update(content)

    def _seen(self, first_ms: int, last_ms: int) -> None:
        self._first = first_ms if self._first < 0 else min(self._first, first_ms)
        self._last = max(self._last, last_ms)

    def _compared(self) -> ComparedAs:
        if self._whole and self._single:
            return ComparedAs.MIXED
        return ComparedAs.BYTES if self._whole else ComparedAs.RECORDS
