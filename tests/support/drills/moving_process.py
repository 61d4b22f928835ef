"""Applications with librdkafka or kafka-python, as ``movers.py`` has them, in a process of their own.

Run as ``python moving_process.py LIBRARY FILE``; FILE lists the roles. Each says what happens to it, a line
each, as those of ``MovingClients.java`` do: ``said TAB name TAB milliseconds TAB what TAB words``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as Place

# A script: what it shares with the tests is beside it.
sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.support.drills.movers import LIBRDKAFKA, SUBSCRIBED, TRANSACTIONAL, Role

_POLL_S: Final = 0.1
_PACE_S: Final = 0.05
_ANSWER_S: Final = 60.0
_lock = threading.Lock()


class DiedError(Exception):
    """The application cannot go on."""


class Application(threading.Thread):
    """One of them; it goes on until the process ends."""

    def __init__(self, role: Role) -> None:
        super().__init__(name=role.name)
        self.role = role

    def say(self, what: str, partition: int = -1, offset: int = -1, words: str = "") -> None:
        """Print it."""
        shown = " ".join(words.split())
        line = ("said", self.role.name, int(time.time() * 1000), what, partition, offset, shown)
        with _lock:
            sys.stdout.write("\t".join(map(str, line)) + "\n")
            sys.stdout.flush()

    def run(self) -> None:
        """Read, or write, on and on."""
        number = self.role.first
        try:
            self.open()
            while True:
                number += self._step(number)
        except DiedError as error:
            self.say("died", words=str(error))

    def _step(self, number: int) -> int:
        """Read a little, or write the number; return how many were written."""
        try:
            if self.role.reads:
                self.read()
                return 0
            time.sleep(_PACE_S)
            value = f"{self.role.name}-{number}"
            self.say("acked", self.role.partition, self.write(value), value)
            return 1
        except DiedError:
            raise
        except Exception as error:  # noqa: BLE001 - said, which is what this is for
            self.say("failed", words=f"{type(error).__name__}: {error}")
            return 0

    def open(self) -> None:
        """Make the client."""
        raise NotImplementedError

    def read(self) -> None:
        """Read a little, and commit it."""
        raise NotImplementedError

    def send(self, value: str) -> int:
        """Write a record; return its offset once it is there."""
        raise NotImplementedError

    def write(self, value: str) -> int:
        """Write a record, in a transaction of its own if it has those; return its offset."""
        if self.role.kind != TRANSACTIONAL:
            return self.send(value)
        try:
            self.client.begin_transaction()
            offset = self.send(value)
            self.client.commit_transaction()
        except Exception as error:
            self.say("failed", words=f"{type(error).__name__}: {error}")
            self._abort()
            raise
        return offset

    def _abort(self) -> None:
        try:
            self.client.abort_transaction()
        except Exception as error:
            raise DiedError(f"{type(error).__name__}: {error}") from error

    client: Any = None


class Librdkafka(Application):
    """With confluent-kafka."""

    def open(self) -> None:
        """Make the client."""
        settings = {**self.role.shared_settings(), **self.role.settings}
        if not self.role.reads:
            self.client = Producer(settings)
            if self.role.kind == TRANSACTIONAL:
                self.client.init_transactions(_ANSWER_S)
            return
        self.client = Consumer(settings)
        if self.role.kind == SUBSCRIBED:
            self.client.subscribe([self.role.topic])
        else:
            self.client.assign([TopicPartition(self.role.topic, self.role.partition)])

    def read(self) -> None:
        """Read a record, and commit it."""
        message = self.client.poll(_POLL_S)
        if message is None:
            return
        if message.error() is not None:
            raise KafkaException(message.error())
        partition, offset = message.partition(), message.offset()
        self.say("read", partition, offset, (message.value() or b"").decode())
        self.client.commit(message, asynchronous=False)
        self.say("committed", partition, offset + 1)

    def send(self, value: str) -> int:
        """Write a record."""
        answered: list[tuple[Any, Message]] = []
        self.client.produce(
            self.role.topic,
            key=b"k",
            value=value.encode(),
            partition=self.role.partition,
            on_delivery=lambda error, message: answered.append((error, message)),
        )
        while not answered:
            self.client.poll(_POLL_S)
        error, message = answered[0]
        if error is not None:
            raise KafkaException(error)
        return int(message.offset())


class KafkaPython(Application):
    """With kafka-python."""

    def open(self) -> None:
        """Make the client."""
        if self.role.reads:
            settings = {"group_id": self.role.name, "enable_auto_commit": False, **self.role.settings}
            self.client = KafkaConsumer(isolation_level="read_committed", **settings)
            if self.role.kind == SUBSCRIBED:
                self.client.subscribe([self.role.topic])
            else:
                self.client.assign([Place(self.role.topic, self.role.partition)])
        elif self.role.kind == TRANSACTIONAL:
            self.client = KafkaProducer(transactional_id=self.role.name, **self.role.settings)
            self.client.init_transactions()
        else:
            self.client = KafkaProducer(enable_idempotence=True, **self.role.settings)

    def read(self) -> None:
        """Read what has come, and commit it."""
        for place, records in self.client.poll(timeout_ms=int(_POLL_S * 1000)).items():
            for record in records:
                self.say("read", record.partition, record.offset, (record.value or b"").decode())
            behind = records[-1].offset + 1
            self.client.commit({place: OffsetAndMetadata(behind, "", -1)}, timeout_ms=5000)
            self.say("committed", place.partition, behind)

    def send(self, value: str) -> int:
        """Write a record."""
        place = {"key": b"k", "partition": self.role.partition}
        return int(self.client.send(self.role.topic, value=value.encode(), **place).get(_ANSWER_S).offset)


def main() -> None:
    """Run all of them."""
    kind = Librdkafka if sys.argv[1] == LIBRDKAFKA else KafkaPython
    for described in json.loads(Path(sys.argv[2]).read_text()):
        kind(Role(**described)).start()


if __name__ == "__main__":
    main()
