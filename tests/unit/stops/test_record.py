"""Which partitions are stopped, out of what stands in the state."""

from __future__ import annotations

import pytest

from onceover.errors import NeedsOperator
from onceover.model import TopicPartition
from onceover.state import names
from onceover.stops.record import Stop, stop_in, stopped_in

STOP = Stop("RECORD_REFUSED", "refused", "one that fits", "another", "correct it", 5, at_ms=7, generation=3)
TARGET, OTHER = TopicPartition("copy.t", 1), TopicPartition("copy.t", 2)


def test_a_stop_is_read_by_its_target_partition() -> None:
    """And nobody else's."""
    others = {names.stop_key(*TARGET): STOP.to_json(), names.wait_key(*OTHER): {}}
    assert stop_in(others, TARGET) == STOP
    assert stop_in(others, OTHER) is None
    assert stopped_in(others) == {TARGET}


def test_a_stop_that_nobody_can_read_is_one_and_says_so() -> None:
    """Going on beside it would look as if it were none."""
    others = {names.stop_key(*TARGET): "written by somebody else"}
    assert stopped_in(others) == {TARGET}
    with pytest.raises(NeedsOperator) as unreadable:
        stop_in(others, TARGET)
    assert unreadable.value.code == "STATE_UNREADABLE"


@pytest.mark.parametrize("key", ["stop/junk", "stop/", "stop/t/x", "stop/t/"])
def test_a_key_that_names_no_partition_stops_none(key: str) -> None:
    """Who writes it ends nobody's run."""
    assert stopped_in({key: STOP.to_json(), names.stop_key(*TARGET): STOP.to_json()}) == {TARGET}
