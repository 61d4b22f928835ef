"""An approval is good for what was shown, and one time (G1, G8): repairs, seedings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceover.errors import NeedsOperator, Retriable
from onceover.lead.leader import Leader
from onceover.model import TopicPartition
from onceover.operate import repairapply
from onceover.operate.repair import RepairRequest
from onceover.planning.approval import Approval
from onceover.seeding import apply as seedapply
from onceover.seeding.apply import Seeded
from onceover.seeding.plan import Choice
from onceover.wiring.failovers.seeding import SeedingOptions
from tests.support.flows.operations import apply_repair, apply_seed, plan_repair, plan_seed
from tests.support.flows.replica import Replica, delete_topics
from tests.support.flows.scene import Capture, Scene, generation


def ignored(_: object) -> None:
    """Show a plan to nobody."""


class Repairs:
    """One repair of a partition, asked for by several people, as the DAG does it."""

    def __init__(self, replica: Replica, request: RepairRequest) -> None:
        self.flow = replica.flow.watch.flow
        self.request = request

    def ask(self) -> Approval:
        """Show the plan as it is now."""
        return Approval.of(plan_repair(self.flow, self.request).items)

    def apply(self, approval: Approval) -> repairapply.Repaired:
        return apply_repair(self.flow, self.request, ignored, approval)

    def refuse(self, approval: Approval, why: str) -> None:
        """See that it is not done, and that nobody is fenced by the try."""
        with pytest.raises(NeedsOperator, match="nothing was done") as refusal:
            self.apply(approval)
        assert refusal.value.code == "PLAN_CHANGED"
        assert why in str(refusal.value.seen)


def test_two_tabs_with_the_same_reseed_copy_once(replica: Replica, capsys: Capture) -> None:
    """Both were approved; the second one days later, or its task was cleared."""
    scene = Scene(replica)
    delete_topics(replica.source_client, [scene.topic])
    replica.source.create_topic(scene.topic, 1)
    scene.feed(4)
    replica.copy()
    repairs = Repairs(replica, RepairRequest("reseed", TopicPartition(scene.topic, 0)))
    one, two = repairs.ask(), repairs.ask()
    repairs.apply(one)
    repairs.refuse(two, "which somebody has changed since")
    assert replica.copy().records == 4
    before = generation(replica)
    repairs.refuse(two, "which somebody has changed since")
    done = repairs.apply(one)
    assert (done.earlier, done.generation, generation(replica)) == (True, None, before)
    assert replica.copy().records == 0
    scene.expect_clear(capsys)


@pytest.mark.soak
def test_a_skip_back_is_done_once(replica: Replica) -> None:
    """The flow has gone on since: the same offset would repeat other records."""
    scene = Scene(replica)
    repairs = Repairs(replica, RepairRequest("skip-to", TopicPartition(scene.topic, 0), 5))
    approval = repairs.ask()
    repairs.apply(approval)
    assert replica.copy().records == 5
    assert repairs.apply(approval).earlier
    scene.feed(3)
    assert replica.copy().records == 6


def test_an_interrupted_try_is_finished_under_its_approval(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has created the topic, whose leaders were late: that the plan lacks it now is right."""
    scene = Scene(replica)
    delete_topics(replica.target_client, [scene.topic])
    replica.copy()
    repairs = Repairs(replica, RepairRequest("reseed", TopicPartition(scene.topic, 0)))
    approval = repairs.ask()

    def late(*_: object) -> None:
        raise Retriable("no leaders yet")

    with monkeypatch.context() as patch:
        patch.setattr(repairapply, "await_leaders", late)
        with pytest.raises(Retriable):
            repairs.apply(approval)
    assert [change.what for change in plan_repair(repairs.flow, repairs.request).changes] == [
        "position",
        "flow",
    ]
    assert not repairs.apply(approval).earlier
    assert replica.copy().records == 10
    assert repairs.apply(approval).earlier
    scene.expect_clear(capsys)


def test_a_lost_answer_is_no_second_reseed(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress was committed, and the try ended as if it was not."""
    scene = Scene(replica)
    delete_topics(replica.target_client, [scene.topic])
    replica.copy()
    repairs = Repairs(replica, RepairRequest("reseed", TopicPartition(scene.topic, 0)))
    approval = repairs.ask()
    enrol = Leader.enrol

    def lost(self: Leader, *arguments: Any) -> None:
        enrol(self, *arguments)
        raise Retriable("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(Leader, "enrol", lost)
        with pytest.raises(Retriable):
            repairs.apply(approval)
    assert replica.copy().records == 10
    assert repairs.apply(approval).earlier
    assert replica.copy().records == 0


# ---- seedings


class Seedings:
    """A seeding with ``--replace``, as the DAG does it."""

    def __init__(self, replica: Replica, origin: str) -> None:
        self.flow = replica.flow.watch.flow
        self.origin = origin

    def ask(self) -> Approval:
        return Approval.of(plan_seed(self.flow, SeedingOptions(self.origin, Choice(replace=True))).items)

    def apply(self, approval: Approval | None = None, announce: Callable[[object], None] = ignored) -> Seeded:
        return apply_seed(self.flow, SeedingOptions(self.origin, Choice(replace=True)), announce, approval)


@pytest.mark.soak
def test_a_seeding_is_done_once(replica: Replica) -> None:
    """Everything is on the target a second time by then, and would be a third time."""
    Scene(replica)
    seedings = Seedings(replica, "earliest")
    one, two = seedings.ask(), seedings.ask()
    assert seedings.apply(one).written == 2
    assert replica.copy().records == 20
    with pytest.raises(NeedsOperator, match="nothing was done"):
        seedings.apply(two)
    assert seedings.apply(one).earlier
    assert replica.copy().records == 0


def test_an_interrupted_seeding_is_finished_under_its_approval(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction of two is written; the other positions were approved as well."""
    Scene(replica)
    seedings = Seedings(replica, "earliest")
    approval, enrol, calls = seedings.ask(), Leader.enrol, [0]

    def away(self: Leader, *arguments: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise Retriable("the target is away")
        enrol(self, *arguments)

    monkeypatch.setattr(seedapply, "_PARTITIONS_PER_TRANSACTION", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Leader, "enrol", away)
        with pytest.raises(Retriable):
            seedings.apply(approval)
    assert seedings.apply(approval).written == 1
    assert replica.copy().records == 20


def test_a_seeding_that_becomes_another_one_writes_nothing(replica: Replica, capsys: Capture) -> None:
    """On the command line, too: the copy went on past the offset while the plan was on the screen."""
    scene = Scene(replica)
    scene.feed(20)
    offsets = replica.flow.path.parent / "offsets.csv"
    offsets.write_text(f"topic,partition,offset\n{scene.topic},0,20\n")
    shown: list[object] = []

    def go_on(plan: object) -> None:
        shown.append(plan)
        if len(shown) == 1:
            assert replica.copy().records == 40

    with pytest.raises(NeedsOperator, match="running copy is fenced") as refusal:
        Seedings(replica, f"file:{offsets}").apply(announce=go_on)
    assert refusal.value.code == "PLAN_CHANGED"
    assert "(repeat), which was not shown" in str(refusal.value.seen)
    assert len(shown) == 1
    assert replica.partition_status(scene.topic)["position"] == 30
    assert replica.copy().records == 0
    scene.expect_clear(capsys)
