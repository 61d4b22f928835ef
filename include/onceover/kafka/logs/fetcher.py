"""Fetching many partitions with one request in flight per leading broker, or a few where it is far away.

The answer's records stay in the connection's receive buffer: they are valid until the next ``poll``.
The next request can be in flight while they are processed; its answer waits in the socket.

A distant broker would be asked once in a round trip, and its line be idle for the rest of it: where answers
were waited for although there was more to read, several requests are under way, for different partitions. A
broker answers a connection's requests in their order, so each of them is for one that has a backlog at least:
none waits for new records, and keeps those behind it from being answered.

Invariant: no partition waits for another one's backlog. A broker fills its answer in the order of the request
until it is full, and gives only the first partition that has something a batch above the limits. So whoever
was given something goes behind all others, and everybody comes first some time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from onceover.errors import Retriable
from onceover.kafka import calls
from onceover.kafka.link.channel import LARGEST_BATCH_BYTES, Channel
from onceover.kafka.link.connection import wait_readable
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.wire.hotpath import (
    FetchedPartition,
    FetchPosition,
    FetchResponse,
    decode_fetch,
    encode_fetch,
)

# A buffer grows by doubling, and is used again: fresh pages cost more than what is received into them.
_KEPT_SHARES = 2
# Requests under way to a distant broker, at most. One answer at a time is in the receive buffer, as near by;
# the others are in sockets, whose size the kernel bounds, and on the line.
FAR_WAYS: Final = 3
# Who waits for so long for an answer that was to be full is not next door: 1 to 3 ms were measured there.
_FAR_S = 0.005
# A broker next door that is busy for a moment is none that is far away.
_FAR_ANSWERS = 3


@dataclass
class Position:
    """Where one partition is read next."""

    topic_id: UUID
    offset: int
    leader: int
    leader_epoch: int
    last_fetched_epoch: int = calls.NO_EPOCH


class _Asked(NamedTuple):
    """A request under way: for whom its answer counts, and how much that may bring."""

    partitions: set[TopicPartition]
    max_bytes: int


@dataclass(eq=False)
class _Route:
    node: int
    connection: Channel
    # Of each request under way, the oldest first.
    asked: deque[_Asked] = field(default_factory=deque)
    # The broker does not listen before, because of a quota (KIP-219).
    mute_until_s: float = -math.inf
    # Answers in a row that were waited for although there was more to read.
    waited: int = 0
    is_far: bool = False


class Fetcher:
    """Reads the assigned partitions of one cluster. Not thread-safe.

    Args:
        cluster: where to read.
        isolation: ``READ_COMMITTED`` cuts answers at the LSO.
        max_bytes: size of what ``poll`` returns, over all brokers; a single larger batch still comes whole.
        partition_max_bytes: share of one partition in an answer; where there are so few that the answer would
            not be full, they have more: from far away, each round trip should bring as much as it may.
        ways: requests that may be under way to a broker, each for as much as usual.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation: int,
        max_bytes: int,
        partition_max_bytes: int,
        ways: int = 1,
    ) -> None:
        self._cluster = cluster
        self._ways = ways
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._routes: dict[int, _Route] = {}
        self.positions: dict[TopicPartition, Position] = {}
        self._names: dict[UUID, str] = {}
        # Up to where each could be read when it was answered last.
        self._ends: dict[TopicPartition, int] = {}
        # Up to where there is nothing, although it was told.
        self._empty: dict[TopicPartition, int] = {}

    def assign(self, partition: TopicPartition, position: Position) -> None:
        """Read ``partition`` too, from the next request on."""
        self._drop(partition)
        self.positions[partition] = position
        self._names[position.topic_id] = partition.topic

    def remove(self, partition: TopicPartition) -> None:
        """Read ``partition`` no longer; an answer under way for it is dropped."""
        self._drop(partition)
        self.positions.pop(partition, None)
        self._ends.pop(partition, None)

    def rewind(self, partition: TopicPartition, offset: int, last_fetched_epoch: int) -> None:
        """Read ``partition`` from ``offset`` again, behind all others; an answer under way for it is dropped.

        Args:
            last_fetched_epoch: leader epoch of the record before ``offset``.
        """
        position = self.positions[partition] = self.positions.pop(partition)
        position.offset, position.last_fetched_epoch = offset, last_fetched_epoch
        self._drop(partition)

    def _drop(self, partition: TopicPartition) -> None:
        """Take no answer that is under way for it: it is for the place where it was read before."""
        self._empty.pop(partition, None)
        for route in self._routes.values():
            for asked in route.asked:
                asked.partitions.discard(partition)

    def request(self, *, max_wait_ms: int, min_bytes: int, max_bytes: int | None = None) -> None:
        """Send the next request to every broker that has none in flight; a distant one may have several.

        Args:
            max_wait_ms: how long the broker gathers ``min_bytes``.
            max_bytes: size of this answer over all brokers, where it is to be smaller than usual.

        Raises:
            Retriable: a broker is away.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp, position in self.positions.items():
            by_leader.setdefault(position.leader, []).append(tp)
        # The budget is for all answers together: each waits in a buffer of its own.
        all_bytes = self._max_bytes if max_bytes is None else min(max_bytes, self._max_bytes)
        broker_bytes = max(1, all_bytes // max(1, len(by_leader)))
        for node, partitions in by_leader.items():
            route = self._route(node)
            ways = self._ways if max_bytes is None else 1
            for some, sharing in self._portions(route, partitions, ways):
                self._send(route, some, max_wait_ms, min_bytes, broker_bytes, sharing)

    def _portions(
        self, route: _Route, partitions: list[TopicPartition], ways: int
    ) -> Iterator[tuple[list[TopicPartition], int]]:
        """Yield what is asked for now, request by request, with how many share its answer."""
        if not route.is_far or ways == 1 or route.mute_until_s > time.monotonic():
            if not route.connection.in_flight:
                yield partitions, len(partitions)
            return
        if route.asked and not route.connection.usable:
            # Its session is over before long: another one takes its place once nothing is under way on it.
            return
        free = [tp for tp in partitions if not any(tp in asked.partitions for asked in route.asked)]
        behind = [tp for tp in free if self._is_behind(tp)]
        several = min(ways, len(behind) + len(route.asked))
        if several < 2:
            # There is nothing for another one. With all of it read the next thing is to wait, for everybody.
            if not several:
                route.is_far, route.waited = False, 0
            if not route.asked:
                yield partitions, len(partitions)
            return
        while behind and len(route.asked) < several:
            count = -(-len(behind) // (several - len(route.asked)))
            # The others come along with the first of them, which are answered at once, whatever they have; in
            # the same order as ever, or who needs to be first for a large batch never would be.
            later = set(behind[count:])
            yield [tp for tp in free if tp not in later], count
            free, behind = behind[count:], behind[count:]

    def _is_behind(self, tp: TopicPartition) -> bool:
        """Tell whether there was more to read of a partition when it was answered last."""
        return self.positions[tp].offset < self._ends.get(tp, 0)

    def _send(
        self,
        route: _Route,
        partitions: list[TopicPartition],
        wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        sharing: int,
    ) -> None:
        correlation_id = route.connection.next_correlation_id()
        frame = encode_fetch(
            map(self._fetch_position, partitions),
            correlation_id=correlation_id,
            client_id=route.connection.client_id,
            isolation=self._isolation,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_max_bytes=max(self._partition_max_bytes, max_bytes // sharing),
        )
        route.connection.send_frame(
            [frame],
            correlation_id,
            decode_fetch,
            held_s=wait_ms / 1000 + max(0.0, route.mute_until_s - time.monotonic()),
            max_answer_bytes=max_bytes + LARGEST_BATCH_BYTES,
        )
        route.asked.append(_Asked(set(partitions), max_bytes))

    def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
        """Return what has been answered, waiting for the first answer at most ``timeout_s``.

        Every partition asked for comes back, with its error code, perhaps without records.

        Raises:
            Retriable: a connection was lost, or a broker owes its answer for too long.
        """
        self._trim()
        found: list[tuple[TopicPartition, FetchedPartition]] = []
        taken_bytes, began_s = 0, time.monotonic()
        ready = self._answering(timeout_s)
        waited = time.monotonic() - began_s > _FAR_S
        for route in ready:
            if taken_bytes >= self._max_bytes:
                # Each gives a whole batch at least, however small its share. What waits, waits in its socket.
                break
            # The others come first next time.
            self._routes[route.node] = self._routes.pop(route.node)
            answer: FetchResponse = route.connection.receive()
            asked = route.asked.popleft()
            if self._ways > 1:
                self._judge_distance(route, asked, waited=waited)
            if answer.throttle_ms > 0:
                route.mute_until_s = time.monotonic() + answer.throttle_ms / 1000
                route.connection.allow(answer.throttle_ms / 1000)
            if answer.error_code:
                raise Retriable(f"{self._cluster.alias} answers error {answer.error_code} to fetch")
            answer_bytes = sum(len(partition.records) for partition in answer.partitions)
            taken_bytes += answer_bytes
            for partition in answer.partitions:
                tp = TopicPartition(self._names.get(partition.topic_id, ""), partition.partition)
                if tp in asked.partitions and tp in self.positions:
                    found.append((tp, partition))
                    if self._ways > 1:
                        self._note_end(tp, partition, is_full=2 * answer_bytes >= asked.max_bytes)
        self._send_behind(tp for tp, partition in found if partition.records)
        return found

    def _judge_distance(self, route: _Route, asked: _Asked, *, waited: bool) -> None:
        """Count answers in a row that were waited for although there was more to read."""
        # Asked of hundreds of partitions with each answer, this would show: not where it changes nothing.
        if route.is_far or not (waited or route.waited):
            return
        if any(map(self._is_behind, asked.partitions & self.positions.keys())):
            route.waited = route.waited + 1 if waited else 0
            route.is_far = route.waited >= _FAR_ANSWERS

    def _note_end(self, tp: TopicPartition, partition: FetchedPartition, *, is_full: bool) -> None:
        """Note up to where a partition can be read, unless there is nothing on the way there.

        Compaction may have left nothing before what a broker tells: it would be waited for again and again.
        """
        committed = self._isolation == calls.READ_COMMITTED
        end = partition.last_stable_offset if committed else partition.high_watermark
        if partition.records:
            self._empty.pop(tp, None)
        elif not is_full:
            self._empty[tp] = end
        self._ends[tp] = 0 if end <= self._empty.get(tp, -1) else end

    def _trim(self) -> None:
        """Keep no buffer that a single large answer has left, one for every broker."""
        share_bytes = self._max_bytes // max(1, len(self._routes))
        for route in self._routes.values():
            route.connection.trim(_KEPT_SHARES * share_bytes)

    def _send_behind(self, served: Iterable[TopicPartition]) -> None:
        """Ask for the others first next time."""
        for tp in served:
            self.positions[tp] = self.positions.pop(tp)

    @property
    def waiting(self) -> bool:
        """True while a request is in flight."""
        return any(r.connection.in_flight for r in self._routes.values())

    def answered(self) -> bool:
        """Tell whether an answer has arrived already, without waiting."""
        return bool(self._ready(0.0))

    def close(self) -> None:
        """Close the connections."""
        for route in self._routes.values():
            route.connection.close()
        self._routes.clear()

    def _ready(self, timeout_s: float) -> list[_Route]:
        busy = [r for r in self._routes.values() if r.connection.in_flight]
        readable = wait_readable([r.connection for r in busy], timeout_s) if busy else []
        return [r for r in busy if r.connection in readable]

    def _answering(self, timeout_s: float) -> list[_Route]:
        patience = self._cluster.patience
        within_s, began_s = patience.share_s(timeout_s), time.monotonic()
        owed_s = min((r.connection.owed_s for r in self._routes.values()), default=within_s)
        ready = self._ready(min(within_s, owed_s))
        if not ready and within_s < timeout_s and self.waiting:
            patience.spend(time.monotonic() - began_s)
            raise Retriable(f"{self._cluster.alias} does not answer to fetch within {within_s:.1f} s")
        for route in self._routes.values():
            if route not in ready:
                route.connection.expire()
        return ready

    def _route(self, node: int) -> _Route:
        route = self._routes.get(node)
        if route is None or (not route.connection.in_flight and not route.connection.usable):
            is_far = route is not None and route.is_far
            if route is not None:
                route.connection.close()
            route = self._routes[node] = _Route(node, self._cluster.open(node), is_far=is_far)
        return route

    def _fetch_position(self, tp: TopicPartition) -> FetchPosition:
        position = self.positions[tp]
        return FetchPosition(
            position.topic_id,
            tp.partition,
            position.offset,
            position.leader_epoch,
            position.last_fetched_epoch,
        )
