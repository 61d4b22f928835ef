"""Applying topic plans: idempotent, interruptible anywhere, and never beyond what the flow looks after."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import nullcontext
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.admin.topics import Failures, TopicSpec
from onceover.state.records.managed import Managed
from onceover.topics import making
from onceover.topics.apply import TopicApply
from onceover.topics.configs import OF_EVERY_COPY, ONLY_WIDENED, not_copied
from onceover.topics.namingpolicy import IDENTITY, PREFIX
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.topics.topicworld import Killed, World

KEYS = ("retention.ms", "max.message.bytes", "compression.type", "min.insync.replicas", "vendor.thing")
configs = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["1", "2", "-1"]))
names = st.sampled_from(["a", "b", "c", "x.d", "west.e"])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Return two clusters with topics on both sides, some of them managed, some enrolled."""
    source = draw(st.dictionaries(names, st.integers(1, 3)))
    naming = draw(st.sampled_from([IDENTITY, PREFIX]))
    prefix = "east." if naming == PREFIX else ""
    existing = draw(st.sets(names))
    world = World(
        source,
        {prefix + name: draw(st.integers(1, 3)) for name in sorted(existing)},
        config={name: draw(configs) for name in source},
        target_config={prefix + name: draw(configs) for name in sorted(existing)},
        ends={prefix + name: draw(st.integers(0, 1)) for name in sorted(existing)},
        unknown=draw(st.sampled_from([frozenset(), frozenset({"vendor.thing"})])),
        defaults={"max.message.bytes": draw(st.sampled_from(["0", "1", "2"]))},
        naming=naming,
        adopt=draw(st.booleans()),
    )
    for name in sorted(existing):
        if draw(st.booleans()):
            world.manage(prefix + name, *draw(st.sets(st.sampled_from(KEYS))))
        if name in source and draw(st.booleans()):
            world.enrol(name, target=prefix + name)
    return world


@given(worlds())
def test_applied_twice_changes_nothing_the_second_time(world: World) -> None:
    """Also where the target refuses a key: that is remembered."""
    world.apply()
    assert world.plan().steps == ()
    before = copy.deepcopy(world)
    world.apply()
    assert world == before


@given(worlds(), st.integers(0, 12))
def test_killed_anywhere_and_run_again_ends_in_the_same_state(world: World, effects: int) -> None:
    """kill -9 after any effect on the target."""
    undisturbed = copy.deepcopy(world)
    undisturbed.apply()
    world.kill_after = effects
    try:
        world.apply()
    except Killed:
        world.kill_after = None
        world.apply()
    world.kill_after = None
    assert (world.target, world.target_config) == (undisturbed.target, undisturbed.target_config)
    assert world.managed == undisturbed.managed


@given(worlds())
def test_what_is_not_managed_is_never_changed_by_a_running_flow(world: World) -> None:
    """Only ``topics apply`` takes such a topic over."""
    world.adopt = False
    before = copy.deepcopy(world)
    world.apply()
    for name, config in before.target_config.items():
        if name not in before.managed:
            assert world.target_config[name] == config
            assert world.target[name] == before.target[name]
            assert name not in world.managed


@given(worlds())
def test_keys_that_are_never_copied_and_keys_of_others_stay(world: World) -> None:
    """What the operator has set on the target beside the source's settings is left alone."""
    before = copy.deepcopy(world)
    world.apply()
    for name, config in before.target_config.items():
        source = name.removeprefix("east.") if world.naming == PREFIX else name
        wanted = world.config.get(source, {})
        ours = before.managed.get(name, Managed()).keys
        for key, value in config.items():
            if not_copied(key) or (key not in wanted and key not in ours):
                assert world.target_config[name].get(key) == value


@given(worlds())
def test_managed_copies_have_what_their_source_has(world: World) -> None:
    """Everything that is copied and that the target takes."""
    world.apply()
    for decision in world.view().decisions():
        name = decision.target_topic
        if not decision.inside or name not in world.target or name not in world.managed:
            continue
        if world.ends.get(name) and decision.topic not in {e.source for e in world.enrolled.values()}:
            continue  # refused: its records are not ours
        if world.target[name] > world.source[decision.topic] and name not in world.enrolled:
            continue  # refused: it has too many partitions
        for key, value in world.config.get(decision.topic, {}).items():
            if key in ONLY_WIDENED:
                assert held(world, name, key) >= int(value)
            elif not_copied(key) is None and key not in world.unknown:
                assert world.target_config[name][key] == value


