"""What is created, grown, enrolled and refused, from pictures of two clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from onceover.errors import UsageError
from onceover.planning.plan import Refusal
from onceover.state.records.enrolment import MOST_PARTITIONS, GaveWay, LeftAt, PlacedProgress
from onceover.state.records.managed import Managed
from onceover.stops.aside import TroubleSide
from onceover.topics.changes import AddPartitions, CreateTopic
from onceover.topics.configs import OF_EVERY_COPY
from onceover.topics.namingpolicy import PREFIX
from onceover.topics.plan import Loop, OtherWriter, TopicPlan, View, overlap, plan_topics, without
from tests.support.flows.waysout import commands
from tests.unit.topics.topicworld import FLOW, World, leave, source_id, topic

OTHER_ID = UUID(int=3)


def codes(plan: TopicPlan) -> list[str]:
    """Return why topics are left out, or remarked upon."""
    return [refusal.code for refusal in plan.refused]


def nothing(plan: TopicPlan) -> bool:
    """Tell whether the plan is empty."""
    return not (plan.steps or plan.enrol or plan.turn or plan.refused)


def test_new_topic_is_created_with_its_configuration_and_enrolled() -> None:
    """Configuration before the first record, or retention eats old ones (docs/facts.md)."""
    world = World({"t": 2}, config={"t": {"retention.ms": "-1", "min.insync.replicas": "2"}})
    plan = world.plan()
    (step,) = plan.steps
    assert isinstance(step, CreateTopic)
    assert (step.spec.name, step.spec.partitions, step.spec.config) == (
        "t",
        2,
        {"retention.ms": "-1", **OF_EVERY_COPY},
    )
    assert plan.enrol == ("t",) and not plan.refused
    assert (
        plan.changes[0].document()["to"] == "2 partitions, retention.ms=-1, message.timestamp.type=CreateTime"
    )
    world.sync_configs = False
    (step,) = world.plan().steps
    assert isinstance(step, CreateTopic) and step.spec.config == OF_EVERY_COPY


@pytest.mark.parametrize(
    ("adopt", "managed", "sync"), [(True, False, True), (False, True, False), (False, False, True)]
)
def test_a_topic_that_overwrites_timestamps_is_made_to_keep_them_or_refused(
    adopt: bool, managed: bool, sync: bool
) -> None:
    """Its own setting or its brokers' default; refused until somebody says that the flow may set it (G1)."""
    world = World({"t": 1}, target={"t": 1}, restamped=frozenset({"t"}), adopt=adopt, sync_configs=sync)
    if managed:
        world.state["managed/t"] = Managed().to_json()
    plan = world.plan()
    if adopt or managed:
        assert [(c.object, c.to) for c in plan.changes if c.what == "set config"] == [
            ("t message.timestamp.type", "CreateTime")
        ]
        assert plan.enrol == ("t",)
    else:
        assert [(r.code, r.blocks) for r in plan.refused] == [("TARGET_RESTAMPS", True)]
        assert (plan.steps, plan.enrol) == ((), ())


def test_a_topic_that_is_copied_already_and_overwrites_timestamps_is_a_note() -> None:
    """Stopping it would not bring the old ones back."""
    world = World({"t": 1}, target={"t": 1}, restamped=frozenset({"t"}))
    world.enrol("t")
    assert [(r.code, r.blocks) for r in world.plan().refused] == [("TARGET_RESTAMPS", False)]


def test_prefixed_topic_is_created_under_its_own_name() -> None:
    """And enrolled by its source's."""
    plan = World({"t": 1}, naming=PREFIX).plan()
    assert [s.topic for s in plan.steps] == ["east.t"]
    assert plan.enrol == ("t",)


def test_topics_out_of_scope_are_left_alone() -> None:
    """Excluded, internal, hops."""
    world = World({"orders": 1, "orders-tmp": 1, "__x": 1, "west.orders": 1}, exclude=(".*-tmp",))
    assert world.plan().enrol == ("orders",)


def test_empty_target_topic_is_enrolled_as_it_is() -> None:
    """Created by somebody beforehand."""
    plan = World({"t": 2}, {"t": 2}).plan()
    assert (plan.steps, plan.enrol, plan.refused) == ((), ("t",), ())


def test_target_topic_with_records_is_refused() -> None:
    """What they are is not known; one offset is enough."""
    plan = World({"t": 2}, {"t": 2}, ends={"t": 1}).plan()
    assert codes(plan) == ["TARGET_NOT_EMPTY"] and not plan.enrol and not plan.steps


