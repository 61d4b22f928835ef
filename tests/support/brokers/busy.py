"""An ordinary producer under load for clusters of several brokers, which come and go meanwhile."""

from __future__ import annotations

import random
from collections.abc import Mapping

from confluent_kafka import KafkaException, Producer

from tests.support.session.background import Background

_TIMEOUT_S = 90.0
_ABORT_SHARE = 0.3


class BusyProducer(Background):
    """Transactions, some of them aborted, over all partitions of a topic, in a background thread.

    A transaction that a broker's loss spoils is aborted and given up; a producer that is spoilt with it (the
    coordinator's successor knows nothing of the transaction: librdkafka calls that fatal) is followed by
    another one. ``committed`` counts records whose commit was confirmed.
    """

    def __init__(
        self, client: Mapping[str, str], topic: str, partitions: int, *, seed: int, pause_s: float = 0.02
    ) -> None:
        super().__init__(f"busy-{seed}", pause_s)
        self.committed = 0
        self._topic = topic
        self._partitions = partitions
        self._rng = random.Random(seed)
        self._serial = 0
        self._config = {
            **client,
            "transactional.id": f"busy-{topic}-{seed}",
            "compression.type": "lz4",
            "linger.ms": 0,
            "transaction.timeout.ms": 20_000,
            "log_level": 3,
        }
        self._producer = Producer(self._config)

    def start(self) -> None:
        """Begin, with an id that is the producer's own."""
        self._producer.init_transactions(_TIMEOUT_S)
        super().start()

    def step(self) -> None:
        """Do one transaction."""
        self._producer.begin_transaction()
        count = self._rng.randint(1, 30)
        try:
            for _ in range(count):
                self._serial += 1
                number = self._rng.randrange(self._partitions)
                self._producer.produce(self._topic, b"%d" % self._serial, b"key", partition=number)
            if self._rng.random() < _ABORT_SHARE:
                self._producer.abort_transaction(_TIMEOUT_S)
                return
            self._commit()
            self.committed += count
        except KafkaException as error:
            self._give_up(error)

    def _give_up(self, error: KafkaException) -> None:
        try:
            if not error.args[0].txn_requires_abort():
                raise error
            self._producer.abort_transaction(_TIMEOUT_S)
        except KafkaException as second:
            if not second.args[0].fatal():
                raise
            self._producer = Producer(self._config)
            self._producer.init_transactions(_TIMEOUT_S)

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return
