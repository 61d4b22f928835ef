"""One record that is written under no producer id."""

from __future__ import annotations

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.produce.append import append
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.kafka.scenes import P0, P1, end_of, target


@pytest.fixture
def west() -> FakeCluster:
    """Give a cluster whose partitions are led by two brokers."""
    return target()


def test_its_offset_is_told_and_nobody_has_to_know_the_writer(west: FakeCluster) -> None:
    """Each time at the end, however often."""
    assert [append(west, P1, (b"mark", None)) for _ in range(2)] == [200, 201]
    assert {(taken.producer_id, taken.base_sequence) for taken in west.batches} == {(-1, -1)}


def test_it_asks_for_the_leader_and_no_more(west: FakeCluster) -> None:
    """Each start of each lane writes one."""
    append(west, P0, (b"mark", None))
    west.log.clear()
    append(west, P0, (b"mark", None))
    assert len(west.log) == 2


@pytest.mark.parametrize(
    ("code", "error"),
    [
        *((code, Retriable) for code in (6, 7, 19, 20, 3, 56, 45, 2, -1)),
        *((code, UsageError) for code in (29, 31)),
        *((code, NeedsOperator) for code in (10, 32, 87, 17, 44)),
    ],
)
def test_what_is_not_acknowledged_is_told(west: FakeCluster, code: int, error: type[OnceoverError]) -> None:
    """Whoever waits for it believes nothing before."""
    west.codes["answer"].append(code)
    with pytest.raises(error):
        append(west, P0, (b"mark", None))
    assert end_of(west, P0) == 100