@pytest.mark.parametrize("there", [{}, {"t": 2}], ids=["to be created", "is there"])
def test_new_topic_without_its_configuration_is_refused_and_said(there: dict[str, int]) -> None:
    """The broker's retention might delete what is copied; the others are taken in."""
    plan = World({"t": 2, "u": 1}, there, unread=frozenset({"t"})).plan()
    (refusal,) = plan.refused
    assert (refusal.object, refusal.code, refusal.blocks) == ("t", "CONFIG_UNREADABLE", True)
    assert (plan.enrol, refusal.resolve) == (("u",), "grant it")
    assert World({"t": 2}, unread=frozenset({"t"}), sync_configs=False).plan().enrol == ("t",)


def test_enrolled_topic_without_its_configuration_goes_on_with_a_note() -> None:
    """It grows, too: its partitions inherit what the topic has."""
    world = World({"t": 2}, {"t": 1}, unread=frozenset({"t"}))
    world.enrol("t", 1)
    plan = world.plan()
    (refusal,) = plan.refused
    assert (refusal.code, refusal.blocks) == ("CONFIG_UNREADABLE", False)
    assert (plan.steps, plan.enrol) == ((AddPartitions("t", "t", 1, 2),), ("t",))


@pytest.mark.parametrize("count", [1, 3])
def test_target_topic_with_another_partition_count_is_refused(count: int) -> None:
    """Partition numbers are kept, so both sides have the same."""
    plan = World({"t": 2}, {"t": count}).plan()
    assert codes(plan) == ["PARTITION_COUNT"] and not plan.enrol and not plan.steps


def test_missing_partitions_of_an_empty_topic_are_added_on_request_or_to_an_own_topic() -> None:
    """By ``topics apply``, or when a creation was interrupted while the source grew."""
    plan = World({"t": 3}, {"t": 2}, adopt=True).plan()
    assert plan.steps[0] == AddPartitions("t", "t", 2, 3)
    own = World({"t": 3}, {"t": 2})
    own.manage("t")
    assert own.plan().steps == (AddPartitions("t", "t", 2, 3),)


def test_target_topic_of_another_flow_is_refused_and_named() -> None:
    """Two flows would mix their records (G5)."""
    plan = World({"t": 2}, elsewhere={"t": OtherWriter("other", 1)}).plan()
    assert codes(plan) == ["ENROLLED_ELSEWHERE"] and not plan.steps
    assert "other" in plan.refused[0].message


@pytest.mark.parametrize(
    ("other", "active"),
    [
        (OtherWriter("other", 4), False),
        (OtherWriter("a", 5), False),
        (OtherWriter("other", 6), True),
        (OtherWriter("other", 4, active=False), True),
    ],
    ids=["earlier", "as early, by its name", "later", "has left it"],
)
def test_a_topic_that_two_flows_have_enrolled_is_left_by_the_later_one(
    other: OtherWriter, active: bool
) -> None:
    """Both would write it; both decide the same, whoever looks."""
    world = World({"t": 1}, target={"t": 1}, elsewhere={"t": other})
    world.enrol("t")
    plan = world.plan()
    assert [e.active for e in plan.turn] == ([] if active else [False])
    assert [r.code for r in plan.refused] == ([] if active else ["ENROLLED_ELSEWHERE"])


def test_what_another_flow_was_faster_with_is_taken_out_of_the_plan() -> None:
    """With its steps; the rest is done."""
    plan = World({"t": 1, "u": 1}).plan()
    refused = Refusal("t", "CLAIMED_ELSEWHERE", "taken", "start it")
    left = without(plan, [refused])
    assert (plan.enrol, left.enrol) == (("t", "u"), ("u",))
    assert [change.object for change in left.changes] == [step.change.object for step in left.steps] == ["u"]
    assert left.refused == (refused,)


@pytest.mark.parametrize(
    ("world", "code"),
    [
        (World({"t" * 249: 1}, naming=PREFIX), "NAME_TOO_LONG"),
        (World({"a.b": 1}, {"a_b": 1}), "NAME_COLLISION"),
    ],
)
def test_names_that_the_target_would_refuse(world: World, code: str) -> None:
    """Said per topic; the others go on."""
    world.source["fine"] = 1
    plan = world.plan()
    assert codes(plan) == [code]
    assert plan.enrol == ("fine",)