def held(world: World, name: str, key: str) -> int:
    """Return which limit a target topic has."""
    return int(world.target_config.get(name, {}).get(key, world.defaults[key]))


@given(worlds())
def test_limits_of_copies_are_never_narrowed(world: World) -> None:
    """Neither by a lower one of the source nor by a default; a new copy has the default at least."""
    key = "max.message.bytes"
    before = copy.deepcopy(world)
    world.apply()
    for name in world.target:
        assert held(world, name, key) >= held(before, name, key)


def test_removed_override_is_removed() -> None:
    """The broker's default comes back; only for a key that the flow has set."""
    world = World({"t": 1}, config={"t": {"retention.ms": "5"}})
    world.apply()
    world.target_config["t"]["max.message.bytes"] = "9"
    world.config["t"] = {}
    (step,) = world.plan().steps
    assert (step.change.what, step.change.from_, step.change.to) == ("remove config", "5", None)
    world.apply()
    assert world.target_config["t"] == {"max.message.bytes": "9", **OF_EVERY_COPY}
    assert world.managed["t"].keys == OF_EVERY_COPY.keys()


def test_key_that_the_target_refuses_does_not_block_the_topic() -> None:
    """It is reported, not tried again, and tried again when its value changes."""
    world = World(
        {"t": 1},
        config={"t": {"vendor.thing": "1", "retention.ms": "5"}},
        unknown=frozenset({"vendor.thing"}),
    )
    work = world.apply()
    assert work.refused == []
    assert world.target_config["t"] == {"retention.ms": "5", **OF_EVERY_COPY}
    plan = world.plan()
    assert [(r.code, r.blocks) for r in plan.refused] == [("KEY_REFUSED", False)] and not plan.steps
    world.unknown = frozenset()
    world.config["t"]["vendor.thing"] = "2"
    world.apply()
    assert world.target_config["t"]["vendor.thing"] == "2"
    assert world.managed["t"].refused == {}


def test_key_that_a_policy_of_the_target_refuses_blocks_neither_the_topic_nor_the_others() -> None:
    """Its operator has a limit, say; how records keep their timestamps is never left out."""
    config = {"retention.ms": "5", "compression.type": "zstd"}
    world = World({"t": 1}, config={"t": dict(config)}, policy=frozenset({"retention.ms"}))
    assert world.apply().refused == []
    assert world.target_config["t"] == {"compression.type": "zstd", **OF_EVERY_COPY}
    world.config["t"] |= {"retention.ms": "6", "compression.type": "gzip"}
    assert world.apply().refused == []
    assert world.target_config["t"] == {"compression.type": "gzip", **OF_EVERY_COPY}
    plan = world.plan()
    assert [(r.code, r.blocks) for r in plan.refused] == [("KEY_REFUSED", False)] and not plan.steps


@pytest.mark.parametrize(
    ("forbidden", "policy"),
    [(frozenset({"t"}), frozenset()), (frozenset(), frozenset(OF_EVERY_COPY))],
    ids=["name", "key"],
)
def test_topic_that_a_policy_refuses_whatever_its_configuration_is_refused_and_not_ours(
    forbidden: frozenset[str], policy: frozenset[str]
) -> None:
    """And is made as it should be once the policy lets it."""
    config = {"retention.ms": "5"}
    world = World({"t": 1}, config={"t": config}, forbidden=forbidden, policy=policy)
    assert [(r.object, r.code, r.blocks) for r in world.apply().refused] == [("t", "POLICY_VIOLATION", True)]
    assert world.target == {} and world.managed == {}
    world.forbidden = world.policy = frozenset()
    world.apply()
    assert world.target_config["t"] == {**config, **OF_EVERY_COPY}


