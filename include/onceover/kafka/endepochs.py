"""In which leader epoch the logs end that a transaction has written: asked beside it, never waited for alone.

Evidence, and nothing more: what is not answered is left out, and no transaction fails for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from typing import Any, Final

from onceover.errors import OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.cluster import Cluster, PartitionInfo
from onceover.kafka.connection import Connection
from onceover.model import TopicPartition

log = logging.getLogger(__name__)

# A transaction waits for it: far below its time-out, far above what a healthy broker needs.
_ANSWER_S: Final = 1.0
# While brokers do not answer, transactions are not held up by them.
_PAUSE_AFTER_FAILURE_S: Final = 10.0


class EndEpochs:
    """A connection to each leader beside those that carry data. Not thread-safe.

    Args:
        cluster: where the logs are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._partitions: dict[TopicPartition, PartitionInfo] = {}
        self._connections: dict[int, Connection] = {}
        self._asked: list[Connection] = []
        self._next_s = 0.0

    def ask(self, targets: Collection[TopicPartition]) -> None:
        """Send the question for partitions everything of which is acknowledged."""
        if not targets or time.monotonic() < self._next_s:
            return
        try:
            self._look_up({tp.topic for tp in targets if tp not in self._partitions})
            by_node: dict[int, list[TopicPartition]] = {}
            for tp in targets:
                if tp in self._partitions and self._partitions[tp].leader >= 0:
                    by_node.setdefault(self._partitions[tp].leader, []).append(tp)
            for node, some in by_node.items():
                connection = self._connection(node)
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

    def _look_up(self, topics: Collection[str]) -> None:
        for topic in self._cluster.each_topic(sorted(topics)).found.values() if topics else ():
            for number, partition in topic.partitions.items():
                self._partitions[TopicPartition(topic.name, number)] = partition

    def _connection(self, node: int) -> Connection:
        connection = self._connections.get(node)
        if connection is None or not connection.usable:
            if connection is not None:
                connection.close()
            connection = self._connections[node] = self._cluster.open(node)
        return connection

    def _failed(self, error: OnceoverError) -> None:
        log.debug("leader epochs of %s are not known for now: %s", self._cluster.alias, error)
        self._next_s = time.monotonic() + _PAUSE_AFTER_FAILURE_S
        self._partitions.clear()
        self.close()
