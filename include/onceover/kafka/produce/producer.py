"""The transactional producer over raw batches: one transactional.id, both request sets (docs/facts.md).

Invariant: ``commit`` returns only when EndTxn said OK, and EndTxn is sent only when every Produce and
TxnOffsetCommit of the transaction was answered OK (``txn.txnstate`` refuses anything else). Whatever
else happens ends in ``MustReset``: drop this object, read the layout, begin again at InitProducerId.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from onceover.backoff import Backoff, Deadline
from onceover.errors import MustReset, OnceoverError, Retriable, Unanswered
from onceover.kafka import calls
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.groups.offsetportions import offset_portions
from onceover.kafka.link.channel import Channel
from onceover.kafka.ports import Acknowledged, Cluster, Outgoing
from onceover.kafka.produce import requests as produce
from onceover.kafka.produce.closing import Closing
from onceover.kafka.produce.leftopen import end_left_open
from onceover.kafka.produce.requests import (
    BY_TOPIC_ID,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    PATIENCE_S,
    ProduceLink,
)
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify, concerns_partition
from onceover.txn.txnstate import Phase, RequestSet, TxnState
from onceover.wire.batches.batch import stamp

# By a newer one a broker would add partitions to the transaction by itself (KIP-890).
_NEWEST_IN_V3_SET: Final = 11
# The coordinator reads its log, is not there, or is no longer this one.
_UNREADY: Final = frozenset({14, 15, 16})
_CLOSING: Final = "the previous transaction is still being closed"


class TransactionalProducer:
    """One transactional.id on the target. Not thread-safe; see ``ports.TxnProducer``.

    Args:
        cluster: the target.
        transactional_id: whose older holders ``init`` fences.
        timeout_ms: after this the target aborts an open transaction by itself.
        in_flight_bytes: how much may be unanswered where the target is far away.
        first_sequence: only other than 0 to test the wrap-around.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int,
        in_flight_bytes: int = 0,
        first_sequence: int = 0,
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._state = TxnState(RequestSet.V3, first_sequence=first_sequence)
        self._link = ProduceLink(cluster, transactional_id, self._answered, in_flight_bytes)
        self._acks: list[Acknowledged] = []
        self._begun_s = math.inf
        self._closing = Closing()

    visible_at_commit: Final = True

    @property
    def in_transaction(self) -> bool:
        """True when something was added since the last end of a transaction."""
        return self._state.in_transaction

    @property
    def producer_id(self) -> int:
        """As its port says; -1 before ``init``."""
        return self._state.producer_id

    @property
    def pause_s(self) -> float:
        """As its port says."""
        return self._link.pause_s

    @property
    def requests(self) -> RequestSet:
        """The request set in use, chosen at ``init``."""
        return self._state.requests

    # ---- identity

    def init(self) -> bool:
        """Try InitProducerId once, with the request set that the target serves now.

        Returns:
            False when the target says "not yet": look at the layout, then try again.

        Raises:
            Retriable: the target is away.
            UsageError: not authorized.
        """
        features = self._cluster.features(anew=True)
        chosen = RequestSet.V5 if features.transaction_version >= 2 else RequestSet.V3
        self._state.reset(chosen)
        self._link.newest = BY_TOPIC_ID if chosen is RequestSet.V5 else _NEWEST_IN_V3_SET
        self._state.init_sent()
        result = self._cluster.init_producer_id(self._id, self._timeout_ms)
        action = classify(Api.INIT_PRODUCER_ID, result.error_code)
        if action is Action.OK:
            self._state.init_ok(result.producer_id, result.producer_epoch)
            return True
        if action in (Action.RETRY, Action.REFRESH_AND_RETRY, Action.RESET):
            return False
        raise self._failure(Api.INIT_PRODUCER_ID, result.error_code, self._id)

    @property
    def _producer(self) -> tuple[int, int]:
        return self._state.producer_id, self._state.producer_epoch

    # ---- data

    def send(self, batches: Sequence[Outgoing]) -> None:
        """Send one batch per partition; the first of a partition in a transaction is awaited.

        Only then can it be repeated when the previous transaction is still closing (51, 19): nothing
        was sent behind it yet.

        Raises:
            MustReset: the transaction is lost.
            Refused: the target refuses content.
        """
        is_first = self._begin()
        fresh = any(b.target not in self._state.added for b in batches)
        if fresh:
            self._guarded(self._link.drain)
            if self._state.requests is RequestSet.V3:
                self._add_partitions(batches)
        for batch in batches:
            sequence = self._state.produce_sent(batch.target, batch.header.count)
            stamp(batch.batch, batch.header, *self._producer, sequence)
        self._guarded(lambda: self._link.write(batches))
        if fresh:
            sent_s, usual_s = time.monotonic(), self._link.usual_s
            self._guarded(lambda: self._link.await_first(_CLOSING))
            if is_first:
                self._closing.began(time.monotonic() - sent_s, usual_s)

    def make_room(self) -> list[Acknowledged]:
        """Wait until another round may be on its way; return and raise as ``drain`` does."""
        self._guarded(self._link.make_room)
        return self._new_acks()

    def drain(self) -> list[Acknowledged]:
        """Wait until nothing is unanswered; return all new acknowledgements.

        Raises:
            MustReset: the transaction is lost.
            Refused: the target refuses content.
        """
        self._guarded(self._link.drain)
        return self._new_acks()

    def _new_acks(self) -> list[Acknowledged]:
        acks, self._acks = self._acks, []
        return acks

    def _begin(self) -> bool:
        """Begin a transaction where there is none, once the one before is closed; tell whether it did."""
        if self._state.in_transaction:
            return False
        if left_s := self._closing.left_s:
            time.sleep(left_s)
        self._begun_s = time.monotonic()
        return True

    def _answered(self, batch: Outgoing, answer: Any) -> bool:
        action = classify(Api.PRODUCE, answer.error_code)
        if action is Action.OK:
            self._state.produce_ok(batch.target, answer.base_offset, batch.header.count)
            self._acks.append(Acknowledged(batch, answer.base_offset))
            return True
        if action is Action.RETRY:
            return False
        if action is Action.CONTENT:
            self._state.produce_refused(batch.target)
            raise produce.refused(batch, answer)
        raise self._failure(Api.PRODUCE, answer.error_code, str(batch.target), batch.target)

    def _add_partitions(self, batches: Sequence[Outgoing]) -> None:
        missing = self._state.add_partitions(b.target for b in batches)
        backoff, deadline = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), Deadline(PATIENCE_S)
        while missing:
            codes = self._ask(
                lambda c: calls.add_partitions_to_txn(c, self._id, self._producer, missing),
                self._id,
                calls.TRANSACTION,
            )
            if self._settled(Api.ADD_PARTITIONS, codes, self._id, calls.TRANSACTION):
                return
            self._pause(backoff, deadline, _CLOSING)

    # ---- progress

    def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit], *, moving: bool = True
    ) -> None:
        """Write committed offsets in the open transaction.

        Args:
            moving: as its port says.

        Raises:
            MustReset: the transaction is lost.
        """
        self._begin()
        if self._state.requests is RequestSet.V3:
            self._add_group(group)
        for portion in offset_portions(offsets):
            self._commit_offsets(group, portion, moving)

    def _commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit], moving: bool
    ) -> None:
        version = 5 if self._state.requests is RequestSet.V5 else 3
        self._state.offsets_sent()
        backoff, deadline = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), Deadline(PATIENCE_S)
        while True:
            codes = self._ask(
                lambda c: calls.txn_offset_commit(
                    c, self._id, self._producer, group, offsets, version=version
                ),
                group,
                calls.GROUP,
            )
            if self._settled(Api.TXN_OFFSET_COMMIT, codes, group, calls.GROUP):
                break
            if not moving and not _UNREADY.isdisjoint(codes.values()):
                raise self._lost(f"the coordinator of {group} was not ready for a write")
            self._pause(backoff, deadline, "the progress group's coordinator is not ready")
        self._state.offsets_ok()

    def _add_group(self, group: str) -> None:
        self._state.add_group()
        backoff, deadline = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), Deadline(PATIENCE_S)
        while True:
            code = self._ask(
                lambda c: calls.add_offsets_to_txn(c, self._id, self._producer, group),
                self._id,
                calls.TRANSACTION,
            )
            if self._settled(Api.ADD_OFFSETS, {None: code}, self._id, calls.TRANSACTION):
                return
            self._pause(backoff, deadline, _CLOSING)

    def decide(self, partitions: Collection[TopicPartition], *, commit: bool) -> None:
        """As its port says."""
        # Used up also where it works: the other request set has gone on with this identity.
        identity = self._producer
        self._state.lost()
        end_left_open(self._cluster, self._id, identity, partitions, commit=commit)

    # ---- end

    def commit(self) -> None:
        """End the transaction with commit; nothing to do when nothing was added.

        Raises:
            MustReset: refused, or the outcome is unknown.
            IllegalTransition: the transaction is lost already, or a part of it is unanswered or refused.
        """
        if self._state.phase is Phase.READY:
            return
        # In every other phase, also when the transaction is lost, the state machine has the word: to
        # return without an EndTxn would look like a commit.
        if self._state.in_transaction:
            self._guarded(lambda: self._link.check_topic_ids(self._state.added))
        self._end(commit=True)

    def abort(self) -> None:
        """End the transaction with abort.

        Raises:
            MustReset: answers are outstanding, or the outcome is unknown; the next ``init`` aborts.
        """
        if not self._state.in_transaction:
            return
        if not self._state.settled:
            raise self._lost("aborting with requests in flight")
        self._end(commit=False)

    def close(self) -> None:
        """Drop the connections; whoever inits next aborts what is open."""
        self._link.close()
        self._state.close()

    def _end(self, *, commit: bool) -> None:
        version = 5 if self._state.requests is RequestSet.V5 else 3
        backoff, deadline = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), Deadline(PATIENCE_S)
        first = True
        while True:
            (self._state.commit_sent if commit else self._state.abort_sent)()
            answer = self._ask(
                lambda c: calls.end_txn(c, self._id, self._producer, commit=commit, version=version),
                self._id,
                calls.TRANSACTION,
            )
            action = classify(Api.END_TXN, answer.error_code, first_end_txn=first, committing=commit)
            if action is Action.OK:
                identity = (answer.producer_id, answer.producer_epoch) if version >= 5 else (None, None)
                self._state.end_ok(*identity)
                self._closing.ended()
                return
            if action is Action.NOTHING_OPEN:
                self._state.end_ok()
                return
            if action is Action.REFRESH_AND_RETRY:
                self._cluster.forget_coordinator(self._id, calls.TRANSACTION)
            elif action is not Action.RETRY:
                raise self._failure(Api.END_TXN, answer.error_code, self._id)
            first = False
            self._pause(backoff, deadline, "the transaction coordinator is not ready")

    # ---- plumbing

    def _ask(self, request: Callable[[Channel], Any], key: str, kind: int) -> Any:
        """Ask a coordinator. Finding it may take a while; once asked, a lost connection means RESET."""
        deadline = Deadline(PATIENCE_S)
        connection = self._guarded(
            lambda: self._cluster.retry(lambda: self._cluster.coordinator(key, kind), deadline)
        )
        return self._guarded(lambda: request(connection))

    def _guarded(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Retriable as error:
            lost = self._lost(str(error), produce.why_known(error))
            raise lost.about(*error.partitions) from error

    def _settled(
        self, api: Api, codes: Mapping[TopicPartition, int] | Mapping[None, int], key: str, kind: int
    ) -> bool:
        """Tell whether every code is OK; False asks for the same request again."""
        actions = {code: classify(api, code) for code in codes.values()}
        wrong = [
            c for c, a in actions.items() if a not in (Action.OK, Action.RETRY, Action.REFRESH_AND_RETRY)
        ]
        if wrong:
            # Of a request that is refused whole, the others' code (55, not attempted) explains nothing.
            code = next((c for c in wrong if concerns_partition(c)), wrong[0])
            concerned = [tp for tp, c in codes.items() if c == code and tp is not None]
            raise self._failure(api, code, key, *concerned)
        if Action.REFRESH_AND_RETRY in actions.values():
            self._cluster.forget_coordinator(key, kind)
        return all(action is Action.OK for action in actions.values())

    def _pause(self, backoff: Backoff, deadline: Deadline, why: str) -> None:
        try:
            backoff.pause(deadline, Retriable(why))
        except Retriable as error:
            raise self._lost(str(error)) from error

    def _lost(self, why: str, code: str | None = None) -> MustReset:
        self._state.lost()
        return Unanswered(f"{self._id}: {why}", code=code)

    def _failure(self, api: Api, code: int, subject: str, *partitions: TopicPartition) -> OnceoverError:
        self._state.lost()
        error = produce.failure(self._cluster, self._id, api, code, subject, *partitions)
        if isinstance(error, MustReset) and time.monotonic() - self._begun_s >= self._timeout_ms / 1000:
            # By then the target has ended the transaction by itself, and says so: only the time is known.
            text = f"{error.message}, in a transaction that took too long"
            late = Unanswered(text, where=subject, code=produce.why_known(error))
            return late.about(*error.partitions)
        return error