def test_topics_whose_names_a_policy_forbids_are_not_asked_about_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are refused at each discovery, in which a run of thousands would show no sign of life."""
    many, asked = [f"t{number}" for number in range(50)], list[bool]()
    world = World(dict.fromkeys(many, 1), forbidden=frozenset(many))
    create = world.try_create

    def counted(specs: Iterable[TopicSpec], *, validate_only: bool = False) -> Failures:
        asked.append(validate_only)
        return create(specs, validate_only=validate_only)

    monkeypatch.setattr(world, "try_create", counted)
    assert {r.code for r in world.apply().refused} == {"POLICY_VIOLATION"}
    assert asked == [False, True]


@pytest.mark.parametrize("refuses", ["unknown", "policy"])
def test_what_a_policy_demands_of_a_topic_is_set_on_it_without_what_the_target_refuses(refuses: str) -> None:
    """Tried alone, each key would be refused for the one that a policy wants to see."""
    config = {"retention.ms": "5", "compression.type": "zstd", "vendor.thing": "1"}
    refused = frozenset({"vendor.thing"})
    world = World({"t": 1}, config={"t": config}, demanded=frozenset({"retention.ms"}))
    setattr(world, refuses, refused)
    assert world.apply().refused == []
    assert world.target_config["t"] == {"retention.ms": "5", "compression.type": "zstd", **OF_EVERY_COPY}
    assert world.managed["t"].refused == {"vendor.thing": "1"}


def test_topic_that_lacks_what_a_policy_demands_is_refused_with_its_words() -> None:
    """Whatever else of it is left out."""
    config = {"compression.type": "zstd", "vendor.thing": "1"}
    demanded, unknown = frozenset({"retention.ms"}), frozenset({"vendor.thing"})
    world = World({"t": 1}, config={"t": config}, demanded=demanded, unknown=unknown)
    assert [(r.code, r.message) for r in world.apply().refused] == [
        ("POLICY_VIOLATION", "set ['retention.ms']")
    ]
    assert world.target == {} and world.managed == {}


@pytest.mark.parametrize("error", [UsageError("no right"), NeedsOperator("policy", code="POLICY_VIOLATION")])
@pytest.mark.parametrize("known", [None, 1, 2], ids=["new", "grows", "enrolled"])
def test_a_topic_that_goes_on_overwriting_timestamps_is_not_taken_in(
    error: OnceoverError, known: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The principal may not change it, or a policy refuses that; one that is copied already goes on."""
    world = World({"t": 2}, {"t": 2}, restamped=frozenset({"t"}), sync_configs=False)
    world.manage("t")
    if known is not None:
        world.enrol("t", known)
    monkeypatch.setattr(world, "alter_configs", lambda changes: dict.fromkeys(changes, error))
    assert [(r.object, r.blocks) for r in world.apply().refused] == [("t", known is None)]
    assert world.plan().steps != ()


def test_keys_that_are_tried_one_by_one_are_tried_until_none_is_taken_any_more() -> None:
    """The target takes a lower upper limit once it has the lower lower one."""
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    world = World(
        {"t": 1},
        {"t": 1},
        {"t": {low: "10", high: "20", "vendor.thing": "1"}},
        {"t": {low: "30", high: "40"}},
        unknown=frozenset({"vendor.thing"}),
    )
    world.enrol("t")
    world.manage("t", low, high)
    world.apply()
    assert world.target_config["t"] == {low: "10", high: "20"}
    assert world.managed["t"].refused == {"vendor.thing": "1"}


