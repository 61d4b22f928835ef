"""A leader whose state is told by a broker that led it before, and has not heard that it does no more.

A broker that was frozen answers so for a moment when it continues; one that is cut off, for as long as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from onceover.errors import Fenced, Retriable
from onceover.kafka.calls import NO_EPOCH, CommittedOffset
from onceover.lead import leader as leader_module
from onceover.model import MOST_LANES, TopicPartition
from onceover.state import log as statelog
from onceover.state import names
from onceover.state.records.enrolment import LeftAt, PlacedProgress
from onceover.state.records.progress import first_progress, promoted_progress
from onceover.wire.progress import ProgressMeta
from tests.support.fakes.fakelogs import FakeLog
from tests.unit.lead.leading import FLOW, GROUP, Leading, leading

# It hears of it after some answers, or never.
SOON, NEVER = 10, 1_000_000


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leading]:
    """Give two clusters with a topic of two partitions on the source, which the flow copies."""
    monkeypatch.setattr(leader_module, "_RECOVERY_PAUSE_S", (0.0, 0.0))
    made = leading(tmp_path, monkeypatch)
    made.west.tries = 3
    yield made
    for each in made.opened:
        each.close()


def state_of(scene: Leading) -> FakeLog:
    return scene.west.all_topics[names.state_topic(FLOW)].logs[names.STATE_LEADER]


def fenced_by(scene: Leading) -> list[str]:
    """Return the ids that are taken from now on."""
    taken: list[str] = []

    def heard(request: str, subject: str) -> None:
        if request == "InitProducerId":
            taken.append(subject)

    scene.west.heard = heard
    return taken


def test_a_start_fences_the_lanes_of_a_generation_that_it_is_not_told_of_at_first(scene: Leading) -> None:
    """By the layout of before it would be a second generation 2, and three lanes of the first go on."""
    scene.led()
    log = state_of(scene)
    log.past_end = log.end
    scene.supervisor(lanes=5).start()
    log.past_answers = SOON
    taken = fenced_by(scene)
    started = scene.supervisor(lanes=2).start()
    assert (started.generation, started.fence_up_to) == (3, 5)
    assert log.past_answers == 0, "it was told what was before"
    assert {names.lane_id(FLOW, lane) for lane in range(5)} <= set(taken)


def test_a_start_that_is_told_nothing_else_writes_nothing(
    scene: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks again, and does not believe the answer."""
    monkeypatch.setattr(leader_module, "START_DEADLINE_S", 0.1)
    scene.west.tries = 1
    scene.led()
    log = state_of(scene)
    log.past_end = log.end
    running = scene.supervisor(lanes=5).start()
    log.past_answers = NEVER
    monkeypatch.setattr(statelog, "_CATCH_UP_S", 0.4)
    with pytest.raises(Retriable, match="does not show what it holds"):
        scene.supervisor().start()
    log.past_answers = 0
    assert scene.layout == running


def test_a_run_that_was_overtaken_writes_nothing_by_a_layout_of_before(scene: Leading) -> None:
    """Its own layout over the newer one: the next start would fence no lane of that."""
    old = scene.led()
    log = state_of(scene)
    log.past_end = log.end
    newer = scene.supervisor(lanes=5).start()
    log.past_answers = SOON
    with pytest.raises(Fenced):
        old.leader.end()
    assert scene.layout == newer


def test_who_has_taken_another_id_of_the_flow_is_not_told_that_it_still_leads(scene: Leading) -> None:
    """What merges the offset map looks behind its id: a newer generation may have fenced that before."""
    old = scene.led()
    log = state_of(scene)
    log.past_end = log.end
    scene.supervisor().start()
    log.past_answers = SOON
    with pytest.raises(Fenced):
        old.leader.confirm()


def test_a_look_at_the_topics_knows_what_the_run_has_enrolled_itself(scene: Leading) -> None:
    """Planned again, their records would name another beginning than the one that was copied from."""
    run = scene.supervisor()
    run.start()
    log = state_of(scene)
    log.past_end = log.end
    run.discover()
    enrolled = scene.enrolled()
    source = scene.east.all_topics["shop.orders"].logs[0]
    source.start = source.end = 7
    log.past_answers = SOON
    run.discover()
    log.past_answers = 0
    assert scene.enrolled() == enrolled


