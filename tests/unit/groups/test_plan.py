"""The plan's two faces: a table for people, one stable document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onceover.errors import Retriable, UsageError
from onceover.groups.decide import Allowed, Remembered
from onceover.groups.plan import GroupPlan, Row, plan_groups
from tests.unit.groups.groupworld import NOW_MS, SHIFT, World


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


def test_a_topic_that_is_not_shown_is_named_because_what_is_committed_there_is_not_shown_either() -> None:
    shut = UsageError("east refuses metadata (error 29, not authorized)", where="shut")
    world = World(here={"new": 7})
    found = plan_groups(replace(world.read(), hidden={"shut": shut}), Allowed())
    (refusal,) = found.refused
    assert (found.exit_code, refusal.object, refusal.code) == (3, "shut", "NOT_AUTHORIZED")
    assert "is not shown" in refusal.message and "DESCRIBE on shut" in refusal.resolve
    assert [change.object for change in found.changes] == ["new east.orders:0"], "the others go on"


def test_groups_that_are_not_known_are_told_of_by_the_cluster_that_does_not_tell() -> None:
    """And the others go on."""
    away = Retriable("1 of 4 partitions of __consumer_offsets have no leader on west")
    found = plan_groups(replace(World(here={"new": 7}).read(), errors_there=(away,)), Allowed())
    (refusal,) = found.refused
    assert (found.exit_code, refusal.object, refusal.code) == (5, "west", "UNKNOWN")
    assert "nothing is done for groups that are not known: 1 of 4" in refusal.message
    assert [change.object for change in found.changes] == ["new east.orders:0"]


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


class Counted(tuple[Row, ...]):
    """Rows that count how often somebody goes through all of them."""

    looks = 0

    def __iter__(self) -> Iterator[Row]:
        self.looks += 1
        return super().__iter__()


def test_many_refusals_are_shown_in_one_pass_over_the_rows() -> None:
    """A pass for each refusal took minutes for 60,000 of them."""
    world = World(here={f"group-{n}": 4 for n in range(500)}, there={f"group-{n}": 120 for n in range(500)})
    made = plan(world)
    rows = Counted(made.rows)
    text = replace(made, rows=rows).describe()
    assert text.endswith("left alone AHEAD: 500")
    assert rows.looks <= 3


def test_a_lag_that_is_not_known_is_said_and_does_not_matter() -> None:
    world = World(here={"new": 4})
    view = replace(world.read(), lag_unknown="the lag in 2 partitions is not known")
    made = plan_groups(view, Allowed())
    assert "the lag in 2 partitions is not known" in made.describe()
    assert made.document()["lag_unknown"] == "the lag in 2 partitions is not known"
    assert made.exit_code == 0


def test_with_the_giving_side_gone_groups_are_told_where_they_stand() -> None:
    """A remark of its own although every row has the same code."""
    world = World(here={"old": 4}, there={"old": 104})
    world.remember(old=Remembered(4, frozenset({104}), NOW_MS - 60_000))
    world.broken = {}
    seen = world.read()
    away = Retriable("no broker of east answers")
    groups = tuple(replace(g, error=away) for g in seen.groups)
    made = plan_groups(replace(seen, groups=groups, away=away), Allowed(rewind=True, take_over=True))
    text = made.describe()
    assert (made.exit_code, made.steps) == (5, ())
    assert "left alone: east: what groups have committed on east cannot be asked: no broker" in text
    assert "it stands where a look put it 1 min ago, for offset 4; nothing is done" in text


def test_only_who_has_a_position_where_it_comes_from_can_be_misplaced() -> None:
    """Deleted there, or expired: nothing is to be put in place, though something stands on the other side."""
    ours = Remembered(4, frozenset({104}), NOW_MS - 60_000)
    world = World(
        here={"ahead": 4, "busy": 7, "shared": 8, "passed": 9},
        there={"ahead": 120, "gone": 104, "left": 104, "passed": 101},
        members={"busy", "left"},
        types={"shared": "share"},
    ).remember(gone=ours, left=ours)
    made = plan(world)
    assert {r.object for r in made.refused} == {
        "ahead east.orders:0",
        "busy",
        "shared",
        "gone east.orders:0",
        "left",
    }
    assert {r.object for r in made.misplaced()} == {"ahead east.orders:0", "busy", "shared"}
    (risky,) = (r for r in made.misplaced(lambda _: False) if r.code == "NOT_APPROVED")
    assert risky.object == "passed east.orders:0"


def test_who_could_not_be_read_is_not_taken_for_one_that_has_no_position() -> None:
    """It was put in place before, and its coordinator does not answer now."""
    world = World(there={"away": 104}).remember(away=Remembered(4, frozenset({104}), NOW_MS - 60_000))
    world.broken["away"] = Retriable("its coordinator is away", resolve="run again")
    (refusal,) = plan(world).misplaced()
    assert (refusal.object, refusal.code, refusal.passes) == ("away", "UNKNOWN", True)


def test_what_may_pass_says_so() -> None:
    world = World(here={"ahead": 4, "a": 7}, there={"ahead": 120}, undecided={"a"})
    assert {r.code: r.passes for r in plan(world).refused} == {"AHEAD": False, "COMMIT_PENDING": True}
