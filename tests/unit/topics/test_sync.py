"""What ``onceover topics`` prints and how it ends, for every kind of plan."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from onceover.acls.kept import AclPlan
from onceover.cli import main as command_line
from onceover.errors import NeedsOperator
from onceover.kafka.admin.acls import Acl
from onceover.kafka.admin.topics import TopicSpec
from onceover.planning.approval import Approval
from onceover.planning.plan import Refusal
from onceover.state.records.enrolment import LeftAt
from onceover.topics.changes import ConfigDiff, CreateTopic, SetConfig, TopicStep
from onceover.topics.codes import TopicCode
from onceover.topics.namingpolicy import NamingPolicy
from onceover.topics.plan import Loop, OtherWriter, TopicPlan, View, plan_topics
from onceover.topics.scope import Rules
from onceover.topics.sync import AppliedSync, SyncPlan, in_flow, not_shown_yet
from tests.unit.topics.topicworld import World, leave, topic

CREATE = CreateTopic("orders", TopicSpec("orders", 3))
SHORTER = SetConfig("orders", "orders", ConfigDiff("retention.ms", "9000", "1000"))
READ = Acl("LITERAL", "orders", "User:ann", "*", "READ", "ALLOW")
BLOCKED = Refusal("orders", "TARGET_NOT_EMPTY", "it holds records", "delete it")
REMARK = Refusal("orders", "KEY_UNKNOWN", "no such key", "nothing", blocks=False)
NO_ACLS = Refusal("acls", "NO_AUTHORIZER", "no authorizer", "switch it on", blocks=False)


def plan(
    *steps: TopicStep,
    refused: tuple[Refusal, ...] = (),
    acls: AclPlan | None = None,
    unavailable: tuple[Refusal, ...] = (),
) -> SyncPlan:
    changes = tuple(step.change for step in steps)
    topics = TopicPlan(operation="topics", flow="f", steps=steps, changes=changes, refused=refused)
    return SyncPlan.of(topics, acls or AclPlan(), unavailable)


def test_topics_and_acls_are_one_plan_in_the_order_in_which_they_are_done() -> None:
    """One id, one list of changes, one list of what is refused."""
    both = plan(CREATE, refused=(REMARK,), acls=AclPlan(create=(READ,)), unavailable=(NO_ACLS,))
    document = both.document()
    assert [change["what"] for change in document["changes"]] == ["create topic", "create acl"]
    assert [refusal["code"] for refusal in document["refused"]] == ["KEY_UNKNOWN", "NO_AUTHORIZER"]
    assert set(document) >= {"operation", "flow", "computed_at_ms", "plan_id", "changes", "refused"}
    assert both.plan_id == plan(CREATE, acls=AclPlan(create=(READ,))).plan_id
    assert both.plan_id != plan(CREATE).plan_id


def test_what_may_cost_records_is_approved_from_value_to_value() -> None:
    """An approval holds although a harmless change comes or goes, and not when a risky one does."""
    approval = Approval.of(plan(CREATE, SHORTER).items)
    assert [str(item) for item in approval.items.values()] == [
        "set config orders retention.ms -> 1000 (destructive)"
    ]
    assert plan(CREATE).items == ()
    approval.check(plan(SHORTER).items, "f")
    for other in (ConfigDiff("retention.ms", "9000", "10"), ConfigDiff("retention.ms", "5000", "1000")):
        with pytest.raises(NeedsOperator, match="something else by now"):
            approval.check(plan(SetConfig("orders", "orders", other)).items, "f")


def test_what_the_broker_does_not_show_yet_is_waited_for_and_not_done_again() -> None:
    """Changes that were made, and created topics without leaders; not what was refused or has come since."""
    before = plan(CREATE, SHORTER)
    leaderless = Refusal("orders", TopicCode.NO_LEADER, "no leader", "wait")
    assert not_shown_yet(before, [CREATE.change, SHORTER.change], plan()) == []
    assert not_shown_yet(before, [SHORTER.change], plan(SHORTER)) == [SHORTER.change.object]
    assert not_shown_yet(before, [CREATE.change], plan(SHORTER)) == []
    assert not_shown_yet(before, [CREATE.change], plan(refused=(leaderless,))) == ["orders"]
    assert not_shown_yet(plan(), [], plan(refused=(leaderless,))) == []


@pytest.mark.parametrize(
    ("planned", "code"),
    [
        (plan(), 0),
        (plan(CREATE), 0),
        (plan(refused=(REMARK,)), 0),
        (plan(refused=(BLOCKED,)), 3),
        (plan(unavailable=(NO_ACLS,)), 3),
        (plan(acls=AclPlan(refused=(NO_ACLS,))), 3),
    ],
)
def test_plan_ends_with_3_when_somebody_has_to_decide(planned: SyncPlan, code: int) -> None:
    """A remark about a key does not: there is nothing to decide."""
    assert planned.exit_code == code


@pytest.mark.parametrize(
    ("left", "refused", "code"),
    [
        (plan(), [], 0),
        (plan(CREATE), [], 5),
        (plan(CREATE), [BLOCKED], 3),
        (plan(refused=(BLOCKED,)), [], 3),
    ],
)
def test_apply_ends_with_0_only_when_nothing_is_left(
    left: SyncPlan, refused: list[Refusal], code: int
) -> None:
    """5: something changes all the time, run again; 3: a cluster refused, or a topic is."""
    applied = AppliedSync(plan(CREATE), left, refused, changes=1)
    assert applied.exit_code == code
    document = applied.document()
    assert (document["applied"], document["changes_made"]) == (True, 1)
    assert len(document["left"]) == len(left.changes)


def test_what_is_refused_in_the_plan_and_by_the_cluster_is_told_once() -> None:
    """The same refusal twice helps nobody."""
    assert AppliedSync(plan(), plan(refused=(BLOCKED,)), [BLOCKED]).document()["refused"] == [
        BLOCKED.document()
    ]


def test_the_text_says_what_is_left() -> None:
    """For people: what was done, what was not, what to do."""
    text = AppliedSync(plan(CREATE), plan(SHORTER), [BLOCKED], changes=1).describe()
    assert "changed: 1" in text
    assert "not done: orders: it holds records; delete it" in text
    assert "retention.ms: 9000 -> 1000" in text
    assert "nothing is left to do" in AppliedSync(plan(), plan()).describe()


def test_only_topics_that_are_copied_get_acls() -> None:
    """Neither what is out of scope nor what is refused; by the name on the target."""
    rules = Rules(("orders.*",), ("orders.private",), NamingPolicy("prefix", "east", "west"))
    source = {
        name: topic(name, 1, UUID(int=1)) for name in ("orders", "orders.private", "orders.full", "other")
    }
    view = View(flow="f", rules=rules, source=source, target={})
    refused = (
        Refusal("orders.full", "TARGET_NOT_EMPTY", "", ""),
        Refusal("orders", "X", "", "", blocks=False),
    )
    topics = TopicPlan(operation="topics", flow="f", refused=refused)
    assert in_flow(view, topics) == {"orders": "east.orders"}


@pytest.mark.parametrize("loops", [{}, {"t": Loop("back", 1)}], ids=["promoted", "copied back"])
def test_a_copy_that_clients_write_to_gets_no_acls_and_loses_none(loops: dict[str, Loop]) -> None:
    """As in a running flow: what keeps writers off the old cluster would keep them off the new one."""
    world = World({"t": 1, "u": 1})
    world.apply()
    for name in world.source:
        world.enrol(name)
    world.enrolled["t"] = world.enrolled["t"].as_promoted("d1", LeftAt(7, 70), {0: 5}, {0: 3})
    world.ends = {"t": 5, "u": 5}
    view = replace(world.view(), loops=loops)
    assert in_flow(view, plan_topics(view)) == {"u": "u"}


def test_a_topic_that_returns_to_the_filter_gets_its_acls_again() -> None:
    """And one that is to leave to another flow none."""
    world = World({"t": 1, "u": 1})
    world.apply()
    for name in world.source:
        world.enrol(name)
    world.enrolled["t"] = leave(world.enrolled["t"])
    world.elsewhere = {"u": OtherWriter("earlier", 1)}
    view = world.view()
    assert in_flow(view, plan_topics(view)) == {"t": "t"}


@pytest.mark.parametrize("arguments", [["topics"], ["topics", "plan"], ["topics", "plan", "no-such-flow"]])
def test_bad_usage_is_one_message_and_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is opened."""
    assert command_line.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("error:") == 1


@pytest.mark.parametrize("action", ["plan", "apply"])
def test_help_shows_examples(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A person copies a line from it."""
    assert command_line.main(["topics", action, "--help"]) == 0
    assert "onceover topics apply flights-dr" in capsys.readouterr().out
