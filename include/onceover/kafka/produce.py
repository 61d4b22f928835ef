"""Produce requests to the leaders of one cluster, for producers with and without transactions.

Invariant: every batch that was written is answered exactly once to ``answered``, in the order in which
batches of its partition were written, or a call raises and this object must not be used any more: what
was unanswered has an unknown outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafka.protocol.producer import ProduceResponse

from onceover.errors import Fatal, MustReset, NeedsOperator, Retriable, UsageError
from onceover.kafka.backoff import Backoff, Deadline
from onceover.kafka.cluster import Cluster, TopicInfo
from onceover.kafka.connection import Connection
from onceover.kafka.ports import Outgoing, Refused
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api
from onceover.wire.hotpath import ProduceData, encode_produce

# Produce by topic id: a topic recreated meanwhile is refused instead of written (FACTS 4).
BY_TOPIC_ID: Final = 13
# Below the transaction's timeout (15 s): later, the target aborts for us and we would look fenced.
PATIENCE_S: Final = 10.0
# The markers of the previous transaction take a few ms; a shorter pause only adds requests.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.05
_PRODUCE_TIMEOUT_MS = 30_000


@dataclass
class _Route:
    """One connection to one leader, with what is unanswered on it, oldest first."""

    connection: Connection
    unanswered: deque[list[Outgoing]] = field(default_factory=deque)


class ProduceLink:
    """One connection to each leader, requests pipelined on it, acks=all. Not thread-safe.

    Every method raises ``Retriable`` when a broker is away or a connection is lost.

    Args:
        cluster: where to produce.
        transactional_id: of the producer, None without transactions.
        answered: told each batch's answer; returns False when the same batch may be sent again, raises
            what the answer means otherwise.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str | None, answered: Callable[[Outgoing, Any], bool]
    ) -> None:
        self.version = BY_TOPIC_ID
        self._cluster = cluster
        self._id = transactional_id
        self._answered = answered
        self._topics: dict[str, TopicInfo] = {}
        self._routes: dict[int, _Route] = {}

    def write(self, batches: Iterable[Outgoing]) -> None:
        """Send stamped batches, at most one of a partition (FACTS 3), without waiting for the answers."""
        batches = list(batches)
        self._look_up({b.target.topic for b in batches} - self._topics.keys())
        by_node: dict[int, list[Outgoing]] = {}
        for batch in batches:
            by_node.setdefault(self._leader(batch.target), []).append(batch)
        for node, group in by_node.items():
            self._write(self._route(node), group)

    def drain(self, keep: int = 0) -> None:
        """Wait until at most ``keep`` requests are unanswered.

        Raises:
            Retriable: a batch was refused for the moment. Those behind it were refused for the gap, or
                will be: it must not be repeated (FACTS 4).
        """
        waiting = [route for route in self._routes.values() if route.unanswered]
        total = sum(len(route.unanswered) for route in waiting)
        for route in waiting:
            while route.unanswered and total > keep:
                again = self._read(route)
                total -= 1
                if again:
                    raise Retriable(f"{again[0].target} was refused for the moment, with others behind it")

    def await_first(self, why: str) -> None:
        """Wait for every answer and repeat what is refused for the moment: nothing was sent behind it.

        Args:
            why: what a refusal "for the moment" means here, for the error.
        """
        backoff, deadline = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), Deadline(PATIENCE_S)
        while True:
            again: list[tuple[_Route, list[Outgoing]]] = []
            for route in self._routes.values():
                while route.unanswered:
                    refused = self._read(route)
                    if refused:
                        again.append((route, refused))
            if not again:
                return
            backoff.pause(deadline, Retriable(why))
            for route, batches in again:
                self._write(route, batches)

    def check_topic_ids(self, targets: Iterable[TopicPartition]) -> None:
        """Compare topic ids before a commit, where Produce goes by name (FACTS 4): data written to a
        topic that was recreated meanwhile would be lost silently."""
        if self.version >= BY_TOPIC_ID:
            return
        names = sorted({tp.topic for tp in targets})
        now = self._cluster.topics(names)
        for name in names:
            if name not in now or now[name].topic_id != self._topics[name].topic_id:
                raise Retriable(
                    f"target topic {name} was deleted or recreated between its records and the commit"
                )

    def close(self) -> None:
        """Close the connections."""
        for route in self._routes.values():
            route.connection.close()
        self._routes.clear()

    # ---- one connection

    def _write(self, route: _Route, batches: Sequence[Outgoing]) -> None:
        batches = sorted(batches, key=lambda b: b.target)
        data = [
            ProduceData(b.target.topic, self._topics[b.target.topic].topic_id, b.target.partition, b.batch)
            for b in batches
        ]
        correlation_id = route.connection.next_correlation_id()
        version = self.version
        frame = encode_produce(
            data,
            version=version,
            correlation_id=correlation_id,
            client_id=route.connection.client_id,
            transactional_id=self._id,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
        )
        route.connection.send_frame(
            frame, correlation_id, lambda answer: ProduceResponse.decode(answer[1:], version=version)
        )
        route.unanswered.append(batches)

    def _read(self, route: _Route) -> list[Outgoing]:
        """Take one answer; return the batches that may be sent again."""
        answer = route.connection.receive()
        by_id = self.version >= BY_TOPIC_ID
        waiting = {
            (self._topics[b.target.topic].topic_id if by_id else b.target.topic, b.target.partition): b
            for b in route.unanswered.popleft()
        }
        again = []
        for topic in answer.responses:
            for partition in topic.partition_responses:
                batch = waiting.pop((topic.topic_id if by_id else topic.name, partition.index))
                if not self._answered(batch, partition):
                    again.append(batch)
        if waiting:
            raise Retriable(f"no answer for {next(iter(waiting.values())).target}")
        return again

    # ---- who leads what

    def _look_up(self, names: set[str]) -> None:
        """Learn ids and leaders of topics, with one request however many they are."""
        if not names:
            return
        found = self._cluster.topics(sorted(names))
        for name in names:
            if name not in found:
                raise Retriable(f"target topic {name} does not exist")
            self._topics[name] = found[name]

    def _leader(self, target: TopicPartition) -> int:
        partition = self._topics[target.topic].partitions.get(target.partition)
        if partition is None or partition.leader < 0:
            raise Retriable(f"{target} has no leader on the target")
        return partition.leader

    def _route(self, node: int) -> _Route:
        route = self._routes.get(node)
        if route is None or (not route.unanswered and not route.connection.usable):
            if route is not None:
                route.connection.close()
            route = self._routes[node] = _Route(self._cluster.open(node))
        return route


def refused(batch: Outgoing, answer: Any) -> Refused:
    """Return what the caller learns of a batch whose content the target does not take."""
    named = list(answer.record_errors or ())
    reason = (named[0].batch_index_error_message if named else None) or answer.error_message or ""
    return Refused(batch, answer.error_code, reason, [one.batch_index for one in named])


def failure(cluster: Cluster, producer: str, api: Api, action: Action, code: int, subject: str) -> Exception:
    """Return what an error code that ends a producer means for whoever uses it."""
    what = api.name.replace("_", " ").lower()
    text = f"{cluster.alias} answers error {code} to {what}"
    match action:
        case Action.UNAUTHORIZED:
            return UsageError(
                f"{text}: not authorized",
                code="NOT_AUTHORIZED",
                where=subject,
                expected="WRITE on topics and transactional ids onceover.<flow>.*, READ on groups",
                seen=f"principal of {cluster.alias} lacks a right",
                resolve="grant the rights listed in docs/operations.md",
            )
        case Action.OPERATOR:
            return NeedsOperator(text, code="BROKER_SETTING", where=subject)
        case Action.FATAL:
            return Fatal(text, where=subject)
        case _:
            return MustReset(f"{producer}: {text}", where=subject)
