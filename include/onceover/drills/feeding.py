"""Writing numbered records, in every way in which producers write.

Invariant: nothing is written before it was asked whether the topic is still this drill's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from onceover.backoff import Deadline
from onceover.drills.canary import ABORTED, COMMITTED, Canary, by_partition
from onceover.kafka.portions import OwnRecord
from onceover.kafka.ports import Cluster
from onceover.kafka.produce.notes import RecordWriter
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.model import TopicPartition
from onceover.state.fenced import await_markers, send_records, take_id

_TRANSACTION_MS: Final = 10_000


@dataclass(frozen=True)
class CanaryFeed:
    """Writes a drill's numbers. Not thread-safe.

    Args:
        drill: whose numbers they are.
        ours: raises where the topics are another drill's by now.
    """

    drill: str
    ours: Callable[[], None]

    def mixed(self, cluster: Cluster, topic: str, transactional_id: str, first: int, last: int) -> None:
        """Write the first third plainly, the rest in two transactions, around one that is aborted."""
        third = max(1, (last - first) // 3)
        plain, middle = min(last, first + third), min(last, first + 2 * third)
        self.plain(cluster, topic, first, plain)
        for low, high, kind in (
            (plain, middle, COMMITTED),
            (plain, middle, ABORTED),
            (middle, last, COMMITTED),
        ):
            self._transaction(cluster, topic, transactional_id, self._numbered(low, high, kind), kind)

    def plain(self, cluster: Cluster, topic: str, first: int, last: int) -> None:
        """Write numbers as a new producer without transactions."""
        for partition, records in self._numbered(first, last, COMMITTED).items():
            writer = RecordWriter(cluster, TopicPartition(topic, partition))
            try:
                self.ours()
                writer.write(records)
            finally:
                writer.close()

    def _numbered(self, first: int, last: int, kind: str) -> dict[int, list[OwnRecord]]:
        return by_partition(Canary(self.drill, number, kind) for number in range(first, last))

    def _transaction(
        self,
        cluster: Cluster,
        topic: str,
        transactional_id: str,
        records: Mapping[int, Sequence[OwnRecord]],
        kind: str,
    ) -> None:
        if not records:
            return
        self.ours()
        producer = TransactionalProducer(cluster, transactional_id, timeout_ms=_TRANSACTION_MS)
        try:
            written = [TopicPartition(topic, partition) for partition in records]
            take_id(cluster, producer, written, Deadline(_TRANSACTION_MS / 1000))
            for tp in written:
                send_records(producer, tp, records[tp.partition])
            if kind == ABORTED:
                producer.abort()
            else:
                producer.commit()
            # Whoever asks for the log's end next reads up to there, and would miss what is not decided yet.
            await_markers(cluster, producer, written, Deadline(_TRANSACTION_MS / 1000))
        finally:
            producer.close()
