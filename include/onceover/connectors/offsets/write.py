"""Writing raw offsets: in one transaction of a producer that fences its predecessor, or without one.

Invariant: a call returns only when every record is in the log of the partition that it was given for, and,
with a transaction, when readers of committed records see it. Anything else raises, and writing the same again
is right: readers keep the last value of a key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Final, NamedTuple

from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.rights import needing
from onceover.connectors.steps import StepName, reached
from onceover.errors import Fenced, MustReset, Retriable
from onceover.kafka.portions import OwnRecord
from onceover.kafka.ports import Cluster, Outgoing, Refused
from onceover.kafka.produce.atleastonce import IdempotentProducer
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.kafka.produce.refusals import write_refused
from onceover.kafka.produce.requests import ID_TAKEN
from onceover.kafka.produce.rounds import own_batches
from onceover.model import TopicPartition
from onceover.state.fenced import await_markers, take_id

log = logging.getLogger(__name__)

# Also for an election, or a broker that is started again.
_TIMEOUT_S: Final = 60.0
# What a run leaves open that is killed between a record and its commit holds up the plan of the next one,
# which waits for 45 s; brokers take up to 10 s more to abort it.
_TRANSACTION_TIMEOUT_MS: Final = 20_000
# Markers take milliseconds; a broker that has been started again, seconds.
_MARKERS_S: Final = 10.0


class Entry(NamedTuple):
    """A record for one partition; without a value it is a tombstone."""

    partition: int
    key: bytes
    value: bytes | None


def write_in_transaction(
    cluster: Cluster,
    topic: str,
    transactional_id: str,
    entries: Collection[Entry],
    look: Callable[[], None],
) -> None:
    """Write entries in one transaction, after fencing every older producer of this id.

    Args:
        look: sees, by raising, whether they may still be written. Called when this producer has the id:
            whoever comes later fences it, however long this process stands still after its look.

    Raises:
        Fenced: another run of this tool has begun.
        Retriable: a broker is away; nothing is visible, or, when the answer to the commit was lost, all is.
        UsageError: a right is missing.
        NeedsOperator: the broker refuses a record.
    """

    def attempt() -> None:
        partitions = {TopicPartition(topic, entry.partition) for entry in entries}
        with closing(_Transactions(cluster, topic, transactional_id, partitions)) as transactions:
            look()
            transactions.write(_batches(topic, entries), StepName.COPY_COMMIT)

    # Looked at first: to take the id from a newer run would leave nobody who goes on.
    _until_written(attempt, look)


def write_plainly(cluster: Cluster, topic: str, entries: Collection[Entry]) -> None:
    """Write entries without a transaction: their readers take aborted records for real ones.

    Raises:
        Retriable: a broker is away; some may have been written.
        UsageError: a right is missing.
        NeedsOperator: the broker refuses a record.
    """

    def attempt() -> None:
        with (
            closing(IdempotentProducer(cluster)) as producer,
            _translated(cluster, topic),
            needing(cluster.config, "WRITE", f"topic {topic}"),
        ):
            producer.init()
            for batch in _batches(topic, entries):
                producer.send([batch])
            producer.drain()

    _until_written(attempt, lambda: None)


class HeldProducer:
    """A producer that stays: the next one of its id fences it, and it learns of that when it writes.

    Args:
        cluster: stays the caller's.
        partition: that it writes to.

    Raises:
        As ``write_in_transaction``.
    """

    def __init__(self, cluster: Cluster, partition: TopicPartition, transactional_id: str) -> None:
        self._partition = partition
        self._transactions = _Transactions(cluster, partition.topic, transactional_id, {partition})

    def close(self) -> None:
        """Let go of it."""
        self._transactions.close()

    def write(self, records: Iterable[OwnRecord]) -> None:
        """Write keys and values in one transaction.

        Raises:
            As ``write_in_transaction``; after any of them this producer is of no use any more.
        """
        self._transactions.write(own_batches(self._partition, records, now_ms()), StepName.RECORD)


class _Transactions:
    """A transactional id that is ours, with everything decided that its last holder has left open.

    Raises:
        As ``write_in_transaction``.
    """

    def __init__(
        self, cluster: Cluster, topic: str, transactional_id: str, written: Collection[TopicPartition]
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._written = written
        self._id = f"transactional id {transactional_id}"
        self._producer = TransactionalProducer(cluster, transactional_id, timeout_ms=_TRANSACTION_TIMEOUT_MS)
        try:
            with _translated(cluster, topic), needing(cluster.config, "WRITE", self._id):
                take_id(cluster, self._producer, written, Deadline(_TIMEOUT_S))
        except BaseException:
            self.close()
            raise

    def write(self, batches: Iterable[Outgoing], step: StepName) -> None:
        """Write batches in one transaction; ``step`` is announced before its commit."""
        with _translated(self._cluster, self._topic):
            with needing(self._cluster.config, "WRITE", f"topic {self._topic}"):
                for batch in batches:
                    self._producer.send([batch])
                self._producer.drain()
            reached(step)
            with needing(self._cluster.config, "WRITE", self._id):
                self._producer.commit()
                await_markers(self._cluster, self._producer, self._written, Deadline(_MARKERS_S))

    def close(self) -> None:
        """Drop the connections; what is open is aborted by whoever comes next."""
        self._producer.close()


def _batches(topic: str, entries: Iterable[Entry]) -> Iterator[Outgoing]:
    by_partition: dict[int, list[OwnRecord]] = {}
    for entry in entries:
        by_partition.setdefault(entry.partition, []).append((entry.key, entry.value))
    at_ms = now_ms()
    for partition, records in by_partition.items():
        yield from own_batches(TopicPartition(topic, partition), records, at_ms)


def _until_written(attempt: Callable[[], None], before_another: Callable[[], None]) -> None:
    backoff, deadline = Backoff(), Deadline(_TIMEOUT_S)
    while True:
        try:
            attempt()
            return
        except Retriable as error:
            log.info("writing offsets again: %s", error)
            backoff.pause(deadline, error)
        before_another()


@contextmanager
def _translated(cluster: Cluster, topic: str) -> Iterator[None]:
    text = f"{cluster.alias} did not take offsets for {topic}"
    try:
        yield
    except (MustReset, Retriable) as error:
        if error.code == ID_TAKEN:
            raise Fenced(
                f"{text}: {error.message}",
                code=ConnectorCode.FENCED,
                where=topic,
                seen="another producer of this run's transactional id",
                resolve="see which other run of this tool moves the same connector",
            ) from error
        resolve = f"check that {cluster.alias} is up, then run again"
        raise Retriable(f"{text}: {error.message}", where=topic, resolve=resolve) from error
    except Refused as error:
        raise write_refused(text, topic, error) from error
