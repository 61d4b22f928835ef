"""What a leader's answer means to a reader: the same for all of them."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, NotNow, OnceoverError, UsageError
from onceover.kafka import calls
from onceover.kafka.logs.fetcher import Position
from onceover.kafka.logs.reading import OffsetGone, TopicGone, batches_in, place
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.wire.hotpath import DivergingEpoch, FetchedPartition

TP = TopicPartition("orders", 0)
ID = UUID(int=7)
INFO = TopicInfo("orders", ID, {0: PartitionInfo(3, 5), 1: PartitionInfo(-1, 5)}, is_internal=False)


def answer(error_code: int = 0, diverging: DivergingEpoch | None = None) -> FetchedPartition:
    return FetchedPartition(ID, 0, error_code, 9, 9, 0, [], memoryview(b""), diverging)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(1, OffsetGone), (3, TopicGone), (100, TopicGone), (6, NotNow), (29, UsageError), (-1, OnceoverError)],
)
def test_each_refusal_has_one_meaning(code: int, expected: type[OnceoverError]) -> None:
    """Expired, gone, a leader that moved, a right that is missing, and what nobody knows."""
    position = Position(ID, 4, 3, 5)
    with pytest.raises(expected):
        list(batches_in("west", TP, answer(code), position))
    assert position.offset == 4


def test_a_log_that_is_another_one_has_not_the_offset_that_was_read_to() -> None:
    """Whatever stands there now (KIP-320)."""
    with pytest.raises(OffsetGone, match="offset 4 of orders:0 is not in the log of west"):
        list(batches_in("west", TP, answer(diverging=DivergingEpoch(4, 2)), Position(ID, 4, 3, 5, 5)))


def test_a_refusal_for_good_is_no_reason_to_ask_again() -> None:
    """A broker that cannot read its own log."""
    with pytest.raises(NeedsOperator):
        list(batches_in("west", TP, answer(2), Position(ID, 4, 3, 5)))


@pytest.mark.parametrize(("partition", "led"), [(0, True), (1, False), (2, False)])
def test_a_reader_stands_where_somebody_leads(partition: int, led: bool) -> None:
    """Without a leader, or a partition, nowhere."""
    position = place(INFO, partition, 4)
    assert (position is not None) is led
    if position is not None:
        assert (position.offset, position.leader, position.leader_epoch) == (4, 3, 5)
        assert position.last_fetched_epoch == calls.NO_EPOCH
