"""Writing raw offsets: in one transaction of a producer that fences its predecessor, or without one.

Invariant: a call returns only when every record is in the log of the partition that it was given for, and,
with a transaction, when that is committed. Anything else raises, and writing the same again is right:
readers keep the last value of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from onceover.connectors.rights import missing
from onceover.connectors.steps import StepName, reached
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable
from onceover.kafka.cluster import ClientSettings
from onceover.kafka.deliveries import await_delivered, let_go
from onceover.kafka.librdkafka import is_temporary, library_properties

_TIMEOUT_S: Final = 60.0
# As Kafka's default. A run that was killed inside its transaction holds readers up for so long, unless it is
# run again: the next producer of the same id aborts what is open.
_TRANSACTION_TIMEOUT_MS: Final = 60_000
# What a run leaves open that is killed between a record and its commit holds up the plan of the next one,
# which waits for 45 s; brokers take up to 10 s more to abort it.
_HELD_MS: Final = 20_000
_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_RIGHTS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}


class Entry(NamedTuple):
    """A record for one partition; without a value it is a tombstone."""

    partition: int
    key: bytes
    value: bytes | None


def write_in_transaction(
    settings: ClientSettings,
    topic: str,
    transactional_id: str,
    entries: Iterable[Entry],
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
    with _producer(settings, {"transactional.id": transactional_id}) as producer:
        names = {"topic": topic, "transactional id": transactional_id}
        with _translated(settings, names):
            # Aborts what a killed run left open: readers of the topic wait for nothing of ours any more.
            producer.init_transactions(_TIMEOUT_S)
            look()
            producer.begin_transaction()
            _send(producer, settings, topic, entries)
            reached(StepName.COPY_COMMIT)
            producer.commit_transaction(_TIMEOUT_S)


def write_plainly(settings: ClientSettings, topic: str, entries: Iterable[Entry]) -> None:
    """Write entries without a transaction: their readers take aborted records for real ones.

    Raises:
        Retriable: a broker is away; some may have been written.
        UsageError: a right is missing.
        NeedsOperator: the broker refuses a record.
    """
    with (
        _producer(settings, {"enable.idempotence": True}) as producer,
        _translated(settings, {"topic": topic}),
    ):
        _send(producer, settings, topic, entries)


class HeldProducer:
    """A producer that stays: the next one of its id fences it, and it learns of that when it writes.

    Args:
        topic: that it writes to.

    Raises:
        As ``write_in_transaction``.
    """

    def __init__(self, settings: ClientSettings, topic: str, transactional_id: str) -> None:
        self._settings = settings
        self._names = {"topic": topic, "transactional id": transactional_id}
        self._open = ExitStack()
        held = _producer(
            settings,
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": _HELD_MS,
                "message.timeout.ms": _HELD_MS,
            },
        )
        self._producer = self._open.enter_context(held)
        try:
            with _translated(settings, self._names):
                self._producer.init_transactions(_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of it."""
        self._open.close()

    def write(self, entries: Iterable[Entry]) -> None:
        """Write entries in one transaction.

        Raises:
            As ``write_in_transaction``; after any of them this producer is of no use any more.
        """
        with _translated(self._settings, self._names):
            self._producer.begin_transaction()
            _send(self._producer, self._settings, self._names["topic"], entries)
            reached(StepName.RECORD)
            self._producer.commit_transaction(_TIMEOUT_S)


@contextmanager
def _producer(settings: ClientSettings, extra: Mapping[str, Any]) -> Iterator[Producer]:
    producer = Producer(
        {
            **library_properties(settings.properties),
            "acks": "all",
            "linger.ms": 0,
            "message.timeout.ms": int(_TIMEOUT_S * 1000),
            **({"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS} if "transactional.id" in extra else {}),
            **extra,
        }
    )
    try:
        yield producer
    finally:
        # Nothing is left when all went well.
        let_go(producer)


def _send(producer: Producer, settings: ClientSettings, topic: str, entries: Iterable[Entry]) -> None:
    problems: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            problems.append(error)

    for entry in entries:
        while True:
            try:
                producer.produce(
                    topic, key=entry.key, value=entry.value, partition=entry.partition, on_delivery=delivered
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = await_delivered(producer, _TIMEOUT_S)
    if problems:
        raise KafkaException(problems[0])
    if left:
        raise Retriable(
            f"{settings.alias} did not take {left} offsets for {topic} in time",
            where=topic,
            resolve=f"check that {settings.alias} is up, then run again",
        )


@contextmanager
def _translated(settings: ClientSettings, names: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _meaning(settings, error.args[0], names) from error


def _meaning(settings: ClientSettings, error: Any, names: Mapping[str, str]) -> OnceoverError:
    text = f"{settings.alias} did not take offsets for {names['topic']}: {error.str()}"
    if error.code() in _FENCED:
        return Fenced(
            text,
            code="FENCED",
            where=names["topic"],
            seen="another producer of this run's transactional id",
            resolve="see which other run of this tool moves the same connector",
        )
    kind = _RIGHTS.get(error.code())
    if kind is not None:
        operation = "IDEMPOTENT_WRITE" if kind == "cluster" else "WRITE"
        return missing(settings, operation, f"{kind} {names.get(kind, '')}".strip())
    if error.retriable() or error.txn_requires_abort() or is_temporary(error):
        return Retriable(text, resolve=f"check that {settings.alias} is up, then run again")
    return NeedsOperator(text, code="WRITE_REFUSED", where=names["topic"])
