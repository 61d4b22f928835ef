"""What the flow should have taken in is named; nobody waits for the source to tell of it."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceover.errors import Retriable, UsageError
from onceover.groups.decide import Allowed, GroupAction, decide
from onceover.groups.strays import find_strays, stray_facts
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster

GROWN, FRESH, OTHER = TopicPartition("orders", 2), TopicPartition("orders-new", 0), TopicPartition("local", 0)


def cluster(**topics: int) -> FakeCluster:
    """Return a cluster with these topics, by their number of partitions."""
    made = FakeCluster()
    for name, count in topics.items():
        made.add_topic(name.replace("_", "-"), UUID(int=1), [0] * count)
    return made


def copies(topic: str) -> str | None:
    return f"east.{topic}" if topic.startswith("orders") else None


def strays(source: FakeCluster, *partitions: TopicPartition) -> list[TopicPartition]:
    found = find_strays(source, copies, [[tp] for tp in partitions])
    assert all(there == TopicPartition(f"east.{here.topic}", here.partition) for here, there in found.items())
    return sorted(found)


def test_partitions_and_topics_that_are_missing_are_found_and_asked_about_together() -> None:
    source, asked = cluster(orders=3, orders_new=1), list[str]()
    source.heard = lambda _, topics: asked.append(topics)
    assert strays(source, GROWN, FRESH, OTHER) == [GROWN, FRESH]
    assert asked == ["orders orders-new"]


def test_what_is_outside_of_the_filter_is_not_even_asked_about() -> None:
    source = cluster(local=1)
    assert strays(source, OTHER) == []
    assert source.log == []


@pytest.mark.parametrize(
    "partition", [GROWN, TopicPartition("orders-gone", 0), TopicPartition("orders-inside", 0)]
)
def test_what_is_not_there_any_more_or_nobodys_is_not_named(partition: TopicPartition) -> None:
    source = cluster(orders=2, orders_inside=1)
    source.all_topics["orders-inside"].internal = True
    assert strays(source, partition) == []


def test_a_source_that_does_not_answer_is_asked_once_and_hides_nothing() -> None:
    def away(*_: str) -> None:
        raise Retriable("away")

    source = cluster(orders_new=1)
    source.heard = away
    assert strays(source, GROWN, OTHER) == [GROWN]
    assert source.log == ["Metadata"]
    source.heard = lambda *_: None
    source.unanswered["orders-new"] = UsageError("not authorized")
    assert strays(source, FRESH) == [FRESH]


def test_a_group_is_left_alone_there_until_somebody_looks() -> None:
    committed = {tp: CommittedOffset(0, 7, -1, "") for tp in (GROWN, OTHER)}
    (facts,) = stray_facts(committed, {GROWN: TopicPartition("east.orders", 2)})
    decision = decide(facts, Allowed(rewind=True, take_over=True), 0)
    assert decision is not None
    assert (facts.giving, facts.committed) == (GROWN, 7)
    assert (decision.kind, decision.code, decision.blocks) == (GroupAction.LEFT, "NOT_ENROLLED", True)
    assert "onceover status" in decision.resolve
