"""A client's fatal error is heard in its own words, and by whoever waits, not by whoever closes."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceover.kafka.deliveries import await_delivered, let_go

FENCED = KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))


class Scripted:
    """A producer with so many records left, whose calls end as they are told."""

    def __init__(self, left: int, *ends: KafkaException | None) -> None:
        self.left, self.polled, self.purged = left, 0, False
        self._ends = list(ends)

    def __len__(self) -> int:
        return self.left

    def purge(self) -> None:
        self.purged = True

    def poll(self, _timeout_s: float) -> int:
        self.polled += 1
        end = self._ends.pop(0) if self._ends else None
        if end is not None:
            raise end
        self.left -= 1
        return 1


def test_what_is_delivered_is_waited_for() -> None:
    producer = Scripted(3)
    assert await_delivered(cast(Any, producer), 30.0) == 0
    assert producer.polled == 3


def test_what_is_late_is_counted() -> None:
    assert await_delivered(cast(Any, Scripted(2)), 0.0) == 2


def test_after_a_fatal_error_no_callback_is_called() -> None:
    """It would be called with that error on its way up."""
    producer = Scripted(3, None, FENCED)
    with pytest.raises(KafkaException) as raised:
        await_delivered(cast(Any, producer), 30.0)
    assert (raised.value, producer.polled) == (FENCED, 2)


def test_letting_go_raises_nothing() -> None:
    """It is done while another error is on its way, which it would hide."""
    producer = Scripted(2, FENCED, None, FENCED)
    let_go(cast(Any, producer))
    assert (producer.purged, producer.left) == (True, 0)
