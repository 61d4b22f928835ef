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

# As many runs of single records pass between two that are compressed anew, to see what that gains.
_LEARNT_FOR: Final = 31
# Compressing a kilobyte anew takes 2.5 us of the 4.5 that its copy takes (measured), and most where it gains
# least: what shrinks by a third or more, alike or small records, is compressed in half of that.
_WORTH_IT: Final = 1.5


class Packing:
    """Whether the single records of a partition stay as they are compressed, or are compressed together.

    Invariant: a partition takes no more room on the target than on the source. Where records have much in
    common, compressing them together is cheap and makes them much smaller; where they have not, it is most
    of what a copy costs, for little.

    Attributes:
        apart: they stay as they are.
    """

    def __init__(self) -> None:
        self.apart = False
        self._left = 0
        self._always_together = False

    def splices(self, facts: kernel.RunFacts) -> bool:
        """Tell whether this run's records are to stay as they are; it is counted."""
        if not facts.single or not self._left:
            return False
        self._left -= 1
        return self.apart

    def learn(self, facts: kernel.RunFacts, together_bytes: int) -> None:
        """Take in what a run's records came to when they were compressed together, if it is time for it."""
        if facts.single and not self._left:
            self._left = _LEARNT_FOR
            apart_bytes = facts.payload_bytes - kernel.FRAME_BYTES * facts.records
            self.apart = not self._always_together and apart_bytes <= _WORTH_IT * together_bytes

    def failed(self) -> None:
        """Note that records could not stay as they are, and leave it for a while."""
        self.apart = False

    def keep_together(self) -> None:
        """Note that the target does not take what stays as it is: it is larger."""
        self.apart, self._always_together = False, True


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

    def within(self, policy: kernel.Policy) -> Iterator[Visible | Run]:
        """Yield the batches, what is worth it in shorter runs; raises as ``apart``."""
        return seen(self.batch, (), 0, policy)

    def merged(
        self, from_offset: int, most_bytes: int, packing: Packing | None = None
    ) -> EncodedBatch | None:
        """Return the records from an offset on as one batch; None where it has to be done batch by batch.

        The codec is the strongest of them. Checksums have been compared.

        Args:
            most_bytes: of the records, before compression.
            packing: what was learnt from the runs before; None to make them as small as may be.
        """
        if packing is not None and packing.splices(self.facts):
            apart = self._spliced(from_offset, most_bytes)
            if apart is not None:
                return apart
            packing.failed()
        made = kernel.merged(self.batch, self.facts, from_offset, most_bytes)
        if made is None:
            return None
        encoded = sealed(made)
        if packing is not None:
            packing.learn(self.facts, len(encoded.batch) - HEADER_BYTES)
        if self.facts.single and len(encoded.batch) > self.size_bytes:
            # A better compressor had made them smaller.
            apart = self._spliced(from_offset, most_bytes)
            if apart is not None and len(apart.batch) < len(encoded.batch):
                return apart
        return encoded

    def _spliced(self, from_offset: int, most_bytes: int) -> EncodedBatch | None:
        """Return the single records as they are compressed; None where they cannot stay so."""
        made = kernel.spliced(self.batch, self.facts, from_offset, most_bytes)
        return None if made is None else sealed(made, compressed=True)


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
