"""What the benchmark asks of its two clusters: topics, progress, counts."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.errors import Retriable
from onceover.kafka.calls import LATEST, READ_COMMITTED, list_offsets
from onceover.kafka.link.channel import Address
from onceover.kafka.link.connection import Connection
from onceover.model import TopicPartition as Partition
from onceover_lab.bench.workloads import PARTITIONS

REQUEST_TIMEOUT_S: Final = 10.0
# The broker's own; everything else on the target is made by the systems under test.
_BROKER_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_COUNT_TIMEOUT_S: Final = 120.0
_POLL_INTERVAL_S: Final = 0.1

# Unknown topic, leader not available, not the leader: just made or just deleted.
_NOT_THERE_YET: Final = (3, 5, 6)

_log = logging.getLogger(__name__)


def connect(bootstrap: str) -> Connection:
    """Open a connection to the only broker of a cluster, as Kafka's protocol has it."""
    host, port = bootstrap.rsplit(":", 1)
    return Connection(Address(host, int(port)), {})


class Topics:
    """Admin calls on one single-broker cluster.

    The end of a topic is asked of that broker directly: librdkafka's ListOffsets goes by cached metadata and
    was seen to miss a topic, made again under the same name, for minutes.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "logger": _log})
        self._connection: Connection | None = None
        self._connection_lock = threading.Lock()

    def create(self, topic: str, config: Mapping[str, str], partitions: int) -> None:
        """Create a topic and wait until all of it can be written to."""
        new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1", **config})
        self._admin.create_topics([new], operation_timeout=REQUEST_TIMEOUT_S)[topic].result()
        _wait_until(
            lambda: len(self.end_offsets(topic, partitions)) == partitions, f"topic {topic} to be created"
        )

    def delete_all(self) -> None:
        """Delete every topic but the broker's own, and wait until they are gone.

        Both systems keep all their state in such topics (Onceover's progress group loses its offsets with
        the topic), so that the next run starts from nothing.
        """
        self._delete(self._user_topics())

    def delete(self, topic: str) -> None:
        """Delete one topic, if it exists, and wait until it is gone."""
        self._delete({name: count for name, count in self._user_topics().items() if name == topic})

    def end_offsets(self, topic: str, partitions: int = PARTITIONS) -> dict[int, int]:
        """Return the last stable offset by partition: what a read_committed reader can see.

        Empty while the topic does not exist. May be called from another thread than the rest.

        Raises:
            Retriable: the cluster does not answer, or with an error.
        """
        with self._connection_lock:
            return self._ask_end_offsets(topic, partitions)

    def count(self, topic: str) -> dict[int, int]:
        """Read the topic read_committed to its present end and return the records by partition.

        Raises:
            Retriable: the end was not reached in two minutes.
        """
        return count_records(self._bootstrap, topic, self.end_offsets(topic))

    def close(self) -> None:
        """Close the connection to the broker."""
        with self._connection_lock:
            if self._connection is not None:
                self._connection.close()

    def _ask_end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._bootstrap)
        asked = [Partition(topic, partition) for partition in range(partitions)]
        answer = list_offsets(self._connection, asked, LATEST, READ_COMMITTED)
        wrong = {error_code for error_code, _, _ in answer.values()} - {0, *_NOT_THERE_YET}
        if wrong:
            raise Retriable(f"the end of {topic} could not be read", seen=f"error codes {sorted(wrong)}")
        return {tp.partition: offset for tp, (error_code, offset, _) in answer.items() if error_code == 0}

    def _user_topics(self) -> dict[str, int]:
        """Return how many partitions each topic has that is not the broker's own."""
        topics = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {name: len(topics[name].partitions) for name in sorted(topics.keys() - _BROKER_TOPICS)}

    def _delete(self, topics: Mapping[str, int]) -> None:
        if not topics:
            return
        for future in self._admin.delete_topics(list(topics), operation_timeout=REQUEST_TIMEOUT_S).values():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        what = f"{len(topics)} topics to be deleted"
        _wait_until(lambda: not topics.keys() & self._user_topics().keys(), what)
        # The broker forgets a topic before it closes its logs, and tells their ends until then: a run was
        # seen to begin with what the one before had copied to a topic of that name.
        _wait_until(lambda: not any(self.end_offsets(topic, topics[topic]) for topic in topics), what)


def count_records(bootstrap: str, topic: str, ends: Mapping[int, int]) -> dict[int, int]:
    """Count the committed records below ``ends`` with a consumer of librdkafka, which neither system uses.

    Raises:
        Retriable: the end was not reached in two minutes.
        KafkaException: the consumer failed for good.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-count",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            # By default a full queue pauses its partition for a whole second: the count would take minutes.
            "fetch.queue.backoff.ms": 5,
            "logger": _log,
        }
    )
    counts: Counter[int] = Counter(dict.fromkeys(ends, 0))
    open_partitions = {partition for partition, end in ends.items() if end > 0}
    deadline = time.monotonic() + _COUNT_TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in open_partitions])
        while open_partitions:
            if time.monotonic() > deadline:
                raise Retriable(f"reading {topic} did not reach its end", where=topic, seen=str(dict(counts)))
            messages = consumer.consume(50_000, timeout=0.2)
            for message in [m for m in messages if m.error() is not None]:
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(message.error())
                open_partitions.discard(message.partition())
                counts[message.partition()] -= 1  # the end-of-partition event is no record
            counts.update(map(methodcaller("partition"), messages))
    finally:
        consumer.close()
    return dict(counts)


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise Retriable(f"waited 30 s in vain for {what}", resolve="look at the broker's log")
        time.sleep(_POLL_INTERVAL_S)
