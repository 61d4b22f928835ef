"""What a producer without transactions may do next, without any I/O (KIP-98's idempotent producer).

Invariant: after a batch was refused, lost, or answered in a way that nobody foresaw, nothing is sent
under the same producer id again, and ``check_settled`` never again says that all is well. Batches behind
the bad one may be in the log or not; only a new id and the committed progress lead on.
"""

from __future__ import annotations

from enum import Enum, auto

from onceover.errors import MustReset
from onceover.model import TopicPartition
from onceover.txn.sequence import Sequence
from onceover.txn.txnstate import IllegalTransition


class IdempotentPhase(Enum):
    """Where an idempotent producer stands."""

    UNINITIALIZED = auto()
    READY = auto()
    LOST = auto()
    """Something was refused or its outcome is unknown: answers may still be taken, nothing is sent."""
    CLOSED = auto()


class IdempotentState:
    """One producer id: its sequences, and what is unanswered. Every call is O(1)."""

    def __init__(self) -> None:
        self.phase = IdempotentPhase.UNINITIALIZED
        self.producer_id = -1
        self.producer_epoch = -1
        self.unanswered = 0
        self._partitions: dict[TopicPartition, Sequence] = {}

    def init_ok(self, producer_id: int, producer_epoch: int) -> None:
        """Take a new identity; sequences begin at 0 and what the old one left unanswered is forgotten.

        Raises:
            IllegalTransition: the producer was closed.
        """
        self._only(
            IdempotentPhase.UNINITIALIZED, IdempotentPhase.READY, IdempotentPhase.LOST, doing="InitProducerId"
        )
        self.phase = IdempotentPhase.READY
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.unanswered = 0
        self._partitions.clear()

    def knows(self, target: TopicPartition) -> bool:
        """Tell whether something was sent to ``target`` under this identity."""
        return target in self._partitions

    def produce_sent(self, target: TopicPartition, count: int) -> int:
        """Return the base sequence for a batch of ``count`` records, which is now unanswered.

        Raises:
            IllegalTransition: there is no identity, or it is lost.
        """
        self._only(IdempotentPhase.READY, doing="Produce")
        partition = self._partitions.get(target)
        if partition is None:
            partition = self._partitions[target] = Sequence()
        self.unanswered += 1
        return partition.take(count)

    def produce_ok(self, target: TopicPartition, base_offset: int, count: int) -> None:
        """Note an answer; answers of one partition come in the order of its requests.

        Raises:
            MustReset: the offset does not grow.
        """
        partition = self._answered(target)
        try:
            partition.appended(target, base_offset, count)
        except MustReset:
            self.lost()
            raise

    def produce_refused(self, target: TopicPartition) -> None:
        """Note that a batch's content was refused; batches behind it are refused for the gap."""
        self._answered(target)
        self.lost()

    def lost(self) -> None:
        """Something's outcome is unknown, or an answer means RESET."""
        if self.phase is not IdempotentPhase.CLOSED:
            self.phase = IdempotentPhase.LOST

    def close(self) -> None:
        """Nothing may follow. Closing twice is fine."""
        self.phase = IdempotentPhase.CLOSED

    def check_settled(self) -> None:
        """Refuse to go on to progress unless every batch that was sent is in the target's log.

        Raises:
            IllegalTransition: a batch is unanswered, or one was lost or refused.
        """
        self._only(IdempotentPhase.READY, doing="the commit of progress")
        if self.unanswered:
            raise IllegalTransition(
                "progress must not be committed past data that is not acknowledged",
                expected="every Produce answered",
                seen=f"{self.unanswered} open",
            )

    def _only(self, *phases: IdempotentPhase, doing: str) -> None:
        if self.phase not in phases:
            raise IllegalTransition(
                f"an idempotent producer cannot go on with {doing}",
                expected=" or ".join(s.name for s in phases),
                seen=self.phase.name,
            )

    def _answered(self, target: TopicPartition) -> Sequence:
        partition = self._partitions.get(target)
        if partition is None or not partition.unanswered:
            raise IllegalTransition(
                "an answer to nothing", where=str(target), expected="an unanswered Produce", seen="none"
            )
        partition.unanswered -= 1
        self.unanswered -= 1
        return partition
