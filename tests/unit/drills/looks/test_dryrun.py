"""A look before a failover: what is lost, what it means for groups, and that nothing unknown is fine."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.acls.kept import AclPlan
from onceover.drills.looks.clients import ClientsSeen, Consumer, Producer
from onceover.drills.looks.dryrun import DryRun, TopicLoss, costs_of, losses_of
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.groups.decide import Allowed
from onceover.groups.plan import plan_groups
from onceover.kafka.codes import KafkaCode
from onceover.model import TopicPartition
from onceover.planning.plan import Refusal
from onceover.topics.plan import TopicPlan
from onceover.topics.sync import SyncPlan
from tests.unit.groups.groupworld import World

NOT_AUTHORIZED = KafkaCode.NOT_AUTHORIZED
CLEAN: dict[str, Any] = {
    "state": "caught_up",
    "needs": [],
    "partitions": [],
    "verified": None,
    "error": None,
    "source": {"error": None},
    "target": {"error": None},
}


def partition(
    topic: str,
    lag: int | None,
    oldest_s: float | None,
    open_offsets: int | None = 0,
    oldest_open_s: float | None = None,
) -> dict[str, Any]:
    return {
        "topic": topic,
        "lag_offsets": lag,
        "oldest_missing_s": oldest_s,
        "open_offsets": open_offsets,
        "oldest_open_s": oldest_open_s,
    }


def test_what_is_on_the_source_alone_is_lost() -> None:
    """By topic, with the oldest record; a topic of which nothing is missing is none."""
    found = losses_of([partition("a", 3, 2.0), partition("a", 4, 9.0, 1), partition("b", 0, 0.0)])
    assert found == [TopicLoss("a", 7, 9.0, 1)]


def test_a_loss_that_nobody_can_know_is_not_none() -> None:
    """One partition of a topic that nobody can tell makes the topic's unknown; what is open is lost, too."""
    dark = partition("a", None, None, None)
    assert losses_of([partition("a", 3, 2.0, 4), dark]) == [TopicLoss("a", None, None, None)]
    assert losses_of([partition("a", 0, 0.0, 5)]) == [TopicLoss("a", 0, None, 5)]


def test_what_waits_for_a_transaction_is_as_old_as_its_first_record() -> None:
    """Where nothing else is missing: what can be read comes before it in the log."""
    waiting, both = partition("a", 0, 0.0, 5, 7.0), partition("a", 3, 2.0, 4, 1.0)
    assert losses_of([waiting, both]) == [TopicLoss("a", 3, 7.0, 9)]
    assert losses_of([both]) == [TopicLoss("a", 3, 2.0, 4)]


AWAY = {"error": {"message": "away"}}


@pytest.mark.parametrize(
    "status",
    [None, {**CLEAN, "target": AWAY}, {**CLEAN, "source": AWAY}, {**CLEAN, **AWAY}],
    ids=["not read", "target away", "never started and source away", "bad file"],
)
def test_a_cluster_that_does_not_answer_leaves_losses_unknown(status: dict[str, Any] | None) -> None:
    """Both tell which partitions there are: none of them is not nothing lost."""
    found = DryRun(flow="f", checked_at_ms=0, status=status)
    assert found.losses is None
    assert found.document()["losses"] is None
    assert "lost: not known" in found.describe()


def test_groups_that_go_on_where_they_were_cost_nothing() -> None:
    """One that would skip is named with how much; so is one that is left alone, and why."""
    world = World(here={"fine": 4, "foreign": 7, "busy": 4}, there={"foreign": 101}, members={"busy"})
    costs = {cost.group: cost for cost in costs_of(plan_groups(world.read(), Allowed()))}
    assert "fine" not in costs
    assert costs["foreign"].skips == 6
    assert list(costs["busy"].left) == ["orders:0"]


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (Retriable("away"), 5),
        (UsageError("no such client"), 2),
        (UsageError("no right", code=NOT_AUTHORIZED), 3),
        (NeedsOperator("another cluster"), 3),
    ],
)
def test_what_could_not_be_looked_at_is_not_in_order(problem: OnceoverError, code: int) -> None:
    """Also where all the rest is."""
    found = DryRun(flow="f", checked_at_ms=0, status=CLEAN, problems={"clients": problem})
    assert found.exit_code == code
    assert found.document()["ready"] is False
    assert f"not looked at: clients: {problem}" in found.describe()
    assert DryRun(flow="f", checked_at_ms=0, status=CLEAN).document()["ready"] is True


