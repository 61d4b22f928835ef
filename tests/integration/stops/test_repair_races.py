"""A repair writes what it reads after it has fenced everybody, not what it read before (G1, G5, G7).

Whatever happens between the first plan and the fence is done where a person is shown that plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed

import pytest

from onceover.errors import NeedsOperator
from onceover.lead.leader import Leader
from onceover.model import TopicPartition
from onceover.operate.repair import Repair, RepairRequest
from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import Enrolment
from onceover.wiring.flows import identity, open_clusters
from tests.support.flows.operations import apply_repair
from tests.support.flows.replica import Replica, delete_topics
from tests.support.flows.scene import Capture, Scene
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0


def enrolment_of(replica: Replica, topic: str) -> Enrolment:
    """Return the topic's record in the flow's state."""
    _, target = open_clusters(replica.flow.watch.flow)
    with target:
        return target.retry(lambda: read_flow_state(target, replica.name)).enrolled[topic]


class Shown:
    """What a person is shown; something else happens at the first time."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.plans: list[Repair] = []
        self._meanwhile = meanwhile

    def __call__(self, plan: Repair) -> None:
        self.plans.append(plan)
        if len(self.plans) == 1:
            self._meanwhile()


def test_two_partitions_reseeded_at_once_both_stay_reseeded(replica: Replica, capsys: Capture) -> None:
    """The second one took back the first one's start, and with it what makes its old offset map void."""
    scene = Scene(replica, partitions=2)
    old = enrolment_of(replica, scene.topic)
    delete_topics(replica.source_client, [scene.topic])
    replica.source.create_topic(scene.topic, 2)
    scene.feed(4)
    replica.copy()
    flow, (one, two) = replica.flow.watch.flow, old.sources()
    other = RepairRequest("reseed", two)
    shown = Shown(lambda: apply_repair(flow, other))
    generation = apply_repair(flow, RepairRequest("reseed", one), shown).generation
    assert generation is not None
    new = enrolment_of(replica, scene.topic)
    assert new.source_id != old.source_id
    assert new.since == {two.partition: generation - 1, one.partition: generation}
    assert replica.copy().records == 8
    scene.expect_clear(capsys)


def test_a_skip_keeps_what_another_repair_has_enrolled(replica: Replica) -> None:
    """Its record still named the topic that is gone."""
    scene = Scene(replica, partitions=2)
    delete_topics(replica.source_client, [scene.topic])
    replica.source.create_topic(scene.topic, 2)
    scene.feed(4)
    flow, before = replica.flow.watch.flow, enrolment_of(replica, scene.topic)
    one, two = before.sources()
    shown = Shown(lambda: apply_repair(flow, RepairRequest("reseed", two)))
    apply_repair(flow, RepairRequest("skip-to", one, 4), shown)
    after = enrolment_of(replica, scene.topic)
    assert after.source_id != before.source_id
    # What the map says of either one speaks of the topic that is gone.
    assert set(after.since) == {one.partition, two.partition}


def test_a_partition_that_is_enrolled_meanwhile_is_neither_lost_nor_copied_twice(
    replica: Replica, capsys: Capture
) -> None:
    """A running copy takes it in after the repair was planned."""
    scene = Scene(replica, partitions=2)

    def take_in() -> None:
        with replica.running():
            replica.source.add_partitions(scene.topic, 3)
            replica.source.plain(scene.topic, 2, replica.source.records(5))
            wait_until(lambda: is_copied(replica, scene.topic, 2), _TIMEOUT_S, "the new partition is copied")

    apply_repair(
        replica.flow.watch.flow, RepairRequest("skip-to", TopicPartition(scene.topic, 0), 10), Shown(take_in)
    )
    assert sorted(enrolment_of(replica, scene.topic).start) == [0, 1, 2]
    assert replica.copy().records == 0
    assert len(replica.target_records(scene.topic, 2)) == 5
    scene.expect_clear(capsys)


def is_copied(replica: Replica, topic: str, partition: int) -> bool:
    entries = replica.flow.status()["partitions"]
    return any(
        (p["topic"], p["partition"], p["state"]) == (topic, partition, "caught_up") and p["position"]
        for p in entries
    )


def forget_partition(replica: Replica, topic: str) -> None:
    """Enrol the topic as if it had its first partition only; the other's progress stays."""
    old = enrolment_of(replica, topic)
    flow = replica.flow.watch.flow
    source, target = open_clusters(flow)
    with source, target:
        leader = Leader(identity(flow), source, target)
        leader.seize()
        leader.enrol([changed(old, start={0: old.start[0]})], {})
        leader.close()


def test_progress_that_is_there_is_never_written_anew(replica: Replica, capsys: Capture) -> None:
    """However a record came to lack a partition: what was copied is not copied again."""
    scene = Scene(replica, partitions=2)
    forget_partition(replica, scene.topic)
    assert replica.copy().records == 0
    assert sorted(enrolment_of(replica, scene.topic).start) == [0, 1]
    assert len(replica.target_records(scene.topic, 1)) == 10
    scene.expect_clear(capsys)


def test_a_skip_that_would_have_become_a_repeat_writes_nothing(replica: Replica, capsys: Capture) -> None:
    """The copy went on, past the offset, while the person read "skip"."""
    scene = Scene(replica)
    tp = TopicPartition(scene.topic, 0)
    scene.feed(20)

    def go_on() -> None:
        assert replica.copy().records == 40

    shown = Shown(go_on)
    with pytest.raises(NeedsOperator, match="running copy is fenced") as refusal:
        apply_repair(replica.flow.watch.flow, RepairRequest("skip-to", tp, 20), shown)
    assert refusal.value.code == "PLAN_CHANGED"
    assert "(repeat)" in str(refusal.value.seen) and "(skip)" in str(refusal.value.expected)
    assert replica.partition_status(scene.topic)["position"] == 30
    assert replica.copy().records == 0
    scene.expect_clear(capsys)
