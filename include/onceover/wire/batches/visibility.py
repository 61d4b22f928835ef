"""What a read_committed reader sees of a Fetch response (KIP-98), decided batch by batch.

Invariant: the position never passes a batch whose fate is not known. The broker cuts a
read_committed response at the LSO, so every transactional batch in it is decided: aborted if the
response's list of aborted transactions says so, committed otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from onceover.wire.batches.batch import BatchHeader, CorruptBatch, iter_batches, verify

ABORT_MARKER = 0


class AbortedTransaction(NamedTuple):
    """One entry of a Fetch response's aborted list."""

    first_offset: int
    producer_id: int


class Visible(NamedTuple):
    """A batch with records that a reader sees, or (``batch`` None) offsets without any."""

    header: BatchHeader
    batch: memoryview | None

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch in the log."""
        return self.header.size_bytes


def visible_batches(
    records: memoryview,
    aborted: Iterable[AbortedTransaction],
    position: int,
    control_type: Callable[[BatchHeader, memoryview], int],
    *,
    at: int = 0,
    reached: int = -1,
) -> Iterator[Visible]:
    """Yield the batches from ``position`` on, in order; skipped ones come with ``batch`` None.

    Skipped are control batches, batches of aborted transactions and batches that compaction
    emptied. Their checksum is compared here: one flipped bit of a header makes an ordinary batch look like
    one of them, and its records would be lost without a word. What is yielded with its bytes is left to
    whoever takes it. A batch that begins before ``position`` but reaches it is yielded whole: the caller
    cuts it. Idempotent batches of a producer id whose transaction aborted stay visible.

    Args:
        records: the ``records`` bytes of one partition in one response.
        aborted: the response's aborted transactions of that partition.
        position: the next offset wanted.
        control_type: reads a control batch's type, 0 for an abort marker.
        at: where to begin in ``records``, behind batches that were seen already; ``reached`` is the offset
            behind them.

    Raises:
        CorruptBatch: from ``iter_batches``, a skipped batch is damaged, or offsets run backwards (which the
            checksum does not cover).
    """
    pending = sorted(aborted)
    pending.reverse()  # popped from the end, lowest first offset first
    in_abort: set[int] = set()
    for header, batch in iter_batches(records, at):
        last = header.last_offset
        if header.base_offset < reached or last < header.base_offset:
            raise _backwards(header, reached)
        reached = last + 1
        if last < position:
            verify(header, batch)
            continue
        # An entry counts from its first offset on; it may lie inside this batch only when the
        # batch is its own first one, hence the comparison with the *last* offset.
        while pending and pending[-1].first_offset <= last:
            in_abort.add(pending.pop().producer_id)
        if header.is_control:
            verify(header, batch)
            if (
                header.count
                and header.producer_id in in_abort
                and control_type(header, batch) == ABORT_MARKER
            ):
                in_abort.discard(header.producer_id)
            yield Visible(header, None)
        elif header.count == 0 or (header.is_transactional and header.producer_id in in_abort):
            verify(header, batch)
            yield Visible(header, None)
        else:
            yield Visible(header, batch)


def _backwards(header: BatchHeader, reached: int) -> CorruptBatch:
    return CorruptBatch(
        f"the batch at base offset {header.base_offset} is damaged",
        expected=f"offsets that grow, from {max(reached, 0)} on",
        seen=f"{header.base_offset} to {header.last_offset}",
    )
