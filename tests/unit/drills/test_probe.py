"""The topic that is written to on the target, without brokers: it is made however many of them there are."""

from __future__ import annotations

import pytest

from onceover.drills import canary
from onceover.drills.switching.probe import Probe
from onceover.errors import NeedsOperator
from onceover.kafka.admin.topics import Admin, TopicSpec
from tests.support.fakes.fakecluster import FakeCluster


def made(brokers: int, factor: int, *refused: int) -> list[str]:
    """Return the requests to make the topic, some of which are refused whatever they are."""
    target = FakeCluster()
    target.nodes = set(range(1, brokers + 1))
    target.codes["CreateTopics probe"].extend(refused)
    probe = Probe("orders-dr", target, factor, lambda: None)
    probe._make(Admin(target), TopicSpec("probe", canary.PARTITIONS, factor))
    assert len(target.all_topics["probe"].logs) == canary.PARTITIONS
    return [each for each in target.log if each.startswith("CreateTopics")]


@pytest.mark.parametrize(
    ("brokers", "factor", "refused"), [(2, 3, ()), (1, 3, ()), (2, -1, (38,)), (4, 5, ()), (4, -1, (38,))]
)
def test_with_fewer_brokers_than_replicas_it_is_made_with_fewer(
    brokers: int, factor: int, refused: tuple[int, ...]
) -> None:
    """Whether clients can write is the question, and not whether all brokers are there."""
    assert len(made(brokers, factor, *refused)) == 2


@pytest.mark.parametrize(("brokers", "factor"), [(3, 3), (1, 1), (2, -1)])
def test_with_as_many_it_is_made_as_the_flows_own_topics_are(brokers: int, factor: int) -> None:
    assert len(made(brokers, factor)) == 1


@pytest.mark.parametrize(("factor", "asked"), [(3, 1), (-1, 2)])
def test_what_is_refused_for_another_reason_is_told(factor: int, asked: int) -> None:
    """A policy of the cluster, say: fewer replicas are asked for only where that may be it."""
    target = FakeCluster()
    target.nodes = {1, 2, 3}
    target.codes["CreateTopics probe"].extend([44, 44])
    probe = Probe("orders-dr", target, factor, lambda: None)
    with pytest.raises(NeedsOperator, match="did not create topic"):
        probe._make(Admin(target), TopicSpec("probe", canary.PARTITIONS, factor))
    assert target.log.count("CreateTopics probe") == asked