def test_a_start_of_a_state_that_has_lost_its_end_leads_above_all_that_has_copied(scene: Leading) -> None:
    """Beside progress of a newer generation no lane goes on; and who wrote it may have had any lanes."""
    scene.led()
    tp = TopicPartition("shop.orders", 0)
    meta = ProgressMeta("s", "t", 0, 0, generation=5, instance=(1, 1), position=7)
    scene.west.groups.setdefault(GROUP, {})[tp] = CommittedOffset(0, 7, NO_EPOCH, meta.encode())
    taken = fenced_by(scene)
    started = scene.supervisor().start()
    assert (started.generation, started.fence_up_to) == (6, MOST_LANES)
    assert {names.lane_id(FLOW, lane) for lane in range(MOST_LANES)} <= set(taken)
    assert scene.supervisor().start().fence_up_to == started.lanes


def test_a_run_whose_state_has_lost_its_end_is_not_told_that_another_has_taken_over(scene: Leading) -> None:
    """Nobody copies then, and whoever starts runs has to hear of it: read anew, the log ends before it."""
    older = scene.led().leader.state.values[names.LAYOUT]
    running = scene.led()
    running.leader.state.values[names.LAYOUT] = older
    with pytest.raises(Retriable, match="as it was before generation 2"):
        running.leader.check()


def test_a_start_of_a_state_that_has_lost_a_promotion_leaves_the_copy_to_its_clients(scene: Leading) -> None:
    """What stands beside the progress tells of it: the flow would write on among what clients write."""
    run = scene.led()
    before = scene.enrolled()["shop.orders"]
    log = state_of(scene)
    end = log.end
    promoted = before.as_promoted("d1", LeftAt(7, 70), {0: 9, 1: 4}, {0: 0, 1: 0})
    marked = promoted_progress(promoted, scene.west.groups[GROUP])
    run.leader.enrol([promoted], marked)
    as_it_was = scene.enrolled()
    log.lose_end(end)
    assert not scene.enrolled()["shop.orders"].is_promoted, "that is lost"
    again = scene.supervisor()
    started = again.start()
    again.discover()
    assert started.generation == 8
    assert scene.enrolled() == as_it_was
    assert [each.code for each in again.refused] == ["PROMOTED"]


def test_a_copy_that_was_taken_back_by_hand_is_no_promoted_one(scene: Leading) -> None:
    """Who places a partition writes its progress anew, without that mark."""
    run = scene.led()
    before = scene.enrolled()["shop.orders"]
    promoted = before.as_promoted("d1", LeftAt(7, 70), {0: 9, 1: 4}, {0: 0, 1: 0})
    run.leader.enrol([promoted], promoted_progress(promoted, scene.west.groups[GROUP]))
    placed = replace(promoted, placed={p: PlacedProgress(8, 0, 9) for p in promoted.start}).back()
    first = {placed.target_of(tp): first_progress(placed, 0, 8, 9) for tp in placed.sources()}
    run.leader.enrol([placed], first)
    scene.supervisor().start()
    assert scene.enrolled()["shop.orders"] == placed


def test_a_mark_of_before_a_copy_was_taken_back_promotes_nothing_again(scene: Leading) -> None:
    """Its group's coordinator tells what it held before, or its log has lost its end: the record is newer."""
    run = scene.led()
    before = scene.enrolled()["shop.orders"]
    promoted = before.as_promoted("d1", LeftAt(7, 70), {0: 9, 1: 4}, {0: 0, 1: 0})
    marked = promoted_progress(promoted, scene.west.groups[GROUP])
    run.leader.enrol([promoted], marked)
    placed = replace(promoted, placed={p: PlacedProgress(8, 0, 9) for p in promoted.start}).back()
    run.leader.enrol([placed], {})
    scene.supervisor().start()
    assert scene.enrolled()["shop.orders"] == placed


def test_a_promotion_that_is_written_again_is_as_it_was_also_where_the_topic_had_been_left_before(
    scene: Leading,
) -> None:
    """Which of two promotions is the newer one goes by when the topic was left."""
    run = scene.led()
    copied = scene.enrolled()["shop.orders"]
    run.leader.enrol([copied.left_to("back", LeftAt(1, 10))], {})
    log = state_of(scene)
    end = log.end
    promoted = copied.as_promoted("d1", LeftAt(7, 70), {0: 9, 1: 4}, {0: 0, 1: 0})
    run.leader.enrol([promoted], promoted_progress(promoted, scene.west.groups[GROUP]))
    as_it_was = scene.enrolled()
    log.lose_end(end)
    scene.supervisor().start()
    assert scene.enrolled() == as_it_was
