"""What the flow should have taken in is named; nobody waits for the source to tell of it."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.groups.decide import Allowed, GroupAction, decide
from onceover.groups.strays import find_strays, stray_facts
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.model import TopicPartition

GROWN, FRESH, OTHER = TopicPartition("orders", 2), TopicPartition("orders-new", 0), TopicPartition("local", 0)


class Source:
    """A cluster with these topics, by their number of partitions.

    Attributes:
        down: what it says instead; ``hidden`` of one topic.
        asked: what was asked about.
    """

    def __init__(self, **topics: int) -> None:
        self.topics = {name.replace("_", "-"): count for name, count in topics.items()}
        self.down: OnceoverError | None = None
        self.hidden: dict[str, OnceoverError] = {}
        self.asked: list[Collection[str]] = []

    def each_topic(self, names: Collection[str]) -> Each[str, Any]:
        self.asked.append(names)
        if self.down is not None:
            raise self.down
        found = {
            name: SimpleNamespace(is_internal=name == "orders-inside", partitions=range(self.topics[name]))
            for name in names
            if name in self.topics
        }
        return Each(found, self.hidden)


def copies(topic: str) -> str | None:
    return f"east.{topic}" if topic.startswith("orders") else None


def strays(source: Source, *partitions: TopicPartition) -> list[TopicPartition]:
    found = find_strays(cast(Any, source), copies, [[tp] for tp in partitions])
    assert all(there == TopicPartition(f"east.{here.topic}", here.partition) for here, there in found.items())
    return sorted(found)


def test_partitions_and_topics_that_are_missing_are_found_and_asked_about_together() -> None:
    source = Source(orders=3, orders_new=1)
    assert strays(source, GROWN, FRESH, OTHER) == [GROWN, FRESH]
    assert source.asked == [["orders", "orders-new"]]


def test_what_is_outside_of_the_filter_is_not_even_asked_about() -> None:
    source = Source(local=1)
    assert strays(source, OTHER) == []
    assert source.asked == []


@pytest.mark.parametrize(
    "partition", [GROWN, TopicPartition("orders-gone", 0), TopicPartition("orders-inside", 0)]
)
def test_what_is_not_there_any_more_or_nobodys_is_not_named(partition: TopicPartition) -> None:
    assert strays(Source(orders=2, orders_inside=1), partition) == []


def test_a_source_that_does_not_answer_is_asked_once_and_hides_nothing() -> None:
    source = Source()
    source.down = Retriable("away")
    assert strays(source, GROWN, OTHER) == [GROWN]
    assert len(source.asked) == 1
    source.down, source.hidden = None, {"orders-new": UsageError("not authorized")}
    assert strays(source, FRESH) == [FRESH]


def test_a_group_is_left_alone_there_until_somebody_looks() -> None:
    committed = {tp: CommittedOffset(0, 7, -1, "") for tp in (GROWN, OTHER)}
    (facts,) = stray_facts(committed, {GROWN: TopicPartition("east.orders", 2)})
    decision = decide(facts, Allowed(rewind=True, take_over=True), 0)
    assert decision is not None
    assert (facts.giving, facts.committed) == (GROWN, 7)
    assert (decision.kind, decision.code, decision.blocks) == (GroupAction.LEFT, "NOT_ENROLLED", True)
    assert "onceover status" in decision.resolve
