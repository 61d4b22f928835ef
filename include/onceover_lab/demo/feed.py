"""Feeds the flights into the source cluster at an even pace, part of them in transactions that may abort.

Guarantee towards the comparison: when ``Feeder.result`` returns, ``Tally.produced`` records of each topic are
committed, each once, and nothing else is visible to a read_committed reader of these topics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.errors import Retriable, UsageError
from onceover_lab.demo.flights import TOPICS, DemoTopic, Flight

_TIMEOUT_S: Final = 30.0
# Records of one transaction. The second attempt and then every fourth one fails on purpose.
TRANSACTION_RECORDS: Final = 500
_ABORT_EVERY: Final = 4
_ABORT_FIRST: Final = 1
# Fed before the clock starts: what the flow copies first shows that its Spark query is up.
FIRST_RECORDS: Final = 1_000
# Shorter pauses would only burn CPU that the copy needs.
_PACE_S: Final = 0.05
_ABORTED_HEADER: Final = ("demo", b"this attempt is aborted")


@dataclass(slots=True)
class Tally:
    """What was fed, by topic name. Written by the feeding thread only."""

    produced: dict[str, int] = field(default_factory=lambda: {topic.name: 0 for topic in TOPICS})
    aborted: dict[str, int] = field(default_factory=lambda: {topic.name: 0 for topic in TOPICS})
    aborted_transactions: int = 0

    @property
    def total(self) -> int:
        return sum(self.produced.values())


def create_topics(client: Mapping[str, str], topics: Iterable[DemoTopic] = TOPICS) -> None:
    """Create the demo's topics on the source.

    Raises:
        UsageError: a topic exists already.
        Retriable: the cluster refused or did not answer.
    """
    # Retention goes by record timestamps: the flights of 2013 would be deleted within minutes.
    config = {"retention.ms": "-1"}
    new = [NewTopic(topic.name, topic.partitions, 1, config=config) for topic in topics]
    if not new:
        # The library takes no empty list; a feed that goes on has all of its topics.
        return
    # Kept until its answers are here: the library forgets what a client was asked that nobody holds.
    admin = AdminClient(dict(client))
    futures = admin.create_topics(new, operation_timeout=_TIMEOUT_S)
    try:
        for future in futures.values():
            future.result(_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            raise UsageError(
                "the demo needs a source without its topics",
                where="cluster east",
                expected="no topic of the demo",
                seen="topics of an earlier demo",
                resolve="make down && make clean, then again",
            ) from error
        raise Retriable(
            "the demo's topics could not be created", where="cluster east", seen=str(error)
        ) from error


def spread_evenly(done: int, expected: int, elapsed_s: float, seconds: float) -> float:
    """Return how long to pause so that ``expected`` records take ``seconds`` in all; 0 when late."""
    due_s = seconds * done / max(expected, 1)
    return max(0.0, due_s - elapsed_s)


def is_aborted(attempt: int) -> bool:
    """Tell whether the ``attempt``-th transaction (from 0) is the kind that fails first."""
    return attempt % _ABORT_EVERY == _ABORT_FIRST


class Feeder(threading.Thread):
    """Feeds in the background: the first records at once, the rest evenly after ``release``.

    ``stop`` ends it early; ``result`` waits and raises what went wrong.
    """

    def __init__(
        self,
        client: Mapping[str, str],
        flights: Iterable[Flight],
        *,
        expected: int,
        seconds: float,
        first: int = FIRST_RECORDS,
    ) -> None:
        """Prepare to feed ``first`` flights at once, the rest of ``expected`` over ``seconds`` seconds."""
        super().__init__(name="feed", daemon=True)
        self.tally = Tally()
        self._flights = flights
        self._expected = expected
        self._seconds = seconds
        self._first = first
        self._first_fed = threading.Event()
        self._released = threading.Event()
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._pending: list[Flight] = []
        self._attempt = 0
        self._client = dict(client)
        self._producers = {topic.name: self._producer(topic) for topic in TOPICS}

    @property
    def fraction(self) -> float:
        """How much of the data has been fed, 0 to 1."""
        return self.taken / self._expected

    @property
    def taken(self) -> int:
        """How many flights have been fed, or wait in the transaction that is being gathered."""
        return self.tally.total + len(self._pending)

    @property
    def first_fed(self) -> bool:
        """Whether a reader of the source sees all of the first flights."""
        return self._first_fed.is_set()

    @property
    def failed(self) -> bool:
        """Whether feeding ended with an error, which ``result`` raises."""
        return self._failure is not None

    def release(self) -> None:
        """Start the clock: everything after the first records is fed from now on."""
        self._released.set()

    def stop(self) -> None:
        """Ask the thread to end, and wait for it."""
        self._stopping.set()
        self._released.set()
        if self.is_alive():
            self.join(_TIMEOUT_S)

    def result(self) -> Tally:
        """Wait until everything is fed.

        Raises:
            Retriable: the source refused a record or did not answer.
        """
        self.join()
        if self._failure is not None:
            raise Retriable(
                "feeding the source failed", where="cluster east", seen=str(self._failure)
            ) from self._failure
        return self.tally

    def run(self) -> None:
        """Feed; errors are kept for ``result``, because nobody sees what a thread raises."""
        try:
            self._feed()
        except (KafkaException, Retriable) as error:
            self._failure = error
        finally:
            # Idle producers would go on looking for their cluster.
            self._producers.clear()

    def _feed(self) -> None:
        for topic in TOPICS:
            if topic.transactional:
                self._producers[topic.name].init_transactions(_TIMEOUT_S)
        begin_s = time.monotonic()
        for done, flight in enumerate(self._flights, start=1):
            if self._stopping.is_set():
                break
            self._take(flight)
            if done == self._first:
                self._commit_pending()
                self._flush()
                self._first_fed.set()
                self._released.wait()
                begin_s = time.monotonic()
            paced, in_all = done - self._first, self._expected - self._first
            pause_s = spread_evenly(paced, in_all, time.monotonic() - begin_s, self._seconds)
            if pause_s > _PACE_S:
                self._serve_deliveries()
                self._stopping.wait(pause_s)
        self._commit_pending()
        self._flush()

    def _flush(self) -> None:
        for producer in self._producers.values():
            if producer.flush(_TIMEOUT_S):
                raise Retriable("records are still unsent", where="cluster east")

    def _take(self, flight: Flight) -> None:
        if not flight.topic.transactional:
            self._produce(flight)
            self.tally.produced[flight.topic.name] += 1
            return
        self._pending.append(flight)
        if len(self._pending) >= TRANSACTION_RECORDS:
            self._commit_pending()

    def _commit_pending(self) -> None:
        """Write the pending flights in one transaction; some fail first, are aborted and written again."""
        if not self._pending:
            return
        name = self._pending[0].topic.name
        producer = self._producers[name]
        if is_aborted(self._attempt):
            producer.begin_transaction()
            for flight in self._pending:
                self._produce(flight, (*flight.headers, _ABORTED_HEADER))
            # Flushed, or the client would throw the records away without ever sending them.
            producer.flush(_TIMEOUT_S)
            producer.abort_transaction(_TIMEOUT_S)
            self.tally.aborted[name] += len(self._pending)
            self.tally.aborted_transactions += 1
        producer.begin_transaction()
        for flight in self._pending:
            self._produce(flight)
        producer.commit_transaction(_TIMEOUT_S)
        self.tally.produced[name] += len(self._pending)
        self._pending.clear()
        self._attempt += 1

    def _produce(self, flight: Flight, headers: tuple[tuple[str, bytes | None], ...] | None = None) -> None:
        producer = self._producers[flight.topic.name]
        record = {
            "key": flight.key,
            "value": flight.value,
            "timestamp": flight.timestamp_ms,
            "headers": list(flight.headers if headers is None else headers),
            "on_delivery": self._delivered,
        }
        try:
            producer.produce(flight.topic.name, **record)
        except BufferError:
            # The queue is full: let deliveries happen, then once more.
            producer.flush(_TIMEOUT_S)
            producer.produce(flight.topic.name, **record)

    def _serve_deliveries(self) -> None:
        """Learn what was delivered; a refused record ends the feed."""
        for producer in self._producers.values():
            producer.poll(0)
        if self._failure is not None:
            raise Retriable("a record was refused", seen=str(self._failure))

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = KafkaException(error)

    def _producer(self, topic: DemoTopic) -> Producer:
        settings: dict[str, Any] = {
            **self._client,
            "enable.idempotence": True,
            "compression.type": topic.codec,
            # Batches worth compressing, without holding records back noticeably.
            "linger.ms": 50,
            # What goes wrong is raised; librdkafka would also announce every wait for a young cluster.
            "log_level": 2,
        }
        if topic.transactional:
            settings["transactional.id"] = f"demo-{topic.name}"
        return Producer(settings)
