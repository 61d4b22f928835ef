"""What is committed under a transactional id is told so once readers see it."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import pytest

from onceover.backoff import Deadline
from onceover.errors import Retriable
from onceover.kafka.ports import TxnProducer
from onceover.model import TopicPartition
from onceover.state.fenced import await_markers
from tests.support.fakes.fakecluster import FakeCluster

TP = TopicPartition("t", 0)


def open_for(looks: int) -> FakeCluster:
    """Return a cluster in whose log a transaction is open for so many looks."""
    made = FakeCluster()
    log = made.add_topic(TP.topic, UUID(int=1), (5,)).logs[0]
    log.pending[7] = 5

    def heard(*_: str) -> None:
        if made.log.count("DescribeProducers") > looks:
            log.pending.clear()

    made.heard = heard
    return made


class Producer:
    producer_id = 7


def waited(target: FakeCluster, seconds: float) -> None:
    await_markers(target, cast("TxnProducer", Producer()), [TP], Deadline(seconds))


def test_a_commit_is_waited_for_until_readers_see_it() -> None:
    """Markers come behind EndTxn."""
    target = open_for(3)
    waited(target, 10.0)
    assert target.log.count("DescribeProducers") == 4


def test_one_whose_markers_never_come_is_no_commit() -> None:
    """A broker that was killed in between may have left it open, and say that it is over (KAFKA-20734)."""
    with pytest.raises(Retriable, match=r"cannot be read in t:0"):
        waited(open_for(10_000), 0.05)
