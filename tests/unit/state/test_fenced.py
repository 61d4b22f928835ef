"""What is committed under a transactional id is told so once readers see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import pytest

from onceover.backoff import Deadline
from onceover.errors import Retriable
from onceover.kafka.each import Each
from onceover.kafka.ports import Cluster, TxnProducer
from onceover.model import TopicPartition
from onceover.state.fenced import await_markers

TP = TopicPartition("t", 0)


class Target:
    """A cluster in whose log a transaction is open for so many looks."""

    alias = "west"

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def retry(self, attempt: object) -> object:
        return attempt()  # type: ignore[operator]

    def each_open(
        self, producer_ids: Mapping[TopicPartition, Collection[int]]
    ) -> Each[TopicPartition, tuple[int, int]]:
        assert producer_ids == {TP: {7}}
        self.looks -= 1
        return Each({TP: (5, 7) if self.looks >= 0 else (-1, -1)})


class Producer:
    producer_id = 7


def waited(target: Target, seconds: float) -> None:
    await_markers(cast("Cluster", target), cast("TxnProducer", Producer()), [TP], Deadline(seconds))


def test_a_commit_is_waited_for_until_readers_see_it() -> None:
    """Markers come behind EndTxn."""
    target = Target(3)
    waited(target, 10.0)
    assert target.looks == -1


def test_one_whose_markers_never_come_is_no_commit() -> None:
    """A broker that was killed in between may have left it open, and say that it is over (KAFKA-20734)."""
    with pytest.raises(Retriable, match=r"cannot be read in t:0"):
        waited(Target(10_000), 0.05)
