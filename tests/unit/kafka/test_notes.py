"""Small records: what a refused one is to its caller. A scripted producer instead of librdkafka."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceover.config.clients import ClientConfig
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka import notes
from onceover.kafka.cluster import Cluster
from onceover.kafka.notes import RecordWriter
from onceover.model import TopicPartition

DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
LATE = KafkaError(KafkaError._MSG_TIMED_OUT)
WEST = Cluster(ClientConfig("west", {"bootstrap.servers": "127.0.0.1:1"}), expected_id="id of west")


class ScriptedProducer:
    """Takes records; fails at once, at delivery, or never answers."""

    def __init__(
        self, at_once: KafkaError | None = None, delivered: KafkaError | None = None, left: int = 0
    ) -> None:
        self._at_once, self._delivered, self._left = at_once, delivered, left
        self._callbacks: list[Callable[[KafkaError | None, object], None]] = []

    def produce(
        self, *_: object, on_delivery: Callable[[KafkaError | None, object], None], **__: Any
    ) -> None:
        if self._at_once is not None:
            raise KafkaException(self._at_once)
        self._callbacks.append(on_delivery)

    def list_topics(self, _topic: str, _timeout_s: float) -> Any:
        return SimpleNamespace(cluster_id="id of west")

    def flush(self, _timeout_s: float) -> int:
        for callback in self._callbacks[self._left :]:
            callback(self._delivered, None)
        return self._left


def write(monkeypatch: pytest.MonkeyPatch, producer: ScriptedProducer) -> None:
    monkeypatch.setattr(notes, "Producer", lambda _: producer)
    RecordWriter(WEST, TopicPartition("state", 1)).write([(b"a", b"1"), (b"b", None)])


@pytest.mark.parametrize(
    ("producer", "expected", "seen"),
    [
        (ScriptedProducer(delivered=DENIED), UsageError, "Topic authorization failed"),
        (ScriptedProducer(at_once=DENIED), UsageError, "Topic authorization failed"),
        (ScriptedProducer(delivered=LATE), Retriable, "Message timed out"),
        (ScriptedProducer(at_once=LATE), Retriable, "Message timed out"),
        (ScriptedProducer(left=1), Retriable, "no answer in time"),
    ],
)
def test_a_record_that_was_not_taken_says_who_has_to_do_something(
    monkeypatch: pytest.MonkeyPatch, producer: ScriptedProducer, expected: type[OnceoverError], seen: str
) -> None:
    """A missing right does not come by waiting; everything else may."""
    with pytest.raises(expected, match=f"west did not take 'a', 'b': .*{seen}") as failed:
        write(monkeypatch, producer)
    assert failed.value.where == "state:1"


def test_acknowledged_records_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    write(monkeypatch, ScriptedProducer())


def test_much_is_written_in_portions_that_have_a_time_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """43 MB in ten seconds, as all that was remembered of 5,000 groups, is no line's guarantee."""
    flushed: list[int] = []

    class Counting(ScriptedProducer):
        def flush(self, timeout_s: float) -> int:
            flushed.append(len(self._callbacks))
            left = super().flush(timeout_s)
            self._callbacks.clear()
            return left

    monkeypatch.setattr(notes, "Producer", lambda _: Counting())
    value, number = b"x" * 500_000, 43
    records = [(b"%d" % n, value) for n in range(number)] + [(b"a", b"y" * 3_000_000), (b"b", None)]
    RecordWriter(WEST, TopicPartition("state", 1)).write(records)
    assert sum(flushed) == number + 2
    assert max(flushed) == 2
