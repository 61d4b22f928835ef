"""Comparing a range as it streams by: whole batches as bytes, single records where bytes differ.

Invariant: both sides' digests speak of the same pieces (a batch only where both sides have it byte for
byte), so that they are equal exactly when the records are, in number, content and order. Nothing is kept:
memory is a batch on each side.

Most batches are what the flow passed through: nothing is decompressed for them, the payload is compared
and hashed once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from onceover.audit.model import Digest, Range, Side
from onceover.audit.records.batches import LARGEST_RECORD_BYTES, Batch, Unreadable
from onceover.audit.records.digest import RunningDigest
from onceover.audit.records.outlines import OutlinedRecords
from onceover.audit.records.reader import ReadBatch
from onceover.audit.records.recordhash import AuditedRecord


class ComparedRange(NamedTuple):
    """Both sides of a range."""

    source: Digest
    target: Digest
    parted: bool

    @property
    def same(self) -> bool:
        """True when both hold the same records in the same order."""
        return not self.parted and self.source.same_content(self.target)


class Cursor:
    """One side's visible records in order, as whole batches where that is possible.

    Args:
        reads: the batches of a partition, from the first range's beginning on.
        start: records before it are left out.
        timed: False leaves timestamps out of the comparison.
        record_bytes: the largest record that is taken apart.
    """

    def __init__(
        self,
        reads: Generator[ReadBatch],
        start: int,
        *,
        timed: bool = True,
        record_bytes: int = LARGEST_RECORD_BYTES,
    ) -> None:
        self._reads = reads
        self._timed = timed
        self._record_bytes = record_bytes
        self._at = start
        self._batch: Batch | None = None
        # Of the batch that has been begun: what counts, what follows, and what is next, in one of two ways.
        self._from = start
        self._parts: Iterator[AuditedRecord | OutlinedRecords] = iter(())
        self._outlined: OutlinedRecords | None = None
        self._next: AuditedRecord | None = None
        self._ended = False
        self._damage: Unreadable | None = None
        self._read_to = start

    def batch(self, end: int) -> Batch | None:
        """Return the next batch if it lies before ``end`` and nothing of it was taken; it stays the next.

        Raises:
            Gone, Unreadable: as ``read_batches``; of damage only what lies before ``end``.
        """
        if self._begun() or not self._load(end):
            return None
        batch = self._batch
        if batch is None or batch.base_offset < self._at or batch.last_offset >= end:
            return None
        return batch

    def pass_batch(self) -> None:
        """Go behind the batch that ``batch`` returned."""
        if self._batch is not None:
            self._at = self._batch.last_offset + 1
            self._batch = None

    def record(self, end: int) -> AuditedRecord | None:
        """Take the next record before ``end``; None when there is none.

        Only records that were asked for are taken apart: a batch may hold more than fits into memory.

        Raises:
            Gone, Unreadable: as ``batch``.
        """
        if not self._open(end):
            return None
        found = self._next
        if found is None and self._outlined is not None and self._outlined.before(end):
            return self._outlined.take()
        if found is None or found.offset >= end:
            return None
        self._next = None
        return found

    def outlined(self, end: int) -> OutlinedRecords | None:
        """Return the next records where they are outlined, at least one of them before ``end``.

        They stay the next ones: whoever takes some, or passes them by, goes on behind these.

        Raises:
            Gone, Unreadable: as ``batch``.
        """
        if not self._open(end) or self._outlined is None or not self._outlined.before(end):
            return None
        return self._outlined

    def _open(self, end: int) -> bool:
        """Begin the next batch where none is begun; return False where nothing lies before ``end``."""
        while not self._begun():
            if not self._load(end) or self._batch is None or self._batch.base_offset >= end:
                return False
            self._from = self._at
            self._parts = self._batch.parts(timed=self._timed, record_bytes=self._record_bytes)
            self.pass_batch()
        return True

    def _begun(self) -> bool:
        """Return True when a batch that has been begun holds more records; the next one stays the next."""
        while self._next is None and not self._outlined:
            part = next(self._parts, None)
            if part is None:
                return False
            if isinstance(part, OutlinedRecords):
                part.pass_by(part.before(self._from))
                self._outlined = part
            elif part.offset >= self._from:
                self._next, self._outlined = part, None
        return True

    def close(self) -> None:
        """Close the connection that it reads from."""
        self._reads.close()

    def _load(self, end: int) -> bool:
        while self._batch is None and not self._ended:
            try:
                read = next(self._reads, None)
            except Unreadable as damage:
                # It may lie behind what is asked for, and so be nobody's business yet.
                self._damage, read = damage, None
            if read is None:
                self._ended = True
                break
            self._read_to = read.batch.last_offset + 1
            if not read.aborted and read.batch.last_offset >= self._at:
                self._batch = read.batch
        if self._batch is None and self._damage is not None and self._read_to < end:
            raise self._damage
        return self._batch is not None


def compare(audited: Range, source: Cursor, target: Cursor) -> ComparedRange:
    """Return both sides' digests of a range; the cursors are behind it then."""
    left, right = RunningDigest(), RunningDigest()
    parted = _together(audited, source, target, left, right)
    # Where they part, each side is digested for itself: the other may hold the records elsewhere.
    _rest(left, source, audited.source_to)
    _rest(right, target, audited.target_to)
    return ComparedRange(left.digest(audited, Side.SOURCE), right.digest(audited, Side.TARGET), parted)


def _together(
    audited: Range, source: Cursor, target: Cursor, left: RunningDigest, right: RunningDigest
) -> bool:
    """Go on while both sides hold the same; return False when they do to the end."""
    while True:
        here, there = source.batch(audited.source_to), target.batch(audited.target_to)
        if here is not None and there is not None and here.same_bytes(there):
            right.add_batch(there, left.add_batch(here))
            source.pass_batch()
            target.pass_batch()
            continue
        if _agreed(audited, source, target, left, right):
            continue
        one, other = source.record(audited.source_to), target.record(audited.target_to)
        left.add_record(one)
        right.add_record(other)
        if one is None and other is None:
            return False
        if one is None or other is None or one.hash != other.hash:
            return True


def _agreed(
    audited: Range, source: Cursor, target: Cursor, left: RunningDigest, right: RunningDigest
) -> bool:
    """Go behind the next records that are outlined on both sides and the same; False says nothing."""
    one, other = source.outlined(audited.source_to), target.outlined(audited.target_to)
    if one is None or other is None:
        return False
    agreed = one.agreed(other, min(one.before(audited.source_to), other.before(audited.target_to)))
    if agreed is None:
        return False
    for running, outlined, records in zip((left, right), (one, other), agreed, strict=True):
        running.add_hashed(records)
        outlined.pass_by(records.records)
    return True


def _rest(running: RunningDigest, cursor: Cursor, end: int) -> None:
    while True:
        if (outlined := cursor.outlined(end)) is not None:
            count = outlined.before(end)
            running.add_hashed(outlined.hashed(count))
            outlined.pass_by(count)
        elif (rec := cursor.record(end)) is not None:
            running.add_record(rec)
        else:
            return
