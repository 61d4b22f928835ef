"""Which record a group would go on with, of many places at once."""

from __future__ import annotations

import pytest

from onceover.backoff import Deadline
from onceover.drills.looks.nextrecords import next_records
from onceover.errors import Retriable
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def cluster() -> FakeCluster:
    """Two partitions of six records in two batches each, behind them a marker."""
    made = FakeCluster("west")
    for log in made.make_topic("orders", 2).logs:
        append(log, 0, producer=-1)
        append(log, 3, producer=7)
        log.decide(7, commit=True)
    return made


def append(log: FakeLog, first: int, producer: int) -> None:
    log.append([Content(b"k", str(number).encode(), (), 1) for number in range(first, first + 3)], producer)


def found(
    cluster: FakeCluster, *places: tuple[TopicPartition, int], end: int = 7
) -> dict[tuple[TopicPartition, int], int | None]:
    """Return the offset of the next record of each place."""
    met = next_records(cluster, set(places), {A: end, B: end}, Deadline(0.5))
    return {at: None if record is None else record.offset for at, record in met.items()}


def test_each_place_has_its_next_record(cluster: FakeCluster) -> None:
    """Read together; behind the last record there is none, whether a marker is there or not."""
    places = [(A, 0), (A, 2), (A, 3), (A, 6), (A, 7), (B, 5)]
    assert found(cluster, *places) == {
        (A, 0): 0,
        (A, 2): 2,
        (A, 3): 3,
        (A, 6): None,
        (A, 7): None,
        (B, 5): 5,
    }
    assert len(cluster.connections) == 1


def test_what_stands_behind_the_end_is_no_next_record(cluster: FakeCluster) -> None:
    """It was not copied, say."""
    assert found(cluster, (A, 1), (A, 2), end=2) == {(A, 1): 1, (A, 2): None}
    del cluster.all_topics["orders"].logs[0].batches[1].records[3]
    assert found(cluster, (A, 3), end=4) == {(A, 3): None}
    assert found(cluster, (A, 3), end=5) == {(A, 3): 4}


def test_a_place_that_has_expired_is_left_out_and_no_other(cluster: FakeCluster) -> None:
    """Not of its partition, nor of others."""
    cluster.all_topics["orders"].logs[0].expire(2)
    assert found(cluster, (A, 0), (A, 1), (A, 2), (B, 0)) == {(A, 2): 2, (B, 0): 0}


def test_nothing_is_read_where_nothing_is_wanted(cluster: FakeCluster) -> None:
    """Nor asked."""
    assert found(cluster) == {}
    assert found(cluster, (A, 9)) == {(A, 9): None}
    assert cluster.log == []


def test_places_that_cannot_be_read_in_time_are_no_places_without_a_record(cluster: FakeCluster) -> None:
    """A failure, not a None."""
    append(cluster.all_topics["orders"].logs[0], 6, producer=9)
    with pytest.raises(Retriable, match="orders:0 on west cannot be read to offset 8: a transaction is open"):
        next_records(cluster, {(A, 7)}, {A: 8}, Deadline(0.01))
