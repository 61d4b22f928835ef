"""Small records written outside transactions: requests, heartbeats. Through confluent-kafka.

Idempotent and acknowledged by all in-sync replicas; used by the driver and the command line only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.admin import NOT_AUTHORIZED, UNAUTHORIZED, is_temporary
from onceover.kafka.cluster import Cluster
from onceover.kafka.librdkafka import library_properties
from onceover.kafka.portions import OwnRecord, portions
from onceover.model import TopicPartition

_DELIVERY_TIMEOUT_S = 10.0
# So that a broker that is silent is left, and the records sent again, before they are given up.
_ANSWER_TIMEOUT_S = 3.0
# In 10 s, the time that one has, by a line of 1 Mbit/s.
_AT_ONCE_BYTES: Final = 1 << 20
# Enough to see what it was about.
_NAMED_KEYS = 3


class RecordWriter:
    """Writes keys and values into one partition; a value of ``None`` is a tombstone.

    The library takes whatever answers at an address for its cluster: before each write it is asked whom it
    has reached.
    """

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self._cluster = cluster
        self._alias = cluster.alias
        self._partition = partition
        self._producer = Producer(
            {
                **library_properties(cluster.config.properties),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1000),
                "request.timeout.ms": int(_ANSWER_TIMEOUT_S * 1000),
                "socket.timeout.ms": int(_ANSWER_TIMEOUT_S * 1000),
                "socket.keepalive.enable": True,
            }
        )

    def write(self, records: Iterable[OwnRecord]) -> None:
        """Write records in their order and wait until every one is acknowledged.

        Of many, so much at a time that also a slow line carries it in time.

        Raises:
            Retriable: one was not acknowledged in time; which of the others were is not known.
            UsageError: not authorized.
            NeedsOperator: the broker refuses one for good, or it is another cluster's (FOREIGN_CLUSTER).
        """
        self._recognise()
        for portion in portions(records, _AT_ONCE_BYTES):
            self._write(portion)

    def _write(self, wanted: Sequence[OwnRecord]) -> None:
        problems: list[KafkaError] = []
        shown = ", ".join(repr(key.decode("utf-8", "replace")) for key, _ in wanted[:_NAMED_KEYS])
        try:
            for key, value in wanted:
                self._producer.produce(
                    self._partition.topic,
                    key=key,
                    value=value,
                    partition=self._partition.partition,
                    on_delivery=lambda error, _: problems.append(error) if error else None,
                )
            left = self._producer.flush(_DELIVERY_TIMEOUT_S + 1)
        except BufferError as error:
            raise Retriable(f"{self._alias} did not take {shown}: its queue is full") from error
        except KafkaException as error:
            raise self._failure(shown, error.args[0].str(), error.args[0]) from error
        if problems or left:
            seen = ", ".join(sorted({problem.str() for problem in problems})) or "no answer in time"
            raise self._failure(shown, seen, *problems)

    def _recognise(self) -> None:
        topic = self._partition.topic
        try:
            seen = self._producer.list_topics(topic, _DELIVERY_TIMEOUT_S)
        except KafkaException as error:
            raise self._failure(topic, error.args[0].str(), error.args[0]) from error
        self._cluster.recognise(seen.cluster_id, self._cluster.config.properties["bootstrap.servers"])

    def _failure(self, shown: str, seen: str, *problems: KafkaError) -> OnceoverError:
        text, where = f"{self._alias} did not take {shown}: {seen}", str(self._partition)
        if any(problem.code() in UNAUTHORIZED for problem in problems):
            resolve = "grant the principal the rights listed in docs/operations.md"
            return UsageError(text, code=NOT_AUTHORIZED, where=where, resolve=resolve)
        if all(is_temporary(problem) for problem in problems):
            return Retriable(text, where=where, resolve=f"check that {self._alias} is up, then run again")
        return NeedsOperator(text, code="WRITE_REFUSED", where=where)

    def close(self) -> None:
        """Forget undelivered records; every ``write`` has waited already."""
        self._producer.purge()
        self._producer.flush(1)


class NoteWriter:
    """Writes key and JSON value into one partition; ``None`` removes the key."""

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self._records = RecordWriter(cluster, partition)

    def write(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Write one record and wait for its acknowledgement.

        Raises:
            Retriable: not acknowledged in time.
            UsageError: not authorized.
        """
        self.write_all({key: value})

    def write_all(self, records: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write records in their order and wait until every one is acknowledged.

        Raises:
            Retriable: one was not acknowledged in time; which of the others were is not known.
            UsageError: not authorized.
        """
        self._records.write((key.encode(), _json(value)) for key, value in records.items())

    def close(self) -> None:
        """Forget undelivered records; every ``write`` has waited already."""
        self._records.close()


def _json(value: Mapping[str, Any] | None) -> bytes | None:
    return None if value is None else json.dumps(value, separators=(",", ":")).encode()
