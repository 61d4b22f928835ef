"""A seeding that was killed is gone on with: what it has written already is no matter any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceover.errors import NeedsOperator, Retriable
from onceover.kafka.calls import NO_EPOCH, CommittedOffset
from onceover.model import TopicPartition
from onceover.seeding import apply
from onceover.state import names
from onceover.state.read import FlowState
from onceover.state.records.progress import first_progress
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.seeding.seedscene import FLOW, GROUP, SeedScene


@pytest.fixture
def scene(tmp_path: Path) -> SeedScene:
    made = SeedScene(tmp_path)
    for name in ("a", "b"):
        made.east.make_topic(name, 1)
        made.grow(name, 100)
    return made


@pytest.mark.parametrize("replace", [False, True])
def test_what_was_written_and_could_not_be_said_is_said_by_the_next_try(
    scene: SeedScene, *, replace: bool
) -> None:
    """Killed behind the last commit, while the source goes on: its end is another one by then."""
    approval = scene.approved(scene.seeder(replace=replace).plan())
    scene.seeder(replace=replace).apply(scene.caller, approval)
    assert scene.progress() == {"a:0": 100, "b:0": 100}
    scene.grow("a", 20)
    again = scene.seeder(replace=replace).apply(scene.caller, approval)
    assert (again.earlier, again.exit_code, again.waiting) == (True, 0, [])
    assert scene.progress() == {"a:0": 100, "b:0": 100}


class Killed(Exception):
    """The process is gone."""


def kill_before_the_second_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each topic has a transaction of its own; whoever writes is killed between two of them."""
    enrol, written = apply._enrol, list[object]()

    def once(*given: Any) -> None:
        if written:
            monkeypatch.setattr(apply, "_enrol", enrol)
            raise Killed
        written.append(given)
        enrol(*given)

    monkeypatch.setattr(apply, "_PARTITIONS_PER_TRANSACTION", 1)
    monkeypatch.setattr(apply, "_enrol", once)


@pytest.mark.parametrize("replace", [False, True])
def test_one_that_was_killed_between_two_transactions_writes_what_is_left(
    scene: SeedScene, monkeypatch: pytest.MonkeyPatch, *, replace: bool
) -> None:
    """With `--replace`, too: what is written already would be written anew, over what it was written for."""
    approval = scene.approved(scene.seeder(replace=replace).plan())
    kill_before_the_second_commit(monkeypatch)
    with pytest.raises(Killed):
        scene.seeder(replace=replace).apply(scene.caller, approval)
    assert scene.progress() == {"a:0": 100}
    scene.grow("a", 20)
    scene.grow("b", 20)
    again = scene.seeder(replace=replace).apply(scene.caller, approval)
    assert (again.earlier, again.written, again.exit_code) == (False, 1, 0)
    assert scene.progress() == {"a:0": 100, "b:0": 120}
    assert [c.object for c in scene.shown[-1].changes if c.what == "position"] == ["b:0"]
    assert scene.seeder(replace=replace).apply(scene.caller, approval).earlier


def test_what_was_refused_under_an_approval_still_is(
    scene: SeedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has written `b` meanwhile, under an approval of their own."""
    approval = scene.approved(scene.seeder().plan())
    kill_before_the_second_commit(monkeypatch)
    with pytest.raises(Killed):
        scene.seeder().apply(scene.caller, approval)
    scene.seeder(topics="b").apply(scene.caller)
    scene.grow("b", 20)
    again = scene.seeder().apply(scene.caller, approval)
    assert [(r.object, r.code) for r in again.waiting] == [("b:0", "PROGRESS_EXISTS")]
    assert scene.progress() == {"a:0": 100, "b:0": 100}
    with pytest.raises(NeedsOperator, match=r"b:0 .*which somebody has changed since"):
        scene.seeder(replace=True).apply(scene.caller, approval)


def test_without_an_approval_nobody_is_told_to_skip_what_an_earlier_try_has_placed(scene: SeedScene) -> None:
    """On the command line each try is an approval of its own."""
    scene.seeder().apply(scene.caller)
    scene.grow("a", 20)
    (refusal,) = scene.seeder().plan().refused
    assert (refusal.object, refusal.code) == ("a:0", "PROGRESS_EXISTS")
    assert "nothing was copied since" in refusal.message
    assert refusal.resolve.startswith("nothing, where that was an earlier try of this")
    copied = first_progress(scene.enrolled()["a"], 110, 1)
    scene.west.groups[GROUP][TopicPartition("a", 0)] = CommittedOffset(0, 110, NO_EPOCH, copied.metadata)
    (refusal,) = scene.seeder().plan().refused
    assert refusal.resolve == "add `--replace` if that is meant"


def test_a_seeding_is_made_of_nothing_that_was_before_its_fence(
    scene: SeedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that led the state before tells no record of what was enrolled since; it is asked again."""
    scene.seeder().apply(scene.caller)
    log = scene.west.all_topics[names.state_topic(FLOW)].logs[names.STATE_LEADER]
    log.past_end, scene.west.tries = log.end, 8
    wanted, refused, read = list[int](), list[Retriable](), apply.read_flow_state

    def told(target: FakeCluster, flow: str, since: int = 0) -> FlowState:
        wanted.append(since)
        log.past_answers = 3 if since and not refused else 0
        try:
            return read(target, flow, since)
        except Retriable as error:
            refused.append(error)
            raise

    monkeypatch.setattr(apply, "read_flow_state", told)
    scene.grow("a", 20)
    scene.seeder(replace=True).apply(scene.caller)
    assert wanted == [0, 2, 2, 2]
    assert [(error.expected or "")[:12] for error in refused] == ["generation 2"]
