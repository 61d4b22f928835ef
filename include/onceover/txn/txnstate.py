"""The transaction state machine: which step may follow which, without any I/O (docs/facts.md).

Invariant: a commit is sent only when everything in the transaction was answered OK. The broker does not
check this: it says OK to the commit of a transaction of which a part was refused.

:func:`transition` is the pure table. :class:`TxnState` adds what a table cannot hold: sequences,
partitions and unanswered requests. Every call is O(1), or O(partitions) at the end of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from onceover.errors import Fatal, MustReset
from onceover.model import TopicPartition
from onceover.txn.sequence import Sequence


class RequestSet(Enum):
    """The requests a transaction is made of; chosen at each start, never mixed (docs/facts.md)."""

    V3 = auto()
    """Any broker: partitions and offsets are added first, epoch and sequences go on."""
    V5 = auto()
    """transaction.version 2 (KIP-890): Produce adds, EndTxn brings a new epoch, sequences begin at 0."""


class Phase(Enum):
    """Where a transactional producer stands."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    MUST_ABORT = auto()
    """A part was refused: answers are still awaited, then only an abort is allowed."""
    COMMITTING = auto()
    ABORTING = auto()
    NEEDS_RESET = auto()
    """Fenced, or something's outcome is unknown: only a new InitProducerId leads on."""
    CLOSED = auto()


class Event(Enum):
    """What was sent to, or heard from, the target."""

    INIT_SENT = auto()
    INIT_OK = auto()
    PART_SENT = auto()
    """Partitions or the group added, records or offsets sent."""
    PART_OK = auto()
    PART_REFUSED = auto()
    COMMIT_SENT = auto()
    ABORT_SENT = auto()
    END_OK = auto()
    LOST = auto()
    """Fenced, a deadline passed, or a connection died with something unanswered on it."""
    RESET = auto()
    CLOSED = auto()


_LEGAL: Final[dict[tuple[Phase, Event], Phase]] = {
    (Phase.UNINITIALIZED, Event.INIT_SENT): Phase.INITIALIZING,
    # CONCURRENT_TRANSACTIONS: the same request again, after another look at the layout (docs/protocol.md).
    (Phase.INITIALIZING, Event.INIT_SENT): Phase.INITIALIZING,
    (Phase.INITIALIZING, Event.INIT_OK): Phase.READY,
    (Phase.READY, Event.PART_SENT): Phase.IN_TRANSACTION,
    (Phase.IN_TRANSACTION, Event.PART_SENT): Phase.IN_TRANSACTION,
    (Phase.IN_TRANSACTION, Event.PART_OK): Phase.IN_TRANSACTION,
    (Phase.IN_TRANSACTION, Event.PART_REFUSED): Phase.MUST_ABORT,
    (Phase.IN_TRANSACTION, Event.COMMIT_SENT): Phase.COMMITTING,
    (Phase.IN_TRANSACTION, Event.ABORT_SENT): Phase.ABORTING,
    (Phase.MUST_ABORT, Event.PART_OK): Phase.MUST_ABORT,
    (Phase.MUST_ABORT, Event.PART_REFUSED): Phase.MUST_ABORT,
    (Phase.MUST_ABORT, Event.ABORT_SENT): Phase.ABORTING,
    # The same EndTxn again, after an answer that says so (coordinator loading or moved).
    (Phase.COMMITTING, Event.COMMIT_SENT): Phase.COMMITTING,
    (Phase.COMMITTING, Event.END_OK): Phase.READY,
    (Phase.ABORTING, Event.ABORT_SENT): Phase.ABORTING,
    (Phase.ABORTING, Event.END_OK): Phase.READY,
    # Several connections of a dead broker are lost one after the other.
    **{(phase, Event.LOST): Phase.NEEDS_RESET for phase in Phase},
    (Phase.CLOSED, Event.LOST): Phase.CLOSED,
    # Dropping the producer is right at any time: the next InitProducerId aborts what it left open.
    **{(phase, Event.RESET): Phase.UNINITIALIZED for phase in Phase if phase is not Phase.CLOSED},
    **{(phase, Event.CLOSED): Phase.CLOSED for phase in Phase},
}


