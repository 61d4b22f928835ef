"""A repair that was killed behind its commit is done: the next try under the same approval says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from onceover.errors import UsageError
from onceover.lead.leader import FlowIdentity
from onceover.model import TopicPartition
from onceover.operate.repair import Repair, plan_skip
from onceover.operate.repairapply import Repairer
from onceover.operate.reseed import TopicMaking, plan_reseed
from onceover.planning.approval import Approval
from onceover.planning.journal import Journal
from onceover.state import names
from onceover.topics.namingpolicy import IDENTITY, NamingPolicy
from onceover.topics.scope import Rules
from tests.unit.seeding.seedscene import FLOW, SeedScene

LAST = TopicPartition("a", 2)


@pytest.fixture
def scene(tmp_path: Path) -> SeedScene:
    """Return a flow that copies three partitions, of which the source has kept two."""
    made = SeedScene(tmp_path)
    made.east.make_topic("a", 3)
    made.seeder().apply(made.caller)
    return made


def reseeder(scene: SeedScene, tp: TopicPartition) -> Repairer:
    making = TopicMaking(Rules((".*",), (), NamingPolicy(IDENTITY, "east", "west")))
    plan = partial(plan_reseed, FLOW, scene.east, scene.west, tp, making)
    return repairer(scene, plan)


def skipper(scene: SeedScene, tp: TopicPartition, offset: int) -> Repairer:
    return repairer(scene, partial(plan_skip, FLOW, scene.east, scene.west, tp, offset))


def repairer(scene: SeedScene, plan: Callable[..., Repair]) -> Repairer:
    def planned(since: int) -> Repair:
        return plan(since=since)

    identity = FlowIdentity(FLOW, 1, "0" * 64)
    return Repairer(identity, scene.east, scene.west, planned, lambda given: Journal(scene.home / "j", given))


def test_a_partition_that_is_taken_out_is_taken_out_by_the_first_try(scene: SeedScene) -> None:
    """What says so is its topic's record: the partition is none of the flow's any more."""
    del scene.east.all_topics["a"].logs[2]
    repairs = reseeder(scene, LAST)
    approval = Approval.of(repairs.plan().items)
    assert not repairs.apply(scene.caller, approval).earlier
    assert set(scene.enrolled()["a"].start) == {0, 1}
    again = repairs.apply(scene.caller, approval)
    assert (again.earlier, again.generation, again.exit_code, again.waiting) == (True, None, 0, ())
    by_hand = repairs.apply(scene.caller)
    assert (by_hand.earlier, by_hand.generation, by_hand.exit_code) == (False, None, 0)
    (told,) = by_hand.plan.refused
    assert (told.object, told.code, told.blocks) == ("a:2", "NOT_ENROLLED", False)


def test_a_partition_that_was_never_there_is_a_mistake(scene: SeedScene) -> None:
    with pytest.raises(UsageError, match="a:7 is not part of flow"):
        reseeder(scene, TopicPartition("a", 7)).plan()
    with pytest.raises(UsageError, match="a:7 is not part of flow"):
        skipper(scene, TopicPartition("a", 7), 0).plan()


def test_a_skip_is_done_wherever_the_log_has_gone_since(scene: SeedScene) -> None:
    """Retention has taken the offset before the try that could have said so."""
    scene.grow("a", 50)
    repairs = skipper(scene, TopicPartition("a", 0), 10)
    approval = Approval.of(repairs.plan().items)
    repairs.apply(scene.caller, approval)
    scene.log("a").start = 20
    again = repairs.apply(scene.caller, approval)
    assert (again.earlier, again.exit_code, again.waiting) == (True, 0, ())
    assert scene.progress()["a:0"] == 10
    assert [r.code for r in repairs.apply(scene.caller).waiting] == ["OUT_OF_RANGE"]
    other = Approval.of(skipper(scene, TopicPartition("a", 0), 30).plan().items)
    assert [r.code for r in repairs.apply(scene.caller, other).waiting] == ["OUT_OF_RANGE"]


@pytest.mark.parametrize("action", ["reseed", "skip-to"])
def test_what_would_be_refused_behind_the_fencing_is_refused_before_it(scene: SeedScene, action: str) -> None:
    """Progress of a topic takes READ on it: nobody is fenced for what nobody can write."""
    scene.grow("a", 50)
    tp = TopicPartition("a", 0)
    repairs = reseeder(scene, tp) if action == "reseed" else skipper(scene, tp, 10)
    before = scene.records(), scene.progress()
    scene.west.unread.add("a")
    done = repairs.apply(scene.caller)
    (told,) = done.plan.refused
    assert (done.exit_code, done.generation) == (3, None)
    assert (told.object, told.code) == ("a:0", "TARGET_UNAUTHORIZED")
    assert "READ" in told.message and "grant" in told.resolve
    assert (scene.records(), scene.progress()) == before
    scene.west.unread.clear()
    assert repairs.apply(scene.caller).generation is not None


def test_what_is_written_behind_a_fence_is_made_of_nothing_that_was_before(scene: SeedScene) -> None:
    """A broker that led the state before shows the record as it was: written so, it undoes the last one."""
    for partition in (0, 1):
        scene.grow("a", 50, partition)
    log = scene.west.all_topics[names.state_topic(FLOW)].logs[names.STATE_LEADER]
    log.past_end, scene.west.tries = log.end, 8
    skipper(scene, TopicPartition("a", 0), 10).apply(scene.caller)
    before = scene.enrolled()["a"]

    def plan(since: int) -> Repair:
        log.past_answers = 3 if since else 0
        return plan_skip(FLOW, scene.east, scene.west, TopicPartition("a", 1), 20, since)

    assert repairer(scene, plan).apply(scene.caller).generation == 3
    now = scene.enrolled()["a"]
    assert (now.changed[0], now.placed[0]) == (before.changed[0], before.placed[0])
    assert 1 in now.changed
