"""Fetching many partitions with one request in flight per leading broker.

The answer's records stay in the connection's receive buffer: they are valid until the next ``poll``.
The next request can be in flight while they are processed; its answer waits in the socket.

Invariant: no partition waits for another one's backlog. A broker fills its answer in the order of the request
until it is full, and gives only the first partition that has something a batch above the limits. So whoever
was given something goes behind all others, and everybody comes first some time.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
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

log = logging.getLogger(__name__)

# A buffer grows by doubling, and is used again: fresh pages cost more than what is received into them.
_KEPT_SHARES = 2


@dataclass
class Position:
    """Where one partition is read next."""

    topic_id: UUID
    offset: int
    leader: int
    leader_epoch: int
    last_fetched_epoch: int = calls.NO_EPOCH


@dataclass(eq=False)
class _Route:
    node: int
    connection: Channel
    asked: set[TopicPartition] = field(default_factory=set)
    # The broker does not listen before, because of a quota (KIP-219).
    mute_until_s: float = -math.inf


class Fetcher:
    """Reads the assigned partitions of one cluster. Not thread-safe.

    Args:
        cluster: where to read.
        isolation: ``READ_COMMITTED`` cuts answers at the LSO.
        max_bytes: size of what ``poll`` returns, over all brokers; a single larger batch still comes whole.
        partition_max_bytes: share of one partition in an answer; where there are so few that the answer would
            not be full, they have more: from far away, each round trip should bring as much as it may.
    """

    def __init__(self, cluster: Cluster, *, isolation: int, max_bytes: int, partition_max_bytes: int) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._routes: dict[int, _Route] = {}
        self.positions: dict[TopicPartition, Position] = {}
        self._names: dict[UUID, str] = {}

    def assign(self, partition: TopicPartition, position: Position) -> None:
        """Read ``partition`` too, from the next request on."""
        self.positions[partition] = position
        self._names[position.topic_id] = partition.topic

    def remove(self, partition: TopicPartition) -> None:
        """Read ``partition`` no longer; an answer under way for it is dropped."""
        self.positions.pop(partition, None)

    def rewind(self, partition: TopicPartition, offset: int, last_fetched_epoch: int) -> None:
        """Read ``partition`` from ``offset`` again, behind all others; an answer under way for it is dropped.

        Args:
            last_fetched_epoch: leader epoch of the record before ``offset``.
        """
        position = self.positions[partition] = self.positions.pop(partition)
        position.offset, position.last_fetched_epoch = offset, last_fetched_epoch
        for route in self._routes.values():
            # It begins behind what was asked for then: what lies in between would be lost.
            route.asked.discard(partition)

    def request(self, *, max_wait_ms: int, min_bytes: int, max_bytes: int | None = None) -> None:
        """Send the next request to every broker that has none in flight.

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
            if route.connection.in_flight:
                continue
            correlation_id = route.connection.next_correlation_id()
            frame = encode_fetch(
                map(self._fetch_position, partitions),
                correlation_id=correlation_id,
                client_id=route.connection.client_id,
                isolation=self._isolation,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=broker_bytes,
                partition_max_bytes=max(self._partition_max_bytes, broker_bytes // len(partitions)),
            )
            route.asked = set(partitions)
            route.connection.send_frame(
                [frame],
                correlation_id,
                decode_fetch,
                held_s=max_wait_ms / 1000 + max(0.0, route.mute_until_s - time.monotonic()),
                max_answer_bytes=broker_bytes + LARGEST_BATCH_BYTES,
            )

    def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
        """Return what has been answered, waiting for the first answer at most ``timeout_s``.

        Every partition asked for comes back, with its error code, perhaps without records.

        Raises:
            Retriable: a connection was lost, or a broker owes its answer for too long.
        """
        self._trim()
        found: list[tuple[TopicPartition, FetchedPartition]] = []
        taken_bytes = 0
        for route in self._answering(timeout_s):
            if taken_bytes >= self._max_bytes:
                # Each gives a whole batch at least, however small its share. What waits, waits in its socket.
                break
            # The others come first next time.
            self._routes[route.node] = self._routes.pop(route.node)
            answer: FetchResponse = route.connection.receive()
            if answer.throttle_ms > 0:
                route.mute_until_s = time.monotonic() + answer.throttle_ms / 1000
            if answer.error_code:
                raise Retriable(f"{self._cluster.alias} answers error {answer.error_code} to fetch")
            for partition in answer.partitions:
                name = self._names.get(partition.topic_id)
                taken_bytes += len(partition.records)
                tp = TopicPartition(name or "", partition.partition)
                if tp in route.asked and tp in self.positions:
                    found.append((tp, partition))
        self._send_behind(tp for tp, partition in found if partition.records)
        return found

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
            if route is not None:
                route.connection.close()
            route = self._routes[node] = _Route(node, self._cluster.open(node))
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
