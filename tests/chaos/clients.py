"""Ordinary clients of the source that write down what they send, and what they were told of it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.checker import Fate, Place
from tests.chaos.history import History
from tests.support.session.background import Background

# Short against a round, so that what hangs is given up and known to be.
_PATIENT: Final = {
    "socket.timeout.ms": 3000,
    "message.timeout.ms": 3000,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}
# What a lost connection leaves open hides what is behind it for so long.
_TRANSACTION_MS: Final = 3000
_CALL_S: Final = 10.0
_WRITE_S: Final = 60.0
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_VALUES: Final = (None, b"", b"v" * 40, bytes(range(256)))
_HEADERS: Final[Sequence[list[tuple[str, bytes | None]]]] = ([], [("h", b"1")], [("h", None), ("h", b"")])
_EPOCH_MS: Final = 1_704_067_200_000
_ABORT_SHARE: Final = 0.3
_ABANDON_SHARE: Final = 0.1


class Client(Background):
    """Sends records of its own until it is stopped.

    Args:
        name: goes into the key of each record, with a number: no two are equal.
        partitions: of each topic, as they are when it looks.
        pause_s: between two sends.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        partitions: Mapping[str, int],
        seed: int,
        pause_s: float = 0.03,
    ) -> None:
        super().__init__(name)
        self.rng = random.Random(seed)
        self._history, self._partitions, self._between_s = history, partitions, pause_s
        self._address = bootstrap
        self._serial = 0
        self._failed: set[str] = set()

    def producer(self, **settings: Any) -> Producer:
        return Producer(
            {
                **_PATIENT,
                "bootstrap.servers": self._address,
                "compression.type": self.rng.choice(_CODECS),
                "linger.ms": self.rng.choice((0, 5, 20)),
                "enable.idempotence": True,
                **settings,
            }
        )

    def paused(self) -> bool:
        """Wait a moment; False when it is to end."""
        return not self.ending.wait(self._between_s)

    def send(self, producer: Producer, most: int, told: list[str] | None = None) -> list[str]:
        """Give some records of one partition to the producer; return their names.

        ``told`` gets the names of those that a delivery report calls acknowledged.
        """
        topic = self.rng.choice(sorted(self._partitions))
        place = Place(topic, self.rng.randrange(self._partitions[topic]))
        names = [f"{self.name}-{self._serial + number}" for number in range(self.rng.randint(1, most))]
        self._serial += len(names)
        self._history.sending(place, names)

        def heard(error: KafkaError | None, message: Message) -> None:
            name = (message.key() or b"").decode()
            if error is not None:
                self._history.note("failed", record=name, error=str(error))
                self._failed.add(name)
            elif told is not None:
                told.append(name)

        for name in names:
            producer.produce(
                place.topic,
                self.rng.choice(_VALUES),
                name.encode(),
                place.partition,
                on_delivery=heard,
                timestamp=_EPOCH_MS + self._serial,
                headers=self.rng.choice(_HEADERS),
            )
        return names


class Steady(Client):
    """Idempotent, without transactions: what is acknowledged is there, what is not may be."""

    def step(self) -> None:
        """Send with one producer until something is wrong with it, or it is to end."""
        producer, told = self.producer(), list[str]()
        for _ in range(self.rng.randint(20, 100)):
            if not self.paused():
                break
            try:
                self.send(producer, 20, told)
            except (KafkaException, BufferError):
                break
            producer.poll(0)
            self._told(told)
        producer.flush(_CALL_S)
        self._told(told)

    def write(self, batches: int) -> None:
        """Write so many batches in the caller's thread; return when all of them are acknowledged.

        Raises:
            KafkaException: one was not.
        """
        own = {"message.timeout.ms": int(_WRITE_S * 1000)}
        producer, told, names = self.producer(**own), list[str](), list[str]()
        for _ in range(batches):
            names += self.send(producer, 20, told)
        producer.flush(_WRITE_S)
        self._told(list(told))
        if len(told) != len(names):
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))

    def _told(self, told: list[str]) -> None:
        if told:
            self._history.became(Fate.COMMITTED, told)
            told.clear()


class Transactional(Client):
    """Commits, aborts, and sometimes leaves a transaction to its time-out."""

    def step(self) -> None:
        """Send with one producer until something is wrong with it, or it is to end."""
        producer = self.producer(
            **{
                "transactional.id": f"{self.name}-{self.rng.randrange(3)}",
                "transaction.timeout.ms": _TRANSACTION_MS,
            }
        )
        try:
            producer.init_transactions(_CALL_S)
            while self.paused():
                if not self._transaction(producer):
                    return
        except KafkaException:
            # Whatever it was: nothing is known of the records that were in hand. Begin anew.
            self.ending.wait(0.2)

    def _transaction(self, producer: Producer) -> bool:
        """Do one transaction; False to go on with another producer."""
        producer.begin_transaction()
        names = []
        for _ in range(self.rng.randint(1, 5)):
            names += self.send(producer, 10)
            producer.poll(0)
            if not self.paused():
                break
        drawn = self.rng.random()
        if drawn < _ABANDON_SHARE:
            producer.flush(_CALL_S)
            return False
        if drawn < _ABANDON_SHARE + _ABORT_SHARE:
            producer.abort_transaction(_CALL_S)
            self._history.became(Fate.ABORTED, names)
        else:
            producer.commit_transaction(_CALL_S)
            # What was given up before it was sent is no part of what was committed.
            self._history.became(Fate.COMMITTED, [name for name in names if name not in self._failed])
        return True
