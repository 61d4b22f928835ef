"""Runs of small batches in what was fetched, which are cheaper to send as one.

Invariant: a run is handed over whole, unlooked into, and whoever takes it gets either one batch of all its
records or, where that is not to be had, the batches themselves as ``visible_batches`` yields them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from onceover.wire.batches import kernel
from onceover.wire.batches.batch import HEADER_BYTES, BatchHeader, parse_header
from onceover.wire.batches.records import EncodedBatch, control_type, sealed
from onceover.wire.batches.visibility import AbortedTransaction, Visible, visible_batches

# As many runs pass between two that are compressed anew, to see what that gains.
_LEARNT_FOR: Final = 31
# Compressing a kilobyte anew takes 2.5 us of the 4.5 that its copy takes (measured), and most where it gains
# least. Records of events, 1 KB of words and numbers, take 1.5 times as much apart as together.
_WORTH_IT: Final = 1.5


class Packing:
    """Whether the single records of a partition stay as they are compressed, or are compressed together.

    Invariant: a partition takes no more room on the target than on the source. Where records have much in
    common, compressing them together is cheap and makes them much smaller; where they have not, it is most
    of what a copy costs, for little.
    """

    def __init__(self) -> None:
        self._left = 0

    def splices(self, facts: kernel.RunFacts) -> bool:
        """Tell whether this run's records are to stay as they are; it is counted."""
        if not self._left or not facts.packed or facts.records != facts.batches:
            return False
        self._left -= 1
        return True

    def learn(self, facts: kernel.RunFacts, together_bytes: int) -> None:
        """Take in what a run's records came to when they were compressed together."""
        if facts.packed and facts.records == facts.batches:
            apart_bytes = facts.payload_bytes - kernel.FRAME_BYTES * facts.records
            self._left = _LEARNT_FOR if apart_bytes <= _WORTH_IT * together_bytes else 0


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

    def merged(self, from_offset: int, most_bytes: int, packing: Packing) -> EncodedBatch | None:
        """Return the records from an offset on as one batch; None where it has to be done batch by batch.

        The codec is the strongest of them. Checksums have been compared.

        Args:
            most_bytes: of the records, before compression.
            packing: what was learnt from the runs before.
        """
        if packing.splices(self.facts):
            made = kernel.spliced(self.batch, self.facts, from_offset, most_bytes)
            if made is not None:
                return sealed(made, compressed=True)
        made = kernel.merged(self.batch, self.facts, from_offset, most_bytes)
        if made is None:
            return None
        encoded = sealed(made)
        packing.learn(self.facts, len(encoded.batch) - HEADER_BYTES)
        return encoded


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
