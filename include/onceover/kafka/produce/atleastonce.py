"""Delivery at least once: data through an idempotent producer, progress in the lane's transaction (KIP-656).

Invariant: progress never goes past data that is not acknowledged, and never back. What the lane writes
about itself, the offset map and the progress among it, is sent only when every data batch before it was
answered OK, and it is committed under the fenced transactional.id. So whatever dies between data and
progress is copied again, and a run that was paused and wakes up can repeat what it had in hand, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from onceover.errors import OnceoverError, Retriable, Unanswered
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.ports import Acknowledged, Cluster, Outgoing, TxnProducer
from onceover.kafka.produce import requests as produce
from onceover.kafka.produce.requests import ProduceLink
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify
from onceover.txn.idempotent import IdempotentState
from onceover.wire.batches.batch import stamp

T = TypeVar("T")
_NAME: Final = "idempotent producer"


class IdempotentProducer:
    """Batches outside transactions, each appended once while this object lives. Not thread-safe.

    Within one producer id nothing is repeated or reordered: sequences see to it. A failed send ends the
    id; who sends again under another one repeats what was in the log already.
    """

    def __init__(self, cluster: Cluster, in_flight_bytes: int = 0) -> None:
        self._cluster = cluster
        self._state = IdempotentState()
        self._link = ProduceLink(cluster, None, self._answered, in_flight_bytes)
        self._acks: list[Acknowledged] = []

    @property
    def pause_s(self) -> float:
        """Seconds for which a broker wants no more data."""
        return self._link.pause_s

    def init(self) -> None:
        """Take a fresh producer id.

        Raises:
            Retriable: the target is away.
            UsageError: not authorized.
        """
        result = self._cluster.fresh_producer_id()
        action = classify(Api.INIT_PRODUCER_ID, result.error_code)
        if action is Action.OK:
            self._state.init_ok(result.producer_id, result.producer_epoch)
            return
        if action in (Action.RETRY, Action.REFRESH_AND_RETRY):
            raise Retriable(f"{self._cluster.alias} has no producer id to give (error {result.error_code})")
        raise self._failure(Api.INIT_PRODUCER_ID, result.error_code, _NAME)

    def send(self, batches: Sequence[Outgoing]) -> None:
        """Send one batch per partition; the very first of a partition is awaited.

        While replicas are short, that one is repeated under its sequence, so that it is appended once. What
        fails later has others behind it and ends the id.

        Raises:
            MustReset: the producer id can no longer be used.
            Refused: the target refuses content; the producer id can no longer be used.
        """
        fresh = not all(self._state.knows(b.target) for b in batches)
        if fresh:
            self._guarded(self._link.drain)
        for batch in batches:
            sequence = self._state.produce_sent(batch.target, batch.header.count)
            identity = self._state.producer_id, self._state.producer_epoch
            stamp(batch.batch, batch.header, *identity, sequence, transactional=False)
        self._guarded(lambda: self._link.write(batches))
        if fresh:
            self._guarded(lambda: self._link.await_first("replicas of the target are short"))

    def make_room(self) -> list[Acknowledged]:
        """Wait until another round may be on its way; return and raise as ``drain`` does."""
        self._guarded(self._link.make_room)
        return self._new_acks()

    def drain(self) -> list[Acknowledged]:
        """Wait until nothing is unanswered; return all new acknowledgements.

        Raises:
            MustReset: the producer id can no longer be used.
            Refused: the target refuses content.
        """
        self._guarded(self._link.drain)
        return self._new_acks()

    def _new_acks(self) -> list[Acknowledged]:
        acks, self._acks = self._acks, []
        return acks

    def check_settled(self, targets: Sequence[TopicPartition]) -> None:
        """Refuse to let progress go on unless everything that was sent is in the log of its topic.

        Args:
            targets: what progress is about to be committed for.

        Raises:
            IllegalTransition: a batch is unanswered, refused or lost.
            MustReset: a topic was recreated since.
        """
        self._state.check_settled()
        self._guarded(lambda: self._link.check_topic_ids(tp for tp in targets if self._state.knows(tp)))

    def close(self) -> None:
        """Drop the connections. What is in flight may be appended or not."""
        self._link.close()
        self._state.close()

    def _answered(self, batch: Outgoing, answer: Any) -> bool:
        action = classify(Api.PRODUCE_IDEMPOTENT, answer.error_code)
        if action is Action.OK:
            self._state.produce_ok(batch.target, answer.base_offset, batch.header.count)
            self._acks.append(Acknowledged(batch, answer.base_offset))
            return True
        if action is Action.RETRY:
            return False
        if action is Action.CONTENT:
            self._state.produce_refused(batch.target)
            raise produce.refused(batch, answer)
        raise self._failure(Api.PRODUCE_IDEMPOTENT, answer.error_code, str(batch.target), batch.target)

    def _guarded(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except Retriable as error:
            self._state.lost()
            lost = Unanswered(f"{_NAME}: {error}", code=produce.why_known(error))
            raise lost.about(*error.partitions) from error

    def _failure(self, api: Api, code: int, subject: str, *partitions: TopicPartition) -> OnceoverError:
        self._state.lost()
        return produce.failure(self._cluster, _NAME, api, code, subject, *partitions)


class AtLeastOnceProducer:
    """A ``ports.TxnProducer`` whose data is not part of the transaction. Not thread-safe.

    Batches with a source are data; those without are the lane's own and go into the transaction.

    Args:
        own: the lane's transactional producer.
        data: the producer of the copied records.
    """

    def __init__(self, own: TxnProducer, data: IdempotentProducer) -> None:
        self._own = own
        self._data = data

    visible_at_commit: Final = False

    @property
    def producer_id(self) -> int:
        """That of the progress; the data has others."""
        return self._own.producer_id

    @property
    def in_transaction(self) -> bool:
        """True when something of the lane's own was added since the last end of a transaction."""
        return self._own.in_transaction

    @property
    def pause_s(self) -> float:
        """As its port says."""
        return max(self._data.pause_s, self._own.pause_s)

    def init(self) -> bool:
        """Fence older holders of the lane's id, then take a fresh producer id for the data.

        Raises:
            Retriable: the target is away.
            UsageError: not authorized.
        """
        if not self._own.init():
            return False
        self._data.init()
        return True

    def send(self, batches: Sequence[Outgoing]) -> None:
        """Send one batch per partition without waiting for the answers.

        Raises:
            MustReset: the attempt is lost.
            Refused: the target refuses content.
        """
        data = [b for b in batches if b.source is not None]
        own = [b for b in batches if b.source is None]
        if data:
            self._data.send(data)
        if own:
            self._own.send(own)

    def make_room(self) -> list[Acknowledged]:
        """Wait until another round may be on its way; return what was acknowledged; raises as ``drain``."""
        return self._data.make_room() + self._own.make_room()

    def drain(self) -> list[Acknowledged]:
        """Wait until nothing is unanswered, and return what was acknowledged.

        Raises:
            MustReset: the attempt is lost.
            Refused: the target refuses content.
        """
        return self._data.drain() + self._own.drain()

    def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit], *, moving: bool = True
    ) -> None:
        """Write committed offsets in the open transaction, beginning one if there is none.

        Raises:
            IllegalTransition: data before them is not acknowledged.
            MustReset: the attempt is lost.
        """
        self._data.check_settled(list(offsets))
        self._own.add_offsets(group, offsets, moving=moving)

    def decide(self, partitions: Collection[TopicPartition], *, commit: bool) -> None:
        """As its port says."""
        self._own.decide(partitions, commit=commit)

    def commit(self) -> None:
        """End the transaction with commit.

        Raises:
            IllegalTransition: data was lost or is not acknowledged.
            MustReset: refused, or the outcome is unknown.
        """
        self._data.check_settled(())
        self._own.commit()

    def abort(self) -> None:
        """End the transaction with abort; the data stays, as it does after a crash."""
        self._own.abort()

    def close(self) -> None:
        """Drop all connections."""
        self._data.close()
        self._own.close()