@pytest.mark.parametrize("code", ["TOPIC_MISSING", "NOT_AUTHORIZED"])
def test_what_is_refused_for_another_reason_than_its_value_is_tried_again(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept as refused, it would be left out of the copy that is made anew: its retention, say."""
    world = World({"t": 1}, {"t": 1}, {"t": {"retention.ms": "-1", "vendor.thing": "1"}})
    world.enrol("t")
    world.manage("t")
    answers = (NeedsOperator("no", code=each) for each in ("INVALID_CONFIG", code, code))
    monkeypatch.setattr(world, "alter_configs", lambda changes: dict.fromkeys(changes, next(answers)))
    work = world.apply()
    assert world.managed["t"].refused == {}
    told = [] if code == "TOPIC_MISSING" else [(code, False)] * 2
    assert [(r.code, r.blocks) for r in work.refused] == told


def test_key_that_the_target_does_not_know_is_not_sent() -> None:
    """Where the target tells its keys, nothing has to be tried."""
    world = World({"t": 1}, config={"t": {"vendor.thing": "1"}}, keys=frozenset({"retention.ms"}))
    plan = world.plan()
    assert [r.code for r in plan.refused] == ["KEY_UNKNOWN"]
    assert plan.changes[0].to == "1 partitions, message.timestamp.type=CreateTime"


def test_difference_of_a_topic_that_is_not_managed_is_shown() -> None:
    """With the command that would set it; adopting makes it so."""
    world = World({"t": 1}, {"t": 1}, {"t": {"retention.ms": "5"}}, {"t": {"retention.ms": "9"}})
    plan = world.plan()
    assert [(r.code, r.blocks) for r in plan.refused] == [("NOT_MANAGED", False)]
    assert "retention.ms" in plan.refused[0].message and "topics apply" in plan.refused[0].resolve
    world.adopt = True
    assert [c.what for c in world.plan().changes] == ["adopt topic", "set config"]
    world.apply()
    assert world.target_config["t"] == {"retention.ms": "5"}
    assert not world.plan().steps


def test_topic_that_somebody_else_created_meanwhile_is_not_ours() -> None:
    """Between the plan and the request."""
    world = World({"t": 1}, config={"t": {"retention.ms": "5"}})
    plan = world.plan()
    world.target["t"] = 1
    world.target_config["t"] = {}
    TopicApply(world, world, world.managed).run(plan)
    assert world.managed == {} and world.target_config["t"] == {}


def test_whoever_goes_on_to_write_looks_at_a_topic_that_somebody_else_created_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A seeding, a repair: it may restamp what is written, or have other partitions."""
    world, journal = World({"t": 1}), mock.Mock()
    plan = world.plan()
    monkeypatch.setattr(
        making, "topic_apply", lambda *_: nullcontext(TopicApply(world, world, world.managed, journal.done))
    )
    world.target["t"] = 1
    with pytest.raises(Retriable, match="somebody else has made t since") as caught:
        making.make_targets(FakeCluster("west"), "f", plan, journal)
    assert caught.value.code == "TOPIC_EXISTS"
    making.make_targets(FakeCluster("west"), "f", world.plan(), journal)


@pytest.mark.parametrize(
    ("key", "old", "new", "risk"),
    [
        ("delete.retention.ms", "10", "5", "destructive"),
        ("delete.retention.ms", "5", "10", "none"),
        ("delete.retention.ms", None, "86400000", "none"),
        ("delete.retention.ms", None, "5", "destructive"),
        ("min.compaction.lag.ms", "5", None, "destructive"),
        ("min.compaction.lag.ms", None, "5", "none"),
        ("max.compaction.lag.ms", None, "5", "destructive"),
        ("retention.ms", "10", "5", "destructive"),
        ("retention.ms", "-1", "5", "destructive"),
        ("retention.ms", None, "5", "destructive"),
        ("retention.ms", "5", "10", "none"),
        ("retention.ms", "5", "-1", "none"),
        ("cleanup.policy", "delete", "compact", "destructive"),
        ("compression.type", "gzip", "zstd", "none"),
    ],
)
def test_change_that_lets_the_target_delete_records_says_so(
    key: str, old: str | None, new: str, risk: str
) -> None:
    """A person approves those."""
    world = World({"t": 1}, {"t": 1}, {"t": {key: new}}, {"t": {} if old is None else {key: old}})
    world.enrol("t")
    world.manage("t", key)
    (change,) = world.plan().changes
    assert change.risk == risk


@pytest.mark.parametrize(
    ("key", "default", "old", "new", "risk"),
    [
        ("delete.retention.ms", "604800000", None, "86400000", "destructive"),
        ("delete.retention.ms", "5", None, "10", "none"),
        ("min.compaction.lag.ms", "3600000", None, "5", "destructive"),
        ("min.compaction.lag.ms", "3600000", "5", None, "none"),
        ("max.compaction.lag.ms", "10", "20", None, "destructive"),
    ],
)
def test_what_the_targets_brokers_have_by_default_decides_what_a_change_takes(
    key: str, default: str, old: str | None, new: str | None, risk: str
) -> None:
    """Not what Kafka ships: tombstones would go before slow readers have seen them."""
    configs = [{} if value is None else {key: value} for value in (new, old)]
    world = World({"t": 1}, {"t": 1}, {"t": configs[0]}, {"t": configs[1]}, defaults={key: default})
    world.enrol("t")
    world.manage("t", key)
    (change,) = world.plan().changes
    assert change.risk == risk


def test_plan_is_the_same_whatever_order_the_clusters_answer_in() -> None:
    """And has the same id."""
    one = World({"a": 1, "b": 2, "c": 3}, config={"a": {"retention.ms": "1", "cleanup.policy": "compact"}})
    other = World({"c": 3, "b": 2, "a": 1}, config={"a": {"cleanup.policy": "compact", "retention.ms": "1"}})
    assert one.plan() == other.plan()
    assert one.plan().plan_id == other.plan().plan_id
