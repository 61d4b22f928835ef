"""Target partitions that a flow's handler asks for: created, added, or refused when they are too few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onceover.handlers.load import load_handler
from onceover.topics.changes import AddPartitions, CreateTopic
from onceover.topics.plan import TopicPlan, plan_topics
from tests.unit.topics.topicworld import World

PLUS_TWO: Callable[[int], int] = lambda count: count + 2  # noqa: E731


def plan(world: World, counts: Callable[[int], int]) -> TopicPlan:
    """Return the plan of a flow whose handler wants so many partitions."""
    view = world.view()
    return plan_topics(replace(view, rules=replace(view.rules, target_partitions=counts)))


def test_new_topic_is_created_with_the_wanted_count() -> None:
    """Only the copy is wider; what is enrolled are the source's partitions."""
    found = plan(World({"t": 3}), PLUS_TWO)
    [step] = found.steps
    assert isinstance(step, CreateTopic) and step.spec.partitions == 5
    assert found.enrol == ("t",)


def test_growth_on_the_source_is_asked_for_anew() -> None:
    """The handler is asked again for the grown source."""
    world = World({"t": 3}, {"t": 4}, ends={"t": 9})
    world.enrol("t", 2)
    found = plan(world, PLUS_TWO)
    assert (found.steps, found.enrol) == ((AddPartitions("t", "t", 4, 5),), ("t",))


def test_too_few_partitions_are_refused_and_others_go_on() -> None:
    """Progress is kept per target partition of the same number."""
    handler = load_handler("tests.unit.handlers.samples:Wider", {"partitions": 2}, "f.yaml")
    found = plan(World({"t": 3, "u": 2}), handler.target_partitions)
    assert [(r.object, r.code) for r in found.refused] == [("t", "TARGET_PARTITIONS")]
    assert "seen: 2" in found.refused[0].message
    assert found.enrol == ("u",)


def test_existing_empty_topic_has_to_have_the_wanted_count() -> None:
    """One of the source's size would leave the handler's output without a place."""
    found = plan(World({"t": 3}, {"t": 3}), PLUS_TWO)
    assert [r.code for r in found.refused] == ["PARTITION_COUNT"]
    assert plan(World({"t": 3}, {"t": 5}), PLUS_TWO).enrol == ("t",)
