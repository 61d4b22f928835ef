"""How long records stay in a log, and who gives them their time: by the topic, or by what it inherits."""

from __future__ import annotations

import pytest

from onceover.audit.ranges.snapshot import PartitionLog, partition_logs
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster

FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
STAMPED = {"message.timestamp.type": "LogAppendTime"}


def log(own: dict[str, str], inherited: dict[str, str]) -> PartitionLog:
    cluster = FakeCluster("west")
    cluster.defaults.update(inherited)
    cluster.make_topic("t", 1).config.update(own)
    return partition_logs(cluster, ["t"])[TopicPartition("t", 0)]


@pytest.mark.parametrize("inherited", [False, True])
@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, (False, True, False)),
        (FOR_EVER, (False, False, False)),
        (STAMPED, (False, True, True)),
        ({"cleanup.policy": "compact"}, (True, False, False)),
        ({"cleanup.policy": "compact,delete"}, (True, True, False)),
    ],
)
def test_what_a_topic_inherits_holds_as_what_it_sets(
    config: dict[str, str], told: tuple[bool, bool, bool], *, inherited: bool
) -> None:
    found = log({}, config) if inherited else log(config, {})
    assert (found.compacted, found.expires, found.stamped) == told


@pytest.mark.parametrize(
    ("own", "inherited", "expires"),
    [
        ({"retention.ms": "-1"}, {"retention.bytes": "1000"}, True),
        ({"retention.bytes": "1000"}, {"retention.ms": "-1"}, True),
        ({"retention.ms": "-1"}, {"retention.bytes": "-1"}, False),
        ({"retention.ms": "1000"}, FOR_EVER, True),
    ],
)
def test_size_and_age_may_be_limited_in_two_places(
    own: dict[str, str], inherited: dict[str, str], *, expires: bool
) -> None:
    """A log that never ages is cut by its brokers' limit of size; what a topic sets comes first."""
    assert log(own, inherited).expires is expires
