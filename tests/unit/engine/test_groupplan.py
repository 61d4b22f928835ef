"""The plan's two faces: a table for people, one stable document for programs."""

from __future__ import annotations

from onceover.engine.groupplan import GroupPlan, plan_groups
from onceover.engine.groups import Allowed
from onceover.errors import Retriable
from tests.unit.engine.groupworld import SHIFT, World


def plan(world: World, allowed: Allowed | None = None) -> GroupPlan:
    return plan_groups(world.read(), allowed or Allowed())


def test_the_document_has_the_plans_shape_and_every_position() -> None:
    world = World(here={"ahead": 4, "new": 7}, there={"ahead": 120}, members={"busy"})
    document = plan(world).document()
    assert (document["operation"], document["flow"]) == ("groups failover", "flights")
    assert (document["direction"], document["giving"], document["receiving"]) == ("failover", "east", "west")
    assert document["changes"] == [
        {
            "what": "move group",
            "object": "new east.orders:0",
            "from": None,
            "to": 107,
            "reason": "not committed there yet",
            "risk": "none",
            "records": None,
        }
    ]
    assert [(r["object"], r["code"], r["blocks"]) for r in document["refused"]] == [
        ("ahead east.orders:0", "AHEAD", False)
    ]
    assert [
        (p["group"], p["topic"], p["partition"], p["committed"], p["lag"], p["translated"], p["current"])
        for p in document["positions"]
    ] == [("ahead", "orders", 0, 4, 46, 104, 120), ("new", "orders", 0, 7, 43, 107, None)]


def test_the_same_situation_has_the_same_id() -> None:
    world = World(here={"new": 7})
    first, second = plan(world), plan(world)
    assert (first.plan_id, first.computed_at_ms) == (second.plan_id, second.computed_at_ms - 1)
    world.here["new"] = 8
    assert plan(world).plan_id != first.plan_id


def test_the_text_shows_each_partition_what_it_costs_and_what_resolves_it() -> None:
    world = World(here={"ahead": 4, "foreign": 7}, there={"ahead": 120, "foreign": 101})
    text = plan(world).describe()
    assert text.startswith("groups of flow flights, failover: east -> west\n\ngroup ahead (classic)\n")
    assert "left alone: it has read up to 120 on the receiving side, 16 offsets further; nothing, if" in text
    assert "replaces what somebody else committed there (skips 6 offsets)" in text
    assert text.endswith("\nmove group: 1, left alone AHEAD: 1")


def test_groups_that_are_left_alone_as_a_whole_are_named_once() -> None:
    world = World(here={"away": 4, "busy": 7, "shared": 8}, members={"busy"}, types={"shared": "share"})
    world.broken["away"] = Retriable("its coordinator is away", resolve="run again")
    text = plan(world).describe()
    assert text.count("left alone: away: nothing is done, because it is not known") == 1
    assert text.count("it has members on west") == 1
    assert text.count("a share group keeps acknowledgements") == 1


def test_an_empty_plan_says_so() -> None:
    assert plan(World()).describe().endswith("nothing to do")


def test_a_group_in_place_that_nobody_remembers_is_remembered_without_a_change() -> None:
    """Otherwise its next move would look like somebody else's commit."""
    planned = plan(World(here={"a": 4}, there={"a": 4 + SHIFT}))
    assert planned.changes == ()
    assert [(step.group, len(step.writes), len(step.keeps)) for step in planned.steps] == [("a", 0, 1)]
