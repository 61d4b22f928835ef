"""Runs of small batches in what was fetched, which are cheaper to send as one.

Invariant: a run is handed over whole, unlooked into, and whoever takes it gets either one batch of all its
records or, where that is not to be had, the batches themselves as ``visible_batches`` yields them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from onceover.wire.batches import kernel
from onceover.wire.batches.batch import BatchHeader, parse_header
from onceover.wire.batches.records import EncodedBatch, control_type, sealed
from onceover.wire.batches.visibility import AbortedTransaction, Visible, visible_batches


class Run(NamedTuple):
    """Neighbouring batches that a reader of committed records sees, and such without records between them.

    Args:
        header: of the last one.
        batch: all of them, as they lie in the receive buffer.
        facts: what is known of them without taking them apart.
    """

    header: BatchHeader
    batch: memoryview
    facts: kernel.RunFacts

    @property
    def size_bytes(self) -> int:
        """Size of all of them in the log."""
        return len(self.batch)

    @property
    def first(self) -> Visible:
        """Return the first of them, which has records."""
        header = parse_header(self.batch)
        return Visible(header, self.batch[: header.size_bytes])

    def apart(self) -> Iterator[Visible]:
        """Yield the batches.

        Raises:
            CorruptBatch: one without records is damaged.
        """
        return visible_batches(self.batch, (), 0, control_type)

    def merged(self, from_offset: int, most_bytes: int) -> EncodedBatch | None:
        """Return the records from an offset on as one batch; None where it has to be done batch by batch.

        The codec is the strongest of them. Checksums have been compared.

        Args:
            most_bytes: of the records, before compression.
        """
        made = kernel.merged(self.batch, self.facts, from_offset, most_bytes)
        return None if made is None else sealed(made)


def seen(
    records: memoryview,
    aborted: Collection[AbortedTransaction],
    position: int,
    policy: kernel.Policy | None,
) -> Iterator[Visible | Run]:
    """Yield what ``visible_batches`` does, runs of what is worth merging together.

    Where a transaction was aborted, there are none: whose batches these are is found one by one.

    Args:
        policy: what is worth it; None where nothing is.
    """
    at, reached = 0, -1
    for facts in kernel.runs(records, position, policy) if policy and not aborted else ():
        yield from visible_batches(records[: facts.start], (), position, control_type, at=at, reached=reached)
        header = parse_header(records, facts.last)
        at, reached = facts.end, header.next_offset
        yield Run(header, records[facts.start : facts.end], facts)
    yield from visible_batches(records, aborted, position, control_type, at=at, reached=reached)