def test_name_that_an_older_naming_gave_to_another_topic_is_taken() -> None:
    """Two source topics in one copy would mix their records, and share one progress."""
    world = World({"t": 1, "east.t": 1}, {"east.t": 1}, naming=PREFIX)
    world.enrol("east.t")
    plan = world.plan()
    assert codes(plan) == ["NAMING_CHANGED", "NAME_TAKEN"]
    assert not plan.enrol


def test_topics_without_a_leader_wait_and_hold_up_nobody() -> None:
    """A broker with their only replica is away."""
    view = World({"t": 1, "u": 1}).view()
    gone = topic("t", 1, source_id("t"))
    leaderless = replace(gone, partitions={0: replace(gone.partitions[0], leader=-1)})
    plan = plan_topics(replace(view, source={**view.source, "t": leaderless}))
    assert (codes(plan), plan.enrol) == (["NO_LEADER"], ("u",))


# ---- enrolled topics


def enrolled(partitions: int = 2, target: int | None = 2, now: int | None = None) -> World:
    """Return a world with one enrolled topic; ``now`` is its source's partition count."""
    world = World({"t": now or partitions}, {} if target is None else {"t": target}, ends={"t": 9})
    world.enrol("t", partitions)
    return world


def test_enrolled_topic_needs_nothing() -> None:
    """Also when its target holds records, which are ours."""
    assert nothing(enrolled().plan())


def test_grown_topic_is_grown_and_enrolled_again() -> None:
    """Once the target has grown, enrolling is what is left."""
    plan = enrolled(now=3).plan()
    assert (plan.steps, plan.enrol) == ((AddPartitions("t", "t", 2, 3),), ("t",))
    plan = enrolled(target=3, now=3).plan()
    assert (plan.steps, plan.enrol) == ((), ("t",))


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("there", [2, 3], ids=["to be grown", "grown"])
def test_a_grown_topic_without_a_leader_waits_and_holds_up_nobody(side: str, there: int) -> None:
    """What is copied of it goes on; a look at all of its leaders would end the flow."""
    world = enrolled(target=there, now=3)
    world.source |= {"u": 1}
    view = world.view()
    info = (view.source if side == "source" else view.target)["t"]
    away = {"t": replace(info, partitions={**info.partitions, 0: replace(info.partitions[0], leader=-1)})}
    if side == "source":
        view = replace(view, source={**view.source, **away})
    else:
        view = replace(view, target={**view.target, **away})
    plan = plan_topics(view)
    assert (codes(plan), plan.enrol) == (["NO_LEADER"], ("u",))
    assert not [step for step in plan.steps if isinstance(step, AddPartitions)]


