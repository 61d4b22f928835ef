"""Produce requests to the leaders of one cluster, for producers with and without transactions.

Invariant: every batch that was written is answered exactly once to ``answered``, in the order in which
batches of its partition were written, or a call raises and this object must not be used any more: what
was unanswered has an unknown outcome.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafka.protocol.producer import ProduceResponse

from onceover.backoff import Backoff, Deadline
from onceover.errors import Fatal, MustReset, NeedsOperator, NotNow, OnceoverError, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.codes import KafkaCode
from onceover.kafka.link.channel import Channel
from onceover.kafka.link.connection import wait_readable
from onceover.kafka.ports import Cluster, Outgoing, Refused, TopicInfo
from onceover.kafka.produce.inflight import FEW_REQUESTS, Departure, InFlight
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify, concerns_partition, lacks_replicas, says_taken
from onceover.txn.rights import lacking
from onceover.wire.hotpath import ProduceData, encode_produce

# Produce by topic id: a topic recreated meanwhile is refused instead of written (docs/facts.md).
BY_TOPIC_ID: Final = 13
# Of Kafka 3.1, and in every later one.
_OLDEST: Final = 9
_PRODUCE_KEY: Final = 0
# Below the transaction's timeout (15 s): later, the target aborts for us and we would look fenced.
PATIENCE_S: Final = 10.0
# The markers of the previous transaction take a few ms; a shorter pause only adds requests.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.05
_PRODUCE_TIMEOUT_MS = 30_000
# Error code of ours: a newer producer has the transactional id.
ID_TAKEN: Final = "ID_TAKEN"
# Codes that one setting explains.
_SETTINGS: Final = {
    12: "set offset.metadata.max.bytes of the target's brokers back to 4096, the default, or higher: it is"
    " too small for what stands beside each position",
    50: "set transaction.max.timeout.ms of the target's brokers to at least 15000 (the default is 900000)",
}


@dataclass
class _Route:
    """One connection to one leader, with what is unanswered on it, oldest first.

    ``spoken`` is the newest version of Produce that this leader speaks, on this connection: while brokers are
    upgraded one by one, the next one may speak another, and so may this one once it has restarted.
    """

    connection: Channel
    spoken: int
    in_flight: InFlight
    unanswered: deque[tuple[list[Outgoing], Departure]] = field(default_factory=deque)
    mute_until_s: float = -math.inf


class _Again(NamedTuple):
    """A batch that may be sent once more, and the error code that it was refused with."""

    batch: Outgoing
    code: int


class ProduceLink:
    """One connection to each leader, requests pipelined on it, acks=all. Not thread-safe.

    Every method raises ``Retriable`` when a broker is away or a connection is lost. Where an error is about
    some partitions alone, it says so (``OnceoverError.partitions``).

    Args:
        cluster: where to produce.
        transactional_id: of the producer, None without transactions.
        answered: told each batch's answer; returns False when the same batch may be sent again, raises
            what the answer means otherwise.
        in_flight_bytes: how much may be unanswered where the target is far away.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str | None,
        answered: Callable[[Outgoing, Any], bool],
        in_flight_bytes: int = 0,
    ) -> None:
        # Of Produce, however new a leader is: whoever produces may need an older one.
        self.newest = BY_TOPIC_ID
        self._by_name: set[str] = set()
        self._in_flight_bytes = in_flight_bytes
        # By broker: some may be near, and others far away.
        self._in_flight: dict[int, InFlight] = {}
        self._cluster = cluster
        self._id = transactional_id
        self._answered = answered
        self._topics: dict[str, TopicInfo] = {}
        self._routes: dict[int, _Route] = {}
        self._mute_until_s = -math.inf

    @property
    def pause_s(self) -> float:
        """Seconds until every broker listens again that has said that it will not, because of a quota."""
        return max(0.0, self._mute_until_s - time.monotonic())

    def write(self, batches: Iterable[Outgoing]) -> None:
        """Send stamped batches, at most one of a partition (docs/facts.md), without waiting for the answers.

        Raises:
            NotNow: a topic is not there, or not the one that is meant.
        """
        batches = list(batches)
        self._look_up([b.target for b in batches if not self._is_known(b)])
        for batch in batches:
            if not self._is_known(batch):
                raise NotNow(
                    f"target topic {batch.target.topic} was made anew before its records were sent"
                ).about(batch.target)
        by_node: dict[int, list[Outgoing]] = {}
        for batch in batches:
            by_node.setdefault(self._leader(batch.target), []).append(batch)
        for node, group in by_node.items():
            self._write(self._route(node), group)

    @property
    def usual_s(self) -> float:
        """How long the answers to what is on its way should take, at the least; 0 where that is not known."""
        return max((route.in_flight.usual_s for route in self._routes.values()), default=0.0)

    def make_room(self) -> None:
        """Take what has been answered, and wait until each broker may be sent another request.

        Raises:
            Retriable: as ``drain``.
        """
        many = [route for route in self._routes.values() if route.in_flight.requests >= FEW_REQUESTS]
        while many and (arrived := wait_readable([route.connection for route in many], 0.0)):
            for route in many:
                if route.connection in arrived:
                    self._take(route)
            many = [route for route in many if route.unanswered]
        most_bytes = self._in_flight_bytes // max(1, len(self._routes))
        for route in self._routes.values():
            while route.in_flight.full(most_bytes):
                self._take(route)

    def drain(self) -> None:
        """Wait until nothing is unanswered.

        Raises:
            Retriable: a batch was refused for the moment. Those behind it were refused for the gap, or
                will be: it must not be repeated (docs/facts.md).
        """
        for route in self._routes.values():
            while route.unanswered:
                self._take(route)

    def _take(self, route: _Route) -> None:
        if again := self._read(route):
            raise self._not_now(again, "with others behind it")

    def await_first(self, why: str) -> None:
        """Wait for every answer and repeat what is refused for the moment: nothing was sent behind it.

        Args:
            why: what a refusal "for the moment" means here, for the error.
        """
        backoff, deadline = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), Deadline(PATIENCE_S)
        while True:
            again: list[tuple[_Route, list[_Again]]] = []
            for route in self._routes.values():
                while route.unanswered:
                    refused = self._read(route)
                    if refused:
                        again.append((route, refused))
            if not again:
                return
            ours = [one for _, refused in again for one in refused if concerns_partition(one.code)]
            backoff.pause(deadline, self._not_now(ours, "again and again") if ours else Retriable(why))
            for route, refused in again:
                self._write(route, [one.batch for one in refused])

    def check_topic_ids(self, targets: Iterable[TopicPartition]) -> None:
        """Compare topic ids before a commit, where Produce goes by name (docs/facts.md): data written to a
        topic that was recreated meanwhile would be lost silently."""
        by_name = [tp for tp in targets if tp.topic in self._by_name]
        if not by_name:
            return
        names = sorted({tp.topic for tp in by_name})
        now = self._cluster.each_topic(names)
        for name in names:
            concerned = [tp for tp in by_name if tp.topic == name]
            if name in now.failed:
                raise now.failed[name].about(*concerned)
            if name not in now.found or now.found[name].topic_id != self._topics[name].topic_id:
                raise NotNow(
                    f"target topic {name} was deleted or recreated between its records and the commit"
                ).about(*concerned)

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
        version = self._version(route)
        if version < BY_TOPIC_ID:
            self._by_name.update(b.target.topic for b in batches)
        frame = encode_produce(
            data,
            version=version,
            correlation_id=correlation_id,
            client_id=route.connection.client_id,
            transactional_id=self._id,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
        )
        route.connection.send_frame(
            frame, correlation_id, lambda answer: _read(ProduceResponse.decode(answer[1:], version=version))
        )
        route.unanswered.append((batches, route.in_flight.sent(sum(len(b.batch) for b in batches))))

    def _read(self, route: _Route) -> list[_Again]:
        """Take one answer; return the batches that may be sent again.

        Raises:
            Refused: the first batch of the answer that was; it has all others with it.
        """
        throttle_ms, answers = route.connection.receive()
        if throttle_ms > 0:
            route.mute_until_s = time.monotonic() + throttle_ms / 1000
            self._mute_until_s = max(self._mute_until_s, route.mute_until_s)
        by_id = self._version(route) >= BY_TOPIC_ID
        batches, departure = route.unanswered.popleft()
        route.in_flight.answered(departure)
        waiting = {
            (self._topics[b.target.topic].topic_id if by_id else b.target.topic, b.target.partition): b
            for b in batches
        }
        again: list[_Again] = []
        refused: list[Refused] = []
        for topic, partition in answers:
            batch = waiting.pop((topic.topic_id if by_id else topic.name, partition.index), None)
            if batch is None:
                # Its outcome is unknown, and so is that of the batch that this answer should be about.
                route.connection.close()
                raise Retriable(f"{self._cluster.alias} answers for a partition that nothing was sent to")
            try:
                if not self._answered(batch, partition):
                    again.append(_Again(batch, partition.error_code))
            except Refused as error:
                refused.append(error)
        if waiting:
            raise Retriable(f"no answer for {next(iter(waiting.values())).target}")
        if refused:
            refused[0].others = tuple(refused[1:])
            raise refused[0]
        return again

    def _not_now(self, refused: Sequence[_Again], why: str) -> NotNow:
        """Return the error for batches that may not be sent once more, although that is all they lack."""
        first = refused[0]
        text = f"{first.batch.target} was refused for the moment (error {first.code}), {why}"
        few = all(lacks_replicas(one.code) for one in refused)
        error = NotNow(text, where=self._cluster.alias, code=KafkaCode.FEW_REPLICAS if few else None)
        return error.about(*(one.batch.target for one in refused if concerns_partition(one.code)))

    # ---- who leads what

    def _is_known(self, batch: Outgoing) -> bool:
        """Tell whether the topic of that name is known, and is the one that is meant."""
        topic = self._topics.get(batch.target.topic)
        return topic is not None and batch.target_id in (None, topic.topic_id)

    def _look_up(self, targets: Sequence[TopicPartition]) -> None:
        """Learn ids and leaders of their topics, with one request however many they are."""
        if not targets:
            return
        each = self._cluster.each_topic(sorted({tp.topic for tp in targets}))
        self._topics.update(each.found)
        for target in targets:
            if target.topic in each.failed:
                raise each.failed[target.topic].about(target)
            if target.topic not in each.found:
                raise NotNow(f"target topic {target.topic} does not exist").about(target)

    def _leader(self, target: TopicPartition) -> int:
        partition = self._topics[target.topic].partitions.get(target.partition)
        if partition is None or partition.leader < 0:
            raise Retriable(f"{target} has no leader on the target", code=KafkaCode.NO_LEADER).about(target)
        return partition.leader

    def _route(self, node: int) -> _Route:
        route = self._routes.get(node)
        if route is None or (not route.unanswered and not self._takes(route)):
            if route is not None:
                route.connection.close()
            connection = self._cluster.open(node)
            try:
                spoken = max(_OLDEST, calls.api_versions(connection).newest.get(_PRODUCE_KEY, 0))
            except BaseException:
                connection.close()
                raise
            in_flight = self._in_flight.setdefault(node, InFlight())
            route = self._routes[node] = _Route(connection, spoken, in_flight)
        return route

    def _version(self, route: _Route) -> int:
        return min(self.newest, route.spoken)

    @staticmethod
    def _takes(route: _Route) -> bool:
        """Tell whether a broker listens: where a quota was exceeded not for a while, but on a new connection.

        That one is for what ends a transaction, and would come too late. Who sends much makes a pause.
        """
        return time.monotonic() >= route.mute_until_s and route.connection.usable


