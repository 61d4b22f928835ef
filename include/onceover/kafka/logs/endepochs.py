"""In which leader epoch the logs end that a transaction has written: asked beside it, never waited for alone.

Evidence, and nothing more: what is not answered is left out, and no transaction fails for it, nor
does one wait for a connection: they are opened between transactions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from typing import Any, Final

from onceover.errors import OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.link.channel import Channel
from onceover.kafka.ports import Cluster, PartitionInfo
from onceover.model import TopicPartition

log = logging.getLogger(__name__)

# A transaction waits for it: far below its time-out, far above what a healthy broker needs.
_ANSWER_S: Final = 1.0
# Of the copy's time, to find the leaders and to reach them.
_PATIENCE_S: Final = 1.0
# While brokers do not answer, transactions are not held up by them.
_PAUSE_AFTER_FAILURE_S: Final = 30.0


class EndEpochs:
    """A connection to each leader beside those that carry data. Not thread-safe.

    Args:
        cluster: where the logs are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._partitions: dict[TopicPartition, PartitionInfo] = {}
        self._connections: dict[int, Channel] = {}
        self._asked: list[Channel] = []
        self._next_s = 0.0

    def prepare(self, targets: Collection[TopicPartition]) -> None:
        """Find the leaders and reach them, and those that have hung up: between transactions."""
        if not targets or time.monotonic() < self._next_s:
            return
        try:
            with self._cluster.hasty(_PATIENCE_S) as cluster:
                self._look_up(cluster, {tp.topic for tp in targets if tp not in self._partitions})
                for node in self._by_leader(targets).keys() | self._connections.keys():
                    self._connect(cluster, node)
        except OnceoverError as error:
            self._failed(error)

    def ask(self, targets: Collection[TopicPartition]) -> None:
        """Send the question for partitions everything of which is acknowledged, where that is prepared."""
        if time.monotonic() < self._next_s:
            return
        try:
            for node, some in self._by_leader(targets).items():
                connection = self._connections.get(node)
                if connection is not None and connection.usable:
                    connection.send(*calls.list_offsets_request(some, calls.LATEST, calls.READ_UNCOMMITTED))
                    self._asked.append(connection)
        except OnceoverError as error:
            self._failed(error)

    def answers(self) -> dict[TopicPartition, int]:
        """Return the epochs of those that ``ask`` was about, where they are known."""
        found: dict[TopicPartition, int] = {}
        asked, self._asked = self._asked, []
        deadline_s = time.monotonic() + _ANSWER_S
        try:
            for connection in asked:
                if not connection.readable(max(0.0, deadline_s - time.monotonic())):
                    self._failed(Retriable(f"no answer within {_ANSWER_S:g} s"))
                    break
                found.update(self._read(connection.receive()))
        except OnceoverError as error:
            self._failed(error)
        return found

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._asked = []

    def _read(self, answer: Any) -> Iterable[tuple[TopicPartition, int]]:
        for tp, (code, _, epoch) in calls.offsets_listed(answer).items():
            if code == 0 and epoch >= 0:
                yield tp, epoch
            else:
                # Another one leads it by now.
                self._partitions.pop(tp, None)

    def _by_leader(self, targets: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in targets:
            if tp in self._partitions:
                by_node.setdefault(self._partitions[tp].leader, []).append(tp)
        return by_node

    def _look_up(self, cluster: Cluster, topics: Collection[str]) -> None:
        for topic in cluster.each_topic(sorted(topics)).found.values() if topics else ():
            for number, partition in topic.partitions.items():
                if partition.leader >= 0:
                    self._partitions[TopicPartition(topic.name, number)] = partition

    def _connect(self, cluster: Cluster, node: int) -> None:
        connection = self._connections.get(node)
        if connection is not None:
            if connection.usable:
                return
            connection.close()
        self._connections[node] = cluster.open(node)

    def _failed(self, error: OnceoverError) -> None:
        log.debug("leader epochs of %s are not known for now: %s", self._cluster.alias, error)
        self._next_s = time.monotonic() + _PAUSE_AFTER_FAILURE_S
        self._partitions.clear()
        self.close()
