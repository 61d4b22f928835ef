"""Small records written outside transactions: requests, heartbeats.

Idempotent and acknowledged by all in-sync replicas; used by the driver and the command line only. What was
not acknowledged is sent again under a new producer id, and may be there twice then: the last value counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.errors import MustReset, Retriable, UsageError
from onceover.kafka.portions import OwnRecord, portions
from onceover.kafka.ports import Cluster, Refused
from onceover.kafka.produce.atleastonce import IdempotentProducer
from onceover.kafka.produce.refusals import write_refused
from onceover.kafka.produce.rounds import own_batches
from onceover.model import TopicPartition

_DELIVERY_TIMEOUT_S: Final = 10.0
# In 10 s, the time that one has, by a line of 1 Mbit/s.
_AT_ONCE_BYTES: Final = 1 << 20
# Enough to see what it was about.
_NAMED_KEYS: Final = 3


class RecordWriter:
    """Writes keys and values into one partition; a value of ``None`` is a tombstone. Not thread-safe."""

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self._meant = cluster
        # A broker that is silent is left before the time is over, and another connection tried.
        self._cluster = cluster.hasty(_DELIVERY_TIMEOUT_S)
        self._alias = cluster.alias
        self._partition = partition
        self._producer: IdempotentProducer | None = None

    def write(self, records: Iterable[OwnRecord]) -> None:
        """Write records in their order and wait until every one is acknowledged.

        Of many, so much at a time that also a slow line carries it in time.

        Raises:
            Retriable: one was not acknowledged in time; which of the others were is not known.
            UsageError: not authorized.
            NeedsOperator: the broker refuses one for good, or it is another cluster's (FOREIGN_CLUSTER).
        """
        for portion in portions(records, _AT_ONCE_BYTES):
            self._write(portion)

    def _write(self, wanted: Sequence[OwnRecord]) -> None:
        self._cluster.patience.renew()
        backoff, deadline = Backoff(), Deadline(_DELIVERY_TIMEOUT_S)
        shown = ", ".join(repr(key.decode("utf-8", "replace")) for key, _ in wanted[:_NAMED_KEYS])
        text, where = f"{self._alias} did not take {shown}", str(self._partition)
        while True:
            try:
                self._send(wanted)
                return
            except (MustReset, Retriable) as error:
                self._forget()
                resolve = f"check that {self._alias} is up, then run again"
                backoff.pause(deadline, Retriable(f"{text}: {error.message}", where=where, resolve=resolve))
            except UsageError as error:
                self._forget()
                resolve = error.resolve or "grant the principal the rights listed in docs/operations.md"
                raise UsageError(
                    f"{text}: {error.message}", code=error.code, where=where, resolve=resolve
                ) from error
            except Refused as error:
                self._forget()
                raise write_refused(text, where, error) from error

    def _send(self, wanted: Sequence[OwnRecord]) -> None:
        if self._producer is None:
            self._cluster.keep_to(self._meant.cluster_id())
            producer = IdempotentProducer(self._cluster)
            producer.init()
            self._producer = producer
        for batch in own_batches(self._partition, wanted, now_ms()):
            self._producer.send([batch])
        self._producer.drain()

    def _forget(self) -> None:
        """Begin anew the next time: with another producer id, and another login."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        self._cluster.close()

    def close(self) -> None:
        """Let go of the cluster; every ``write`` has waited already."""
        self._forget()


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
