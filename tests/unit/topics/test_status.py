"""What ``status`` says about topics."""

from __future__ import annotations

from typing import Any

from onceover.topics.namingpolicy import PREFIX, NamingPolicy
from onceover.topics.scope import Rules
from onceover.topics.status import describe_topics, topic_entries
from tests.unit.topics.topicworld import World, leave, source_id, topic

RULES = Rules(("a.*", "left"), ("a-tmp",), NamingPolicy(PREFIX, "east", "west"))


def entries(world: World, refused: list[dict[str, Any]] | None = None) -> dict[str, tuple[bool, str]]:
    """Return topic -> (in, reason)."""
    source = {name: topic(name, count, source_id(name)) for name, count in world.source.items()}
    found = topic_entries(RULES, source, world.enrolled.values(), refused or [])
    return {e["topic"]: (e["in"], e["reason"]) for e in found}


def test_every_topic_has_its_reason_and_internal_ones_are_left_out() -> None:
    """Those on the source, and those that are enrolled but gone."""
    world = World({"a": 1, "a-tmp": 1, "b": 1, "__x": 1, "east.heartbeats": 1})
    world.enrol("a-gone", 2, "east.a-gone")
    assert entries(world) == {
        "a": (True, "include: a.*"),
        "a-gone": (True, "include: a.*"),
        "a-tmp": (False, "exclude: a-tmp"),
        "b": (False, "no include pattern matches"),
    }


def test_refused_topic_is_out_unless_it_is_copied_all_the_same() -> None:
    """A remark puts nothing out."""
    world = World({"a1": 1, "a2": 1, "a3": 1})
    world.enrol("a2")
    refused = [
        {"object": "a1", "message": "no", "blocks": True},
        {"object": "a2", "message": "no", "blocks": True},
        {"object": "a3", "message": "no", "blocks": False},
    ]
    assert entries(world, refused) == {
        "a1": (False, "refused: no"),
        "a2": (True, "refused: no"),
        "a3": (True, "include: a.*"),
    }


def test_names_and_counts_are_those_of_the_enrolment() -> None:
    """Of a topic that is gone, or was enrolled under another name."""
    world = World({})
    world.enrol("left", 3, "left")
    world.enrolled["left"] = leave(world.enrolled["left"])
    (entry,) = topic_entries(RULES, {}, world.enrolled.values(), [])
    assert (entry["target_topic"], entry["partitions"]) == ("left", 3)


def test_summary_is_one_line() -> None:
    """However many topics there are."""
    found = [{"topic": f"t{n}", "in": n % 2 == 0, "reason": ""} for n in range(10)]
    text = describe_topics(found, "f")
    assert text == "  topics: in 5, out 5: t1, t3, t5, ... (why: onceover status f --topic TOPIC)"
    assert describe_topics([], "f") is None
