"""The transactional producer over raw batches: one transactional.id, both request sets (FACTS 4).

Invariant: ``commit`` returns only when EndTxn said OK, and EndTxn is sent only when every Produce and
TxnOffsetCommit of the transaction was answered OK (``txn.txnstate`` refuses anything else). Whatever
else happens ends in ``MustReset``: drop this object, read the layout, begin again at InitProducerId.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.producer import ProduceResponse

from onceover.errors import Fatal, MustReset, NeedsOperator, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.backoff import Backoff, Deadline
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.cluster import Cluster, TopicInfo
from onceover.kafka.connection import Connection, ConnectionLost
from onceover.kafka.ports import Acknowledged, Outgoing, Refused
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify
from onceover.txn.txnstate import Phase, RequestSet, TxnState
from onceover.wire.batch import stamp
from onceover.wire.hotpath import ProduceData, encode_produce

log = logging.getLogger(__name__)

_PRODUCE_TIMEOUT_MS = 30_000
# Produce by topic id: a topic recreated inside the transaction is refused instead of written (FACTS 4).
_PRODUCE_BY_ID = 13
_PRODUCE_V5_SET = 12
_PRODUCE_V3_SET = 11
# Below the transaction's timeout (15 s): later, the target aborts for us and we would look fenced.
_PATIENCE_S = 10.0
# The markers of the previous transaction take a few ms; a shorter pause only adds requests.
_CONCURRENT_FIRST_S, _CONCURRENT_CAP_S = 0.002, 0.05


@dataclass
class _Route:
    """One connection to one leader, with what is unanswered on it, oldest first."""

    connection: Connection
    unanswered: deque[list[Outgoing]] = field(default_factory=deque)


class TransactionalProducer:
    """One transactional.id on the target. Not thread-safe; see ``ports.TxnProducer``.

    Args:
        cluster: the target.
        transactional_id: whose older holders ``init`` fences.
        timeout_ms: after this the target aborts an open transaction by itself.
        first_sequence: only other than 0 to test the wrap-around.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, *, timeout_ms: int, first_sequence: int = 0
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._state = TxnState(RequestSet.V3, first_sequence=first_sequence)
        self._produce_version = _PRODUCE_V3_SET
        self._topics: dict[str, TopicInfo] = {}
        self._routes: dict[int, _Route] = {}
        self._acks: list[Acknowledged] = []

    @property
    def in_transaction(self) -> bool:
        """True when something was added since the last end of a transaction."""
        return self._state.in_transaction

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
        if features.max_produce_version >= _PRODUCE_BY_ID and chosen is RequestSet.V5:
            self._produce_version = _PRODUCE_BY_ID
        else:
            newest = _PRODUCE_V5_SET if chosen is RequestSet.V5 else _PRODUCE_V3_SET
            self._produce_version = min(newest, features.max_produce_version)
        self._state.init_sent()
        result = self._cluster.init_producer_id(self._id, self._timeout_ms)
        action = classify(Api.INIT_PRODUCER_ID, result.error_code)
        if action is Action.OK:
            self._state.init_ok(result.producer_id, result.producer_epoch)
            return True
        if action in (Action.RETRY, Action.REFRESH_AND_RETRY, Action.RESET):
            return False
        raise self._failure(Api.INIT_PRODUCER_ID, action, result.error_code, self._id)

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
        fresh = any(b.target not in self._state.added for b in batches)
        if fresh:
            self._drain(0)
            if self._state.requests is RequestSet.V3:
                self._add_partitions(batches)
        by_node: dict[int, list[Outgoing]] = {}
        for batch in batches:
            sequence = self._state.produce_sent(batch.target, batch.header.count)
            stamp(batch.batch, batch.header, *self._producer, sequence)
            by_node.setdefault(self._leader(batch.target), []).append(batch)
        for node, group in by_node.items():
            self._write(self._route(node), group)
        if fresh:
            self._await_first()

    def drain(self, keep: int = 0) -> list[Acknowledged]:
        """Wait until at most ``keep`` requests are unanswered; return all new acknowledgements.

        Raises:
            MustReset: the transaction is lost.
            Refused: the target refuses content.
        """
        self._drain(keep)
        acks, self._acks = self._acks, []
        return acks

    def _drain(self, keep: int) -> None:
        waiting = [route for route in self._routes.values() if route.unanswered]
        total = sum(len(route.unanswered) for route in waiting)
        for route in waiting:
            while route.unanswered and total > keep:
                again = self._read(route)
                total -= 1
                if again:
                    # Batches behind it were refused for the gap, or will be: never repeat (FACTS 4).
                    raise self._lost(f"{again[0].target} was refused for the moment inside a transaction")

    def _await_first(self) -> None:
        backoff = Backoff(_CONCURRENT_FIRST_S, _CONCURRENT_CAP_S)
        deadline = Deadline(_PATIENCE_S)
        while True:
            again: list[tuple[_Route, list[Outgoing]]] = []
            for route in self._routes.values():
                while route.unanswered:
                    refused = self._read(route)
                    if refused:
                        again.append((route, refused))
            if not again:
                return
            self._pause(backoff, deadline, "the previous transaction is still being closed")
            for route, batches in again:
                self._write(route, batches)

    def _write(self, route: _Route, batches: list[Outgoing]) -> None:
        batches = sorted(batches, key=lambda b: b.target)
        data = [
            ProduceData(b.target.topic, self._topic(b.target.topic).topic_id, b.target.partition, b.batch)
            for b in batches
        ]
        correlation_id = route.connection.next_correlation_id()
        version = self._produce_version
        frame = encode_produce(
            data,
            version=version,
            correlation_id=correlation_id,
            client_id=route.connection.client_id,
            transactional_id=self._id,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
        )
        try:
            route.connection.send_frame(
                frame, correlation_id, lambda answer: ProduceResponse.decode(answer[1:], version=version)
            )
        except ConnectionLost as error:
            raise self._lost(str(error)) from error
        route.unanswered.append(batches)

    def _read(self, route: _Route) -> list[Outgoing]:
        """Take one answer; return the batches that may be sent again."""
        try:
            answer = route.connection.receive()
        except ConnectionLost as error:
            raise self._lost(str(error)) from error
        by_id = self._produce_version >= _PRODUCE_BY_ID
        waiting = {
            (self._topic(b.target.topic).topic_id if by_id else b.target.topic, b.target.partition): b
            for b in route.unanswered.popleft()
        }
        again = []
        for topic in answer.responses:
            for partition in topic.partition_responses:
                batch = waiting.pop((topic.topic_id if by_id else topic.name, partition.index))
                if not self._answered(batch, partition):
                    again.append(batch)
        if waiting:
            raise self._lost(f"no answer for {next(iter(waiting.values())).target}")
        return again

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
            named = next(iter(answer.record_errors or ()), None)
            reason = (named.batch_index_error_message if named else None) or answer.error_message or ""
            raise Refused(batch, answer.error_code, reason, named.batch_index if named else None)
        raise self._failure(Api.PRODUCE, action, answer.error_code, str(batch.target))

    def _add_partitions(self, batches: Sequence[Outgoing]) -> None:
        missing = self._state.add_partitions(b.target for b in batches)
        backoff, deadline = Backoff(_CONCURRENT_FIRST_S, _CONCURRENT_CAP_S), Deadline(_PATIENCE_S)
        while missing:
            codes = self._ask(
                lambda c: calls.add_partitions_to_txn(c, self._id, self._producer, missing),
                self._id,
                calls.TRANSACTION,
            )
            if self._settled(Api.ADD_PARTITIONS, codes, self._id, calls.TRANSACTION):
                return
            self._pause(backoff, deadline, "the previous transaction is still being closed")

    # ---- progress

    def add_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit]) -> None:
        """Write committed offsets in the open transaction.

        Raises:
            MustReset: the transaction is lost.
        """
        if self._state.requests is RequestSet.V3:
            self._add_group(group)
        version = 5 if self._state.requests is RequestSet.V5 else 3
        self._state.offsets_sent()
        backoff, deadline = Backoff(_CONCURRENT_FIRST_S, _CONCURRENT_CAP_S), Deadline(_PATIENCE_S)
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
            self._pause(backoff, deadline, "the progress group's coordinator is not ready")
        self._state.offsets_ok()

    def _add_group(self, group: str) -> None:
        self._state.add_group()
        backoff, deadline = Backoff(_CONCURRENT_FIRST_S, _CONCURRENT_CAP_S), Deadline(_PATIENCE_S)
        while True:
            code = self._ask(
                lambda c: calls.add_offsets_to_txn(c, self._id, self._producer, group),
                self._id,
                calls.TRANSACTION,
            )
            if self._settled(Api.ADD_OFFSETS, {group: code}, self._id, calls.TRANSACTION):
                return
            self._pause(backoff, deadline, "the previous transaction is still being closed")

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
        if self._state.in_transaction and self._produce_version < _PRODUCE_BY_ID:
            self._check_topic_ids()
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
        for route in self._routes.values():
            route.connection.close()
        self._routes.clear()
        self._state.close()

    def _end(self, *, commit: bool) -> None:
        version = 5 if self._state.requests is RequestSet.V5 else 3
        backoff, deadline = Backoff(_CONCURRENT_FIRST_S, _CONCURRENT_CAP_S), Deadline(_PATIENCE_S)
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
                return
            if action is Action.NOTHING_OPEN:
                self._state.end_ok()
                return
            if action is Action.REFRESH_AND_RETRY:
                self._cluster.forget_coordinator(self._id, calls.TRANSACTION)
            elif action is not Action.RETRY:
                raise self._failure(Api.END_TXN, action, answer.error_code, self._id)
            first = False
            self._pause(backoff, deadline, "the transaction coordinator is not ready")

    def _check_topic_ids(self) -> None:
        """Compare topic ids before a commit, where Produce goes by name (FACTS 4): data written to a
        topic that was recreated meanwhile would be lost silently."""
        now = self._guarded(lambda: self._cluster.topics(sorted({tp.topic for tp in self._state.added})))
        for tp in self._state.added:
            if tp.topic not in now or now[tp.topic].topic_id != self._topic(tp.topic).topic_id:
                raise self._lost(f"target topic {tp.topic} was deleted or recreated inside the transaction")

    # ---- plumbing

    def _topic(self, name: str) -> TopicInfo:
        info = self._topics.get(name)
        if info is None:
            found = self._guarded(lambda: self._cluster.topics([name]))
            if name not in found:
                raise self._lost(f"target topic {name} does not exist")
            info = self._topics[name] = found[name]
        return info

    def _leader(self, target: TopicPartition) -> int:
        partition = self._topic(target.topic).partitions.get(target.partition)
        if partition is None or partition.leader < 0:
            raise self._lost(f"{target} has no leader on the target")
        return partition.leader

    def _route(self, node: int) -> _Route:
        route = self._routes.get(node)
        if route is None or (not route.unanswered and not route.connection.usable):
            if route is not None:
                route.connection.close()
            route = self._routes[node] = _Route(self._guarded(lambda: self._cluster.open(node)))
        return route

    def _ask(self, request: Callable[[Connection], Any], key: str, kind: int) -> Any:
        """Ask a coordinator. Finding it may take a while; once asked, a lost connection means RESET."""
        deadline = Deadline(_PATIENCE_S)
        connection = self._guarded(
            lambda: self._cluster.retry(lambda: self._cluster.coordinator(key, kind), deadline)
        )
        return self._guarded(lambda: request(connection))

    def _guarded(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Retriable as error:
            raise self._lost(str(error)) from error

    def _settled(self, api: Api, codes: Mapping[Any, int], key: str, kind: int) -> bool:
        """Tell whether every code is OK; False asks for the same request again."""
        actions = {code: classify(api, code) for code in codes.values()}
        for code, action in actions.items():
            if action not in (Action.OK, Action.RETRY, Action.REFRESH_AND_RETRY):
                raise self._failure(api, action, code, key)
        if Action.REFRESH_AND_RETRY in actions.values():
            self._cluster.forget_coordinator(key, kind)
        return all(action is Action.OK for action in actions.values())

    def _pause(self, backoff: Backoff, deadline: Deadline, why: str) -> None:
        try:
            backoff.pause(deadline, Retriable(why))
        except Retriable as error:
            raise self._lost(str(error)) from error

    def _lost(self, why: str) -> MustReset:
        self._state.lost()
        return MustReset(f"{self._id}: {why}")

    def _failure(self, api: Api, action: Action, code: int, subject: str) -> Exception:
        self._state.lost()
        what = api.name.replace("_", " ").lower()
        text = f"{self._cluster.alias} answers error {code} to {what}"
        match action:
            case Action.UNAUTHORIZED:
                return UsageError(
                    f"{text}: not authorized",
                    code="NOT_AUTHORIZED",
                    where=subject,
                    expected="WRITE on topics and transactional ids onceover.<flow>.*, READ on groups",
                    seen=f"principal of {self._cluster.alias} lacks a right",
                    resolve="grant the rights listed in docs/operations.md",
                )
            case Action.OPERATOR:
                return NeedsOperator(text, code="BROKER_SETTING", where=subject)
            case Action.FATAL:
                return Fatal(text, where=subject)
            case _:
                return MustReset(f"{self._id}: {text}", where=subject)