def test_recreated_deleted_and_shrunk_topics_are_left_to_the_lanes() -> None:
    """They stop the partitions; enrolling again would give them a new start."""
    view = enrolled(now=3).view()
    recreated = {"t": topic("t", 3, OTHER_ID)}
    for changed in (
        enrolled(target=None, now=3).view(),
        replace(view, target={"t": topic("t", 2, OTHER_ID)}),
        replace(view, source=recreated),
        replace(view, source={}),
        enrolled(now=1).view(),
    ):
        assert nothing(plan_topics(changed))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"source": {}}, "SOURCE_MISSING"),
        ({"source": {"t": topic("t", 3, OTHER_ID)}}, "SOURCE_RECREATED"),
        ({"target": {}}, "TARGET_MISSING"),
        ({"target": {"t": topic("t", 1, OTHER_ID)}}, "TARGET_RECREATED"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_asks_for_a_plan_hears_that_an_enrolled_topic_is_another_one_by_now(
    changes: dict[str, Any], code: str
) -> None:
    """Nothing was to be done, it said, while its partitions were stopped; what somebody has made stays."""
    view = replace(enrolled(now=2).view(), restamped=frozenset({"t"}), **changes)
    assert nothing(plan_topics(view))
    asked = plan_topics(replace(view, adopt=True))
    assert [(r.object, r.code, r.blocks) for r in asked.refused] == [("t", code, True)]
    assert not asked.steps and "partition reseed" in asked.refused[0].resolve
    resting = {"t": leave(view.enrolled["t"])}
    assert not codes(plan_topics(replace(view, enrolled=resting, adopt=True)))


@pytest.mark.parametrize("side", [TroubleSide.SOURCE, TroubleSide.TARGET])
def test_partitions_that_still_wait_behind_a_reseed_of_another_one_are_told(side: TroubleSide) -> None:
    """The topic is accepted as it is now, and each of the others is stopped until its own reseed."""
    view = enrolled(3, target=3).view()
    old = view.enrolled["t"]
    here, there = (OTHER_ID, old.target_id) if side is TroubleSide.SOURCE else (old.source_id, OTHER_ID)
    reseeded = old.between(here, there, [0])
    topics = {"source": {"t": topic("t", 3, here)}, "target": {"t": topic("t", 3, there)}}
    view = replace(view, enrolled={"t": reseeded}, **topics)
    assert nothing(plan_topics(view))
    (refused,) = plan_topics(replace(view, adopt=True)).refused
    assert (refused.object, refused.code, refused.blocks) == ("t", f"{side.upper()}_RECREATED", True)
    assert "t:1, t:2 still wait" in refused.message
    assert "partition reseed f t:1" in refused.resolve.replace(FLOW, "f")
    done = reseeded.between(here, there, [1, 2])
    assert not codes(plan_topics(replace(view, enrolled={"t": done}, adopt=True)))


def test_what_a_namesake_of_the_source_lacks_is_not_taken_from_the_copy() -> None:
    """It may hold the last records of the topic that was deleted: the brokers' retention would take them."""
    world = enrolled()
    world.manage("t")
    world.config["t"] = {"retention.ms": "-1", "cleanup.policy": "compact"}
    world.apply()
    assert world.target_config["t"]["retention.ms"] == "-1"
    world.config["t"] = {}
    for adopt in (False, True):
        world.adopt = adopt
        view = world.view()
        assert plan_topics(view).steps != ()
        anew = replace(view, source={"t": topic("t", 2, OTHER_ID)}, restamped=frozenset({"t"}))
        plan = plan_topics(anew)
        assert not (plan.steps or plan.enrol or plan.turn)
        assert codes(plan) == (["SOURCE_RECREATED"] if adopt else [])


@pytest.mark.parametrize("side", [TroubleSide.SOURCE, TroubleSide.TARGET])
def test_an_enrolled_topic_that_may_not_be_described_is_not_taken_for_deleted(side: TroubleSide) -> None:
    """In a running flow its partitions stop with the same code; a person who plans is told here."""
    shut = UsageError("west refuses metadata (error 29, not authorized)")
    world = enrolled(target=None if side is TroubleSide.TARGET else 2)
    view = replace(world.view(), hidden={"t": (side, shut)})
    if side is TroubleSide.SOURCE:
        view = replace(view, source={})
    assert nothing(plan_topics(view))
    plan = plan_topics(replace(view, adopt=True))
    assert codes(plan) == [f"{side.upper()}_UNAUTHORIZED"] and plan.steps == ()
    (refusal,) = plan.refused
    assert "error 29" in refusal.message and commands(refusal.resolve) == []


def test_a_copy_that_may_not_be_seen_is_not_planned_to_be_made() -> None:
    """It may be there all the same, and if it was made nobody would see it: it would be planned for ever."""
    shut = UsageError("west refuses metadata (error 29, not authorized)", resolve="grant it")
    view = replace(World(source={"t": 2, "u": 1}).view(), unseen={"t": shut})
    plan = plan_topics(view)
    assert codes(plan) == ["TARGET_REFUSES"] and plan.enrol == ("u",)
    assert [step.topic for step in plan.steps] == ["u"]
    (refusal,) = plan.refused
    assert (refusal.object, refusal.resolve) == ("t", "grant it") and "error 29" in refusal.message


def test_topic_that_leaves_and_returns() -> None:
    """Marked, nothing else: its progress is its lane's."""
    world = enrolled()
    world.exclude = ("t",)
    plan = world.plan()
    assert (plan.turn, plan.enrol, plan.steps) == ((leave(world.enrolled["t"]),), (), ())
    (world.enrolled["t"],) = plan.turn
    plan = world.plan()
    assert (plan.turn, plan.enrol, plan.steps) == ((), (), ())
    world.exclude = ()
    plan = world.plan()
    assert [e.active for e in plan.turn] == [True] and plan.enrol == ()
    world.source["t"] = 3
    assert world.plan().enrol == ("t",)


def test_deleted_topic_that_is_excluded_leaves() -> None:
    """Until then it is a stop that asks the operator."""
    world = enrolled()
    del world.source["t"]
    assert nothing(world.plan())
    world.exclude = ("t",)
    assert [e.active for e in world.plan().turn] == [False]


def test_changed_naming_does_not_copy_anything_twice() -> None:
    """The topic goes on under the name it was enrolled with, and says so."""
    world = enrolled(now=3)
    world.naming = PREFIX
    plan = world.plan()
    assert codes(plan) == ["NAMING_CHANGED"]
    assert not (plan.steps or plan.enrol or plan.turn)


def test_topic_with_more_partitions_than_its_record_has_room_for_is_refused_before_anything_is_made() -> None:
    """Of one that grows beyond that, what is copied already goes on."""
    most = MOST_PARTITIONS
    world = World({"t": most + 1, "u": most, "w": most + 1}, {"w": 2})
    world.enrol("w", 2)
    plan = world.plan()
    assert [(r.object, r.code) for r in plan.refused] == [
        ("t", "TOO_MANY_PARTITIONS"),
        ("w", "TOO_MANY_PARTITIONS"),
    ]
    assert ([step.source for step in plan.steps], plan.enrol, plan.turn) == (["u"], ("u",), ())


# ---- two ways


def looped(at_ms: int, flow: str = "back") -> View:
    """Return a view in which another flow copies t back since ``at_ms``; ours is enrolled since 5."""
    world = enrolled()
    world.loops = {"t": Loop(flow, at_ms)}
    return world.view()


def test_topic_that_another_flow_copies_back_is_refused() -> None:
    """With the other flow's name and all three ways out."""
    world = World({"t": 1, "u": 1}, loops={"t": Loop("back", 1)})
    plan = world.plan()
    assert (codes(plan), plan.enrol) == (["TWO_WAY"], ("u",))
    assert "flow back" in plan.refused[0].message
    for way in ("prefix", "exclude", "__onceover.back.state"):
        assert way in plan.refused[0].resolve
    assert [v.topic for v, _ in overlap(world.view())] == ["t"]


@pytest.mark.parametrize(
    ("at_ms", "flow", "gives_way"), [(4, "a", True), (6, "a", False), (5, "a", True), (5, "z", False)]
)
def test_of_two_that_began_at_once_the_later_gives_way(at_ms: int, flow: str, gives_way: bool) -> None:
    """Exactly one of them: both decide by the same order."""
    plan = plan_topics(looped(at_ms, flow))
    assert [e.active for e in plan.turn] == ([False] if gives_way else [])
    assert codes(plan) == (["TWO_WAY"] if gives_way else [])


def test_topic_that_left_does_not_return_into_a_loop() -> None:
    """However long it was enrolled before the other flow took it."""
    view = looped(9)
    gone = {"t": leave(view.enrolled["t"])}
    plan = plan_topics(replace(view, enrolled=gone))
    assert codes(plan) == ["TWO_WAY"] and not any(e.active for e in plan.turn)


def given_way(**changes: Any) -> View:
    """Return a view in generation 8 of a topic that gave way in generation 7 to a flow that is gone since."""
    world = enrolled(now=2)
    world.enrolled["t"] = replace(leave(world.enrolled["t"]), gave_way=GaveWay(7, "back"))
    world.ends = {"t": 5}
    return replace(world.view(), now=LeftAt(8, 80), **changes)


def placed(view: View, *generations: int) -> View:
    """Return the view with partitions that the leader wrote under these generations."""
    there = {number: PlacedProgress(generation, 9, 5) for number, generation in enumerate(generations)}
    return replace(view, enrolled={"t": replace(view.enrolled["t"], placed=there)})


def test_topic_that_gives_way_keeps_on_record_to_whom_and_when() -> None:
    """Also one that had left before: from then on what it has copied comes back to its source."""
    view = replace(looped(4), now=LeftAt(7, 70))
    gone = replace(view.enrolled["t"].leaving(LeftAt(7, 70)), gave_way=GaveWay(7, "back"))
    assert plan_topics(view).turn == (gone,)
    excluded = replace(view, rules=replace(view.rules, exclude=("t",)))
    left = replace(excluded, enrolled={"t": leave(view.enrolled["t"])})
    assert plan_topics(left).turn == (replace(gone, left=LeftAt(0, 0)),)
    assert plan_topics(replace(left, enrolled={"t": gone}, now=LeftAt(9, 90))).turn == ()


def test_topic_that_gave_way_does_not_return_by_itself() -> None:
    """At its old position it would copy what has come from its target since: somebody has to say where."""
    plan = plan_topics(given_way())
    assert (codes(plan), plan.turn, plan.enrol) == (["GAVE_WAY"], (), ())
    (refusal,) = plan.refused
    assert "flow back" in refusal.message
    assert [c.arguments for c in commands(refusal.resolve)] == [
        ["seed", action, FLOW, "--from", "latest", "--topic", "t", "--replace"]
        for action in ("plan", "apply")
    ]


def test_topic_that_gave_way_returns_once_every_partition_was_placed_since() -> None:
    """The mark goes with it."""
    view = given_way()
    for generations in ((8,), (8, 7), (6, 8)):
        assert codes(plan_topics(placed(view, *generations))) == ["GAVE_WAY"]
    (back,) = plan_topics(placed(view, 8, 8)).turn
    assert (back.active, back.gave_way) == (True, None)


def test_a_place_that_was_given_while_the_other_one_copied_counts_for_nothing() -> None:
    """More has come round since."""
    view = placed(given_way(loops={"t": Loop("ring", 1)}), 8, 8)
    (turned,) = plan_topics(replace(view, now=LeftAt(9, 90))).turn
    assert (turned.active, turned.gave_way) == (False, GaveWay(9, "ring"))


def promoted(**changes: Any) -> View:
    """Return a view in generation 8 of a topic whose copy was promoted in generation 7."""
    world = enrolled(now=2)
    world.enrolled["t"] = world.enrolled["t"].as_promoted("d1", LeftAt(7, 70), {0: 5}, {0: 3})
    world.ends = {"t": 5}
    return replace(world.view(), now=LeftAt(8, 80), **changes)


def test_a_topic_whose_copy_was_promoted_is_not_copied_and_waits_for_nobody() -> None:
    """However often the flow is started; that another flow copies it back is as it should be."""
    plan = plan_topics(promoted())
    assert (codes(plan), plan.turn, plan.enrol) == (["PROMOTED"], (), ())
    back = plan_topics(promoted(loops={"t": Loop("back", 1)}))
    assert (codes(back), back.turn) == (["TWO_WAY"], ())
    assert not [r for r in (*plan.refused, *back.refused) if r.blocks]


def test_a_topic_whose_copy_was_promoted_returns_once_it_was_placed() -> None:
    """The mark goes with it."""
    assert codes(plan_topics(placed(promoted(), 7))) == ["PROMOTED"]
    (back,) = plan_topics(placed(promoted(), 8, 8)).turn
    assert (back.active, back.promoted) == (True, None)


@pytest.mark.parametrize(("until_ms", "waits"), [(71, True), (69, False)])
def test_topic_that_left_the_filter_returns_unless_it_was_copied_back_meanwhile(
    until_ms: int, waits: bool
) -> None:
    """Also where its flow did not run then: the other one's state tells until when it has copied."""
    world = enrolled()
    world.ends = {"t": 5}
    view = replace(world.view(), former_loops={"t": Loop("back", until_ms)})
    assert nothing(plan_topics(view))
    left = view.enrolled["t"].leaving(LeftAt(7, 70))
    plan = plan_topics(replace(view, enrolled={"t": left}))
    (turned,) = plan.turn
    assert (codes(plan), turned.active) == ((["GAVE_WAY"], False) if waits else ([], True))
    assert turned.gave_way == (GaveWay(7, "back") if waits else None)


def test_topic_that_gave_way_before_it_had_copied_anything_returns_as_before() -> None:
    """Nothing was ever written to its target, so nothing has come back from there. A deleted one stops."""
    view = given_way()
    empty = replace(view, target_ends=dict.fromkeys(view.target_ends, 0))
    for harmless in (empty, replace(view, target={})):
        plan = plan_topics(harmless)
        assert ([e.active for e in plan.turn], codes(plan)) == ([True], [])


def test_new_topics_wait_while_another_flows_state_cannot_be_read() -> None:
    """It may be writing them; what is copied already goes on."""
    world = World({"t": 3, "u": 1})
    world.enrol("t", 2)
    world.target["t"] = 2
    plan = plan_topics(replace(world.view(), unreadable={"sick": "another version"}))
    assert [(r.object, r.code) for r in plan.refused] == [("u", "OTHER_FLOW_UNREADABLE")]
    assert plan.enrol == ("t",)
