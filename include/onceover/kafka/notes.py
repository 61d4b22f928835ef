"""Small JSON records written outside transactions: requests, heartbeats. Through confluent-kafka.

Idempotent and acknowledged by all in-sync replicas; used by the driver and the command line only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from onceover.errors import Retriable
from onceover.kafka.cluster import ClientSettings
from onceover.model import TopicPartition

_DELIVERY_TIMEOUT_S = 10.0


class NoteWriter:
    """Writes key and JSON value into one partition; ``None`` removes the key."""

    def __init__(self, settings: ClientSettings, partition: TopicPartition) -> None:
        self._alias = settings.alias
        self._partition = partition
        self._producer = Producer(
            {
                **settings.properties,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1000),
            }
        )

    def write(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Write one record and wait for its acknowledgement.

        Raises:
            Retriable: not acknowledged in time.
        """
        problems: list[str] = []
        body = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        try:
            self._producer.produce(
                self._partition.topic,
                key=key.encode(),
                value=body,
                partition=self._partition.partition,
                on_delivery=lambda error, _: problems.append(error.str()) if error else None,
            )
            left = self._producer.flush(_DELIVERY_TIMEOUT_S + 1)
        except (KafkaException, BufferError) as error:
            raise Retriable(f"{self._alias} did not take {key!r}: {error}") from error
        if problems or left:
            raise Retriable(
                f"{self._alias} did not take {key!r}: {', '.join(problems) or 'no answer in time'}",
                where=str(self._partition),
                resolve=f"check that {self._alias} is up, then run again",
            )

    def close(self) -> None:
        """Forget undelivered records; every ``write`` has waited already."""
        self._producer.purge()
        self._producer.flush(1)