def test_a_right_that_is_missing_is_for_a_person_whichever_part_it_is_missing_for() -> None:
    """The status alone calls it a client that is not in order; plans have it among what they refuse."""
    error = UsageError("READ is missing", code=NOT_AUTHORIZED, resolve="grant it")
    need = {"code": NOT_AUTHORIZED, "message": "DESCRIBE is missing", "resolve": "grant it", "exit": 2}
    seen = ClientsSeen("east", unseen=(error,))
    by_status = DryRun(flow="f", checked_at_ms=0, status={**CLEAN, "needs": [need]})
    by_clients = DryRun(flow="f", checked_at_ms=0, status=CLEAN, clients=seen)
    by_part = DryRun(flow="f", checked_at_ms=0, status=CLEAN, problems={"groups": error})
    assert [each.exit_code for each in (by_status, by_clients, by_part)] == [3, 3, 3]
    assert [each["exit"] for each in (*by_status.needs, *by_part.document()["problems"].values())] == [3, 3]


def test_clients_of_whom_some_may_be_unseen_are_not_in_order() -> None:
    """A broker that is away knows of others."""
    seen = ClientsSeen("east", unseen=(Retriable("broker 3 is away"),))
    found = DryRun(flow="f", checked_at_ms=0, status=CLEAN, clients=seen)
    assert (found.exit_code, found.document()["ready"]) == (5, False)


def test_what_waits_for_somebody_is_said_once_with_its_way_out() -> None:
    """As the status has it."""
    need = {"code": "LOST", "message": "two are missing", "resolve": "decide", "exit": 3}
    found = DryRun(flow="f", checked_at_ms=0, status={**CLEAN, "needs": [need, need]})
    assert (found.exit_code, found.describe().count("first: two are missing; decide")) == (3, 1)


@pytest.mark.parametrize(
    ("world", "code", "way_out"),
    [
        (World(here={"g": 4}, there={"g": 190}), "AHEAD", "--allow-rewind"),
        (World(here={"g": 4}, members={"g"}), "HAS_MEMBERS", "stop its consumers there"),
        (World(here={}, types={"g": "share"}), "NOT_MOVED", "groups.exclude"),
        (World(here={"g": 4}, broken={"g": Retriable("its coordinator is away")}), "UNKNOWN", "run again"),
    ],
    ids=["ahead", "members", "share group without members", "not known"],
)
def test_a_group_that_a_switchover_would_not_leave_alone_is_said_before_it(
    world: World, code: str, way_out: str
) -> None:
    """It refuses each one that is not put in place; the look says so, and what to do."""
    plan = plan_groups(world.read(), Allowed())
    found = DryRun(flow="f", checked_at_ms=0, status=CLEAN, groups=plan)
    assert found.exit_code == (5 if code == "UNKNOWN" else 3)
    assert [(need["code"], need["exit"]) for need in found.needs] == [(code, found.exit_code)]
    (first,) = (line for line in found.describe().splitlines() if line.startswith("first: "))
    assert way_out in first


def test_acls_that_are_not_followed_are_said_and_hold_no_switchover_up() -> None:
    """The look ends with 3 for them, and a person is told why; topics are copied all the same."""
    topics = TopicPlan(operation="topics", flow="f", steps=(), changes=())
    withheld = Refusal("orders", "ACL_WITHHELD", "a DENY limits it", "resolve that DENY", blocks=False)
    found = DryRun(
        flow="f",
        checked_at_ms=0,
        status=CLEAN,
        drift=SyncPlan.of(topics, AclPlan(refused=(withheld,))),
    )
    assert (found.exit_code, [(need["code"], need["blocks"]) for need in found.needs]) == (
        3,
        [("ACL_WITHHELD", False)],
    )
    assert "first: orders: a DENY limits it; resolve that DENY" in found.describe()


def test_what_was_switched_over_is_not_ready_to_be_once_more() -> None:
    """Nothing waits for anybody, and nothing is left to do."""
    told = DryRun(flow="f", checked_at_ms=0, status={**CLEAN, "state": "promoted"}).describe()
    assert "nothing is left to fail over" in told
    assert "nothing is left" not in DryRun(flow="f", checked_at_ms=0, status=CLEAN).describe()


def test_who_uses_the_source_is_named_with_host_and_transaction() -> None:
    """A person has to find them."""
    seen = ClientsSeen(
        "east",
        (Consumer("g", "app", "10.0.0.7", ("a", "b")),),
        (Producer(7, "tx", ("a",), 12, (TopicPartition("a", 0),)), Producer(8, None, ("b",), None, ())),
        (Retriable("broker 3 is away"),),
    )
    text = "\n".join(seen.describe())
    assert "group g: app at 10.0.0.7 reads a, b" in text
    assert "tx has written to a, with a transaction open in a:0" in text
    assert "producer id 8 has written to b" in text
    assert "not all of them are known: broker 3 is away" in text
    assert ClientsSeen("east").describe() == ["  nobody that the brokers know of"]


def test_a_detail_that_cannot_be_read_hides_no_loss_that_is_known() -> None:
    """Such as the count of dead letters; and a refused topic beside its copy lacks nothing more."""
    refused = {**partition("a", None, None), "partitions": 0}
    status = {**CLEAN, "target": AWAY, "partitions": [partition("a", 7, 2.0), refused]}
    assert DryRun(flow="f", checked_at_ms=0, status=status).losses == [TopicLoss("a", 7, 2.0, 0)]
