"""Waiting for the source's consumers: who still moves is named, however little time is left."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceover.backoff import Deadline
from onceover.drills.leaving.commits import SourceGroups
from onceover.errors import NeedsOperator
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog, FakeTopic
from tests.support.raw.mutations import Content

TP = TopicPartition("a", 0)


def groups_of(source: FakeCluster) -> SourceGroups:
    return SourceGroups(source, lambda name: name == "restless", {"a"}, lambda _: None)


@pytest.fixture
def source() -> FakeCluster:
    """Ten records, of which a group has committed two."""
    log = FakeLog()
    log.append([Content(b"k", b"v", (), 0)] * 10)
    made = FakeCluster("east", {"a": FakeTopic(UUID(int=1), [log])})
    made.groups["restless"] = {TP: CommittedOffset(0, 2, 0, "")}
    return made


def test_a_group_that_still_moves_is_named_also_where_time_is_over_before_it_was_looked_at(
    source: FakeCluster,
) -> None:
    """A busy machine takes long for a round: whoever runs it again would be told to do so for ever."""
    with pytest.raises(NeedsOperator, match="restless at a:0") as late:
        groups_of(source).settle({("restless", TP): 1}, Deadline(0.0))
    assert late.value.code == "COMMITS_LATE"


def test_a_group_that_rests_is_where_it_is(source: FakeCluster) -> None:
    """It has no members, and has not moved since."""
    assert groups_of(source).settle({("restless", TP): 2}, Deadline(0.0)) == {("restless", TP): 2}