class IllegalTransition(Fatal):
    """A step that must not follow: a bug of the caller. Nothing was sent because of it."""


def transition(phase: Phase, event: Event) -> Phase:
    """Return the phase after ``event``.

    Raises:
        IllegalTransition: the event cannot happen, or must not be caused, in this phase.
    """
    following = _LEGAL.get((phase, event))
    if following is None:
        raise IllegalTransition(
            f"a transactional producer cannot go on with {event.name}",
            expected=", ".join(sorted(legal.name for at, legal in _LEGAL if at is phase)),
            seen=f"{event.name} while {phase.name}",
        )
    return following


class TxnState:
    """One transactional.id: phase, producer id and epoch, sequences, and what is unanswered."""

    def __init__(self, requests: RequestSet, *, first_sequence: int = 0) -> None:
        """Start without a producer id. Tests pass ``first_sequence`` to reach the wrap-around."""
        self.requests = requests
        self.phase = Phase.UNINITIALIZED
        self.producer_id = -1
        self.producer_epoch = -1
        self.unanswered_produces = 0
        self.unanswered_offsets = 0
        self.added: set[TopicPartition] = set()
        self.group_added = False
        self._first_sequence = first_sequence
        self._partitions: dict[TopicPartition, Sequence] = {}

    @property
    def in_transaction(self) -> bool:
        """True when something was added since the last end of a transaction."""
        return self.phase in (Phase.IN_TRANSACTION, Phase.MUST_ABORT)

    @property
    def settled(self) -> bool:
        """True when nothing sent in the transaction is unanswered."""
        return not (self.unanswered_produces or self.unanswered_offsets)

    def init_sent(self) -> None:
        """InitProducerId is being sent, for the first time or again after "not yet"."""
        self._step(Event.INIT_SENT)

    def init_ok(self, producer_id: int, producer_epoch: int) -> None:
        """Take the identity; what an earlier holder left open is aborted."""
        self._step(Event.INIT_OK)
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Note those not yet in the transaction and return them, for AddPartitionsToTxn. V3 only."""
        self._only(RequestSet.V3, "AddPartitionsToTxn")
        missing = [tp for tp in dict.fromkeys(partitions) if tp not in self.added]
        if missing:
            self._step(Event.PART_SENT)
            self.added.update(missing)
        return missing

    def add_group(self) -> None:
        """AddOffsetsToTxn is being sent. V3 only."""
        self._only(RequestSet.V3, "AddOffsetsToTxn")
        self._step(Event.PART_SENT)
        self.group_added = True

    def produce_sent(self, target: TopicPartition, count: int) -> int:
        """Return the base sequence for a batch of ``count`` records, which is now unanswered.

        Raises:
            IllegalTransition: with request set V3, a partition that was not added.
        """
        if self.requests is RequestSet.V3 and target not in self.added:
            raise IllegalTransition(
                "records are sent to a partition outside the transaction",
                where=str(target),
                expected="AddPartitionsToTxn before",
                seen="Produce",
            )
        self._step(Event.PART_SENT)
        self.added.add(target)
        partition = self._partitions.get(target)
        if partition is None:
            partition = self._partitions[target] = Sequence(self._first_sequence)
        self.unanswered_produces += 1
        return partition.take(count)

    def produce_ok(self, target: TopicPartition, base_offset: int, count: int) -> None:
        """Note an answer; answers of one partition come in the order of its requests.

        Raises:
            MustReset: the offset does not grow: the broker took the batch for a repetition and dropped
                it, or the target lost records. The transaction can no longer be committed.
        """
        partition = self._answered(target, Event.PART_OK)
        try:
            partition.appended(target, base_offset, count)
        except MustReset:
            self._step(Event.LOST)
            raise

    def produce_refused(self, target: TopicPartition) -> None:
        """Note that a batch's content was refused: only an abort may follow."""
        self._answered(target, Event.PART_REFUSED)

    def offsets_sent(self) -> None:
        """TxnOffsetCommit is being sent.

        Raises:
            IllegalTransition: with request set V3, before AddOffsetsToTxn.
        """
        if self.requests is RequestSet.V3 and not self.group_added:
            raise IllegalTransition(
                "offsets are sent outside the transaction",
                expected="AddOffsetsToTxn before",
                seen="TxnOffsetCommit",
            )
        self._step(Event.PART_SENT)
        self.unanswered_offsets += 1

    def offsets_ok(self) -> None:
        """Every partition of a TxnOffsetCommit was answered OK."""
        self._offsets_answered(Event.PART_OK)

    def commit_sent(self) -> None:
        """EndTxn(commit) is being sent, for the first time or again after an answer that allows it.

        Raises:
            IllegalTransition: nothing was added, something is unanswered, or a part was refused.
        """
        self._end(Event.COMMIT_SENT)

    def abort_sent(self) -> None:
        """EndTxn(abort) is being sent.

        Raises:
            IllegalTransition: nothing was added, or something is unanswered: under V3 a late batch
                would become part of the next transaction. Reset instead of waiting.
        """
        self._end(Event.ABORT_SENT)

    def end_ok(self, producer_id: int | None = None, producer_epoch: int | None = None) -> None:
        """The transaction has ended. Under V5 the answer brings the next identity and sequences begin at 0.

        Without an identity (V3, or an abort that found nothing open) sequences go on after the last
        *acknowledged* record: a refused batch has used up none.

        Raises:
            IllegalTransition: a V5 commit without an identity, or a V3 end with one.
        """
        has_identity = producer_id is not None and producer_epoch is not None
        required = self.requests is RequestSet.V5 and self.phase is Phase.COMMITTING
        if (required and not has_identity) or (has_identity and self.requests is RequestSet.V3):
            raise IllegalTransition(
                "EndTxn's answer does not belong to the request set",
                expected=f"{self.requests.name} answers",
                seen="an identity" if has_identity else "no identity",
            )
        self._step(Event.END_OK)
        if producer_id is not None and producer_epoch is not None:
            self.producer_id, self.producer_epoch = producer_id, producer_epoch
        for partition in self._partitions.values():
            partition.next = partition.acked = 0 if has_identity else partition.acked
        self.added.clear()
        self.group_added = False

    def lost(self) -> None:
        """Fenced, timed out, or an answer that means RESET: no commit of this transaction, ever."""
        self._step(Event.LOST)

    def reset(self, requests: RequestSet) -> None:
        """Forget everything and start again before InitProducerId, with a request set chosen anew."""
        self._step(Event.RESET)
        self.requests = requests
        self.producer_id = self.producer_epoch = -1
        self.unanswered_produces = self.unanswered_offsets = 0
        self.added.clear()
        self.group_added = False
        self._partitions.clear()

    def close(self) -> None:
        """Nothing may follow. Closing twice is fine."""
        self._step(Event.CLOSED)

    def _step(self, event: Event) -> None:
        self.phase = transition(self.phase, event)

    def _only(self, requests: RequestSet, request: str) -> None:
        if self.requests is not requests:
            raise IllegalTransition(
                "request sets must not be mixed", expected=f"requests of {self.requests.name}", seen=request
            )

    def _answered(self, target: TopicPartition, event: Event) -> Sequence:
        partition = self._partitions.get(target)
        if partition is None or not partition.unanswered:
            raise IllegalTransition(
                "an answer to nothing", where=str(target), expected="an unanswered Produce", seen="none"
            )
        self._step(event)
        partition.unanswered -= 1
        self.unanswered_produces -= 1
        return partition

    def _offsets_answered(self, event: Event) -> None:
        if not self.unanswered_offsets:
            raise IllegalTransition("an answer to nothing", expected="a TxnOffsetCommit", seen="none")
        self._step(event)
        self.unanswered_offsets -= 1

    def _end(self, event: Event) -> None:
        if not self.settled:
            raise IllegalTransition(
                "a transaction must not end while parts of it are unanswered",
                expected="every answer checked",
                seen=f"{self.unanswered_produces} Produce and {self.unanswered_offsets} TxnOffsetCommit open",
            )
        self._step(event)
