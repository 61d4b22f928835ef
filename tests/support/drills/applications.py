"""Applications on two clusters: they number what they write and note what they read, and move when told to.

Nothing here shares code with the replicator. Where they are to be is in a file, as behind a switched name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

_LOOK_S = 0.05
# Of writers: as fast as they could they took both cores from everybody else.
_PACE_S = 0.02
_TIMEOUT_S = 30.0
_RETRIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._PURGE_QUEUE,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


class Place:
    """A name that leads to one of several clusters; a file says to which."""

    # Waits, in a shell, until no writer goes on where it was: a program that moves clients returns then.
    WAIT = 'while grep -qvx {name} "$(dirname "$0")"/place.*; do sleep 0.02; done'

    def __init__(self, path: Path, clients: Mapping[str, Mapping[str, str]], first: str) -> None:
        self.path = path
        self._clients = clients
        path.write_text(first)

    @property
    def name(self) -> str:
        """Where it leads now."""
        # Who writes it anew empties it first.
        while not (name := self.path.read_text().strip()):
            time.sleep(_LOOK_S)
        return name

    def followed(self, who: int, where: str) -> None:
        """Say that a writer has left everywhere else: nothing that it has begun there is under way."""
        written = self.path.with_name(f"followed-{who}")
        written.write_text(f"{where}\n")
        written.replace(self.path.with_name(f"{self.path.name}.{who}"))

    @property
    def client(self) -> dict[str, str]:
        """How one connects there."""
        return dict(self._clients[self.name])


class Application(threading.Thread):
    """A thread that goes on until it is told to end; what failed in it is raised by ``end``."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        """Work; keep what failed."""
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            self.problem = error

    def work(self) -> None:
        """Do it."""
        raise NotImplementedError

    def end(self) -> None:
        """Tell it to end, and wait."""
        self.over.set()
        self.join(_TIMEOUT_S)
        if self.is_alive():
            raise TimeoutError(f"{type(self).__name__} does not end")
        if self.problem is not None:
            raise self.problem


class Writer(Application):
    """Writes numbers to one partition, each once it knows that the one before is there.

    Args:
        transactional: a name for transactions, each of one number; empty for an idempotent producer.
    """

    def __init__(self, place: Place, topic: str, partition: int, transactional: str = "") -> None:
        super().__init__()
        self._place, self._topic, self._partition = place, topic, partition
        self._transactional = transactional
        self.acknowledged = 0
        self.gaps_s: list[float] = []

    def work(self) -> None:
        """Write on, wherever the name leads."""
        last_s = time.monotonic()
        while not self.over.is_set():
            where = self._place.name
            self._place.followed(self._partition, where)
            producer = self._producer()
            while not self.over.is_set() and self._place.name == where:
                if self._written(producer):
                    now_s = time.monotonic()
                    self.gaps_s.append(now_s - last_s)
                    last_s = now_s
                    self.acknowledged += 1
                    self.over.wait(_PACE_S)
                else:
                    # It may not write at the moment: another producer tries, there or elsewhere.
                    time.sleep(_LOOK_S)
                    break

    def _producer(self) -> Producer:
        settings = {**self._place.client, "enable.idempotence": True, "linger.ms": 0}
        if not self._transactional:
            return Producer(settings)
        producer = Producer({**settings, "transactional.id": self._transactional})
        producer.init_transactions(_TIMEOUT_S)
        return producer

    def _written(self, producer: Producer) -> bool:
        """Write the next number; False where that is not allowed now, and it was not written."""
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        value = str(self.acknowledged).encode()
        try:
            if self._transactional:
                producer.begin_transaction()
            producer.produce(
                self._topic, key=b"k", value=value, partition=self._partition, on_delivery=delivered
            )
            producer.flush(_TIMEOUT_S)
            if self._transactional and not errors:
                producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            errors.append(error.args[0])
        for each in errors:
            if each.code() not in _RETRIED:
                raise KafkaException(each)
        return not errors


class Reader(Application):
    """A member of a group that commits what it has read; moves with the name, and goes on where it was."""

    def __init__(self, place: Place, group: str, topic: str) -> None:
        super().__init__()
        self._place, self._group, self._topic = place, group, topic
        self.read: dict[int, list[int]] = {}

    def work(self) -> None:
        """Read on, wherever the name leads."""
        while not self.over.is_set():
            where = self._place.name
            consumer = Consumer(
                {
                    **self._place.client,
                    "group.id": self._group,
                    "auto.offset.reset": "earliest" if where == "source" else "error",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "session.timeout.ms": 6000,
                }
            )
            consumer.subscribe([self._topic])
            try:
                while not self.over.is_set() and self._place.name == where:
                    self._poll(consumer)
            finally:
                consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        message = consumer.poll(0.1)
        if message is None:
            return
        if message.error() is not None:
            raise KafkaException(message.error())
        self.read.setdefault(message.partition() or 0, []).append(int(message.value() or b"-1"))
        consumer.commit(message, asynchronous=False)


@contextmanager
def at_work(applications: Sequence[Application]) -> Iterator[None]:
    """Let them work meanwhile; they end, and what failed in them is raised."""
    for each in applications:
        each.start()
    try:
        yield
    finally:
        for each in applications:
            each.over.set()
        for each in applications:
            each.end()