def _read(answer: Any) -> tuple[int, list[tuple[Any, Any]]]:
    """Return for how long the broker will not listen, in ms, and topic and partition of each answer."""
    found = [(topic, partition) for topic in answer.responses for partition in topic.partition_responses]
    return answer.throttle_time_ms, found


def refused(batch: Outgoing, answer: Any) -> Refused:
    """Return what the caller learns of a batch whose content the target does not take."""
    named = list(answer.record_errors or ())
    reason = (named[0].batch_index_error_message if named else None) or answer.error_message or ""
    return Refused(batch, answer.error_code, reason, [one.batch_index for one in named])


def why_known(error: OnceoverError) -> str | None:
    """Return the code of an error that says why it is, where another one is made of it."""
    return error.code if error.code in (KafkaCode.NO_LEADER, KafkaCode.FEW_REPLICAS) else None


def failure(
    cluster: Cluster, producer: str, api: Api, code: int, subject: str, *partitions: TopicPartition
) -> OnceoverError:
    """Return what an error code that ends a producer means for whoever uses it.

    Args:
        partitions: which it was answered for, if the code is about partitions.
    """
    error = _failure(cluster, producer, api, code, subject)
    return error.about(*partitions) if concerns_partition(code) else error


def way_out(code: int) -> str | None:
    """Return which setting of the target's brokers is in the way, where a code tells."""
    return _SETTINGS.get(code)


def _failure(cluster: Cluster, producer: str, api: Api, code: int, subject: str) -> OnceoverError:
    action = classify(api, code)
    what = api.name.replace("_", " ").lower()
    text = f"{cluster.alias} answers error {code} to {what}"
    match action:
        case Action.UNAUTHORIZED:
            return UsageError(
                f"{text}: {lacking(api, code)}",
                code=KafkaCode.NOT_AUTHORIZED,
                where=subject,
                expected="WRITE on topics and transactional ids onceover.<flow>.*, READ on groups",
                seen=f"principal of {cluster.alias} lacks a right",
                resolve="grant the rights listed in docs/operations.md",
            )
        case Action.OPERATOR:
            return NeedsOperator(text, code=KafkaCode.BROKER_SETTING, where=subject, resolve=way_out(code))
        case Action.FATAL:
            return Fatal(text, where=subject)
        case _:
            known = KafkaCode.FEW_REPLICAS if lacks_replicas(code) else ID_TAKEN if says_taken(code) else None
            return MustReset(f"{producer}: {text}", where=subject, code=known)
