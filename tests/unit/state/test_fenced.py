"""What is committed under a transactional id is told so once readers see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from uuid import UUID

import pytest

from onceover.backoff import Deadline
from onceover.errors import MustReset, NeedsOperator, OnceoverError, Retriable
from onceover.kafka.ports import Outgoing, Refused, TxnProducer
from onceover.model import TopicPartition
from onceover.state.fenced import await_markers, send
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


class Refusing:
    """A producer whose broker refuses everything, with one code."""

    def __init__(self, code: int) -> None:
        self._code = code

    def send(self, batches: Sequence[Outgoing]) -> None:
        raise Refused(batches[0], self._code, "not this")


@pytest.mark.parametrize(
    ("code", "kind", "resolve"),
    [
        (32, NeedsOperator, "set the clock of"),
        (10, NeedsOperator, "remove what was set on t since, such as max.message.bytes"),
        (18, NeedsOperator, "remove what was set on t since, such as segment.bytes"),
        (87, NeedsOperator, "remove what was set on t since"),
        (2, MustReset, ""),
    ],
)
def test_a_record_that_is_refused_says_who_has_to_do_something(
    code: int, kind: type[OnceoverError], resolve: str
) -> None:
    """Damaged on its way (2) it may be taken the next time."""
    with pytest.raises(kind, match=f"record of the flow's own.*error {code}: not this") as failed:
        send(cast("TxnProducer", Refusing(code)), TP, {"k": 1})
    assert (failed.value.resolve or "").startswith(resolve)
