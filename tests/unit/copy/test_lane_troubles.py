"""Errors that are about single partitions: the lane goes on without those, and waits for none of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from onceover.copy import lane as lane_module
from onceover.copy.known import Known
from onceover.copy.lane import LaneSession, LaneTask
from onceover.copy.loop import CopySettings, Until
from onceover.copy.waits import aborted_note
from onceover.errors import MustReset, NotNow, OnceoverError, Retriable, UsageError
from onceover.handling.lanehandler import HandlerUse, LaneHandler
from onceover.model import TopicPartition
from onceover.resume import told as told_module
from onceover.state import names
from onceover.state.records.enrolment import Enrolment, owned, read_enrolments
from onceover.stops.aside import TroubleSide
from onceover.stops.barred import barred
from tests.unit.copy.protocol import ME, World, cluster_in, faked_world
from tests.unit.state.records.test_layout import LAYOUT

A, B, LEFT = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("left", 0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = faked_world(monkeypatch)
    enrolments = [
        Enrolment("t", "copy", UUID(int=1), UUID(int=2), {0: 0, 1: 0}, 1),
        Enrolment("left", "left", UUID(int=3), UUID(int=4), {0: 0}, 1, active=False),
    ]
    found.values = {names.LAYOUT: LAYOUT.to_json()}
    found.values |= {names.enrolment_key(e.target): e.to_json() for e in enrolments}
    return found


@pytest.fixture
def task(world: World, monkeypatch: pytest.MonkeyPatch) -> LaneTask:
    class Nothing:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(lane_module, "Fetcher", Nothing)
    monkeypatch.setattr(lane_module, "LagReporter", Nothing)
    source, target = cluster_in(world, "east"), cluster_in(world)
    return LaneTask(ME, source, target, lambda: CopySettings(1.0, 1, None), lambda: 1 << 24, 5.0)


class Clock:
    """Goes on where somebody sleeps."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def give_up(task: LaneTask, on_record: dict[str, Any] | None = None) -> None:
    """Have a session give up what it has begun; what it tells before that is on record, or nowhere."""
    with LaneSession(task) as session:
        session._known_stops()
        if on_record is not None:
            on_record.update(session._wait_notes(()))
        session._producer.in_transaction = True  # pyrefly: ignore[read-only]
        raise MustReset("lost")


def test_transactions_that_were_given_up_are_counted_over_workers_and_runs(
    task: LaneTask, world: World
) -> None:
    """Another worker takes the lane between two tasks, and each adds to what is on record: it never falls."""
    key, elsewhere, counts = names.aborted_key(ME.lane), Known(), []
    world.values[key] = aborted_note(5)
    mine = task.known
    for task.known in (mine, mine, elsewhere, mine):
        with pytest.raises(MustReset):
            give_up(task)
        with LaneSession(task) as going:
            going._known_stops()
            world.values.update(going._wait_notes(()))
            assert going._wait_notes(()) == {}, "once a session"
            counts.append(world.values[key]["count"])
    assert counts == [6, 7, 8, 9]


def test_a_count_of_given_up_transactions_is_not_lost_with_the_one_that_tells_it(
    task: LaneTask, world: World
) -> None:
    """Nor counted twice where that one has got through after all; what nobody can read counts as none."""
    world.values[names.aborted_key(ME.lane)] = {"count": "x"}
    for got_through in (False, True, False):
        with pytest.raises(MustReset):
            give_up(task, world.values if got_through else {})
    with LaneSession(task) as session:
        session._known_stops()
        assert session._wait_notes(()) == {names.aborted_key(ME.lane): aborted_note(3)}


def resumed(session: LaneSession) -> None:
    """Let a session know what it owns."""
    enrolments = read_enrolments(session._state.catch_up()).values()
    session._enrolled = owned(enrolments, ME.lane, ME.lanes)


def noted(task: LaneTask, error: OnceoverError) -> tuple[bool, set[TopicPartition]]:
    """Return whether the session takes an error for partitions' own, and which are noted."""
    session = LaneSession(task)
    resumed(session)
    told = session.note(error)
    return told, {tp for tp in (A, B, LEFT) if task.known.troubles.has(tp, TroubleSide.TARGET)}


def test_an_error_about_a_target_partition_is_its_sources_trouble(task: LaneTask) -> None:
    """Named by the target's topic; the others have none."""
    assert noted(task, MustReset("error 6").about(("copy", 1))) == (True, {B})


def test_topics_that_have_left_the_filter_have_their_troubles_too(task: LaneTask) -> None:
    """Their progress is renewed beside the others', which must not fail with it."""
    assert noted(task, UsageError("error 29").about(("left", 0))) == (True, {LEFT})


@pytest.mark.parametrize("target", [None, ("__onceover.f.state", 1), ("letters", 0)])
def test_what_is_about_the_flow_itself_is_nobodys_trouble(
    task: LaneTask, target: tuple[str, int] | None
) -> None:
    """Its own topics, its dead letters, its identity."""
    error = UsageError("error 29")
    assert noted(task, error if target is None else error.about(target)) == (False, set())


def test_with_a_handler_any_partition_may_have_written_there(task: LaneTask) -> None:
    """Who it was is not known: all of the topic's wait, and none of another topic's."""
    use = HandlerUse("h", lambda *_: None, lambda _: None, lambda _: None)  # pyrefly: ignore[bad-argument-type]
    task.lane_handler = LaneHandler(use=use)
    assert noted(task, NotNow("error 6").about(("copy", 7))) == (True, {A, B})


@pytest.mark.parametrize("error", [MustReset("error 6"), UsageError("error 29")])
def test_trouble_of_a_partition_neither_ends_its_lane_nor_is_given_up_with_it(
    task: LaneTask, monkeypatch: pytest.MonkeyPatch, error: OnceoverError
) -> None:
    """However long it takes: the lane begins again each time, and the partition's own patience decides."""
    sessions: list[int] = []

    def copy(_self: LaneSession, _until: Until) -> Iterator[list[Any]]:
        resumed(_self)
        sessions.append(1)
        clock.sleep(0.03)
        if len(sessions) < 50:
            raise error.about(("copy", 1))
        yield []

    clock = Clock()
    monkeypatch.setattr("onceover.backoff.time", clock)
    monkeypatch.setattr(LaneSession, "copy", copy)
    task.give_up_s = 0.05
    assert list(task.run(Until(float("inf")))) == [[]]
    assert len(sessions) == 50 and task.known.troubles.has(B, TroubleSide.TARGET)


@pytest.mark.parametrize(
    ("error", "kind"), [(MustReset("away"), Retriable), (UsageError("no right"), UsageError)]
)
def test_what_is_no_partitions_trouble_still_ends_the_lane(
    task: LaneTask, monkeypatch: pytest.MonkeyPatch, error: OnceoverError, kind: type[Exception]
) -> None:
    """After its deadline, or at once."""

    def copy(_self: LaneSession, _until: Until) -> Iterator[list[Any]]:
        raise error
        yield []

    monkeypatch.setattr(LaneSession, "copy", copy)
    task.give_up_s = 0.0
    with pytest.raises(kind):
        list(task.run(Until(float("inf"))))


def test_a_partition_that_was_asked_for_between_two_sessions_begins_anew(
    task: LaneTask, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is there before the session is: what was known of it would stop it again at once."""
    task.known.troubles.note(A, TroubleSide.TARGET, MustReset("error 6"))
    task.known.troubles.note(B, TroubleSide.TARGET, MustReset("error 6"))
    world.values[names.resume_key("copy", 1)] = {"v": 1, "at_ms": 7, "stop": {}}

    class EndOfTest(Exception):
        pass

    def progress(*_: object) -> None:
        raise EndOfTest

    monkeypatch.setattr(told_module, "read_progress", progress)
    with pytest.raises(EndOfTest):
        list(task.run(Until(float("inf"))))
    assert [task.known.troubles.has(tp, TroubleSide.TARGET) for tp in (A, B)] == [True, False]


def test_a_stop_on_record_leaves_nothing_that_would_write_it_again(task: LaneTask) -> None:
    """Whoever resumes it begins anew, although another process may be the one that hears of it."""
    session = LaneSession(task)
    resumed(session)
    for tp in (A, B):
        task.known.troubles.note(tp, TroubleSide.TARGET, MustReset("error 6"))
    session._stopped([])
    assert task.known.troubles.has(A, TroubleSide.TARGET)
    session._stopped([TopicPartition("copy", 0)])
    assert [task.known.troubles.has(tp, TroubleSide.TARGET) for tp in (A, B)] == [False, True]


def test_trouble_is_noted_with_the_position_that_it_is_about(task: LaneTask) -> None:
    """The next task of this process may find that another one has copied on."""
    session: Any = LaneSession(task)
    resumed(session)
    session._loop = SimpleNamespace(partitions={B: SimpleNamespace(committed=5)}, involved=())
    assert session.note(MustReset("error 6").about(("copy", 1)))
    task.known.troubles.stands_at(B, 5)
    assert task.known.troubles.has(B, TroubleSide.TARGET)
    task.known.troubles.stands_at(B, 6)
    assert not task.known.troubles.has(B, TroubleSide.TARGET)


def shared(task: LaneTask, error: OnceoverError, *involved: TopicPartition) -> bool:
    """Have a transaction of these partitions fail with an error; return what the session makes of it."""
    session: Any = LaneSession(task)
    resumed(session)
    session._loop = SimpleNamespace(partitions={}, involved=set(involved))
    return bool(session.note(error))


_LETTERS_DENIED = UsageError("error 29", where="letters").about(("letters", 0))


@pytest.mark.parametrize("error", [_LETTERS_DENIED, MustReset("error 19").about(("letters", 0))])
def test_who_writes_to_a_dead_letter_topic_that_refuses_is_found_and_waits_alone(
    task: LaneTask, error: OnceoverError
) -> None:
    """Before, a missing right there ended the run, and a missing replica held every partition of the lane."""
    task.lane_handler = LaneHandler(dead_letter="letters")
    assert shared(task, error, A, B)
    assert not task.known.troubles, "it may be either"
    task.known.passed([B])
    for _ in range(3):
        assert shared(task, error, A)
    found = task.known.troubles.of(A)
    assert set(found) == {TroubleSide.TARGET} and found[TroubleSide.TARGET].tries == 3
    assert not task.known.troubles.of(B)


def test_a_stop_for_the_dead_letter_topic_names_it() -> None:
    """The copy's own topic has nothing to do with it."""
    stop = barred("f", A, TopicPartition("copy", 0), TroubleSide.TARGET, _LETTERS_DENIED, 3)
    assert stop.code == "TARGET_UNAUTHORIZED" and "copy" not in stop.message + stop.expected
    assert "letters" in stop.message and "letters" in stop.expected
    stop = barred(
        "f", A, TopicPartition("copy", 0), TroubleSide.TARGET, MustReset("19").about(("letters", 0)), 3
    )
    assert stop.code == "TARGET_UNWRITABLE" and "letters:0" in stop.message


def test_a_map_partition_that_cannot_be_written_is_the_trouble_of_those_that_need_it(task: LaneTask) -> None:
    """The others get through, with another partition of the map."""
    error = MustReset("error 6").about((names.map_topic("f"), 3))
    assert not shared(task, error, A, B), "it may be all of them"
    task.known.passed([B])
    assert shared(task, error, A)
    assert set(task.known.troubles.of(A)) == {TroubleSide.COPY} and not task.known.troubles.of(B)


def test_a_missing_right_on_the_flows_own_topics_still_ends_the_run(task: LaneTask) -> None:
    """Nothing can be copied without them."""
    assert not shared(task, UsageError("error 29").about((names.map_topic("f"), 3)), A)


def test_with_a_handler_who_writes_to_a_bad_partition_is_found(task: LaneTask) -> None:
    """Before, all partitions of the topic were stopped for it."""
    use = HandlerUse("h", lambda *_: None, lambda _: None, lambda _: None)  # pyrefly: ignore[bad-argument-type]
    task.lane_handler = LaneHandler(use=use)
    error = MustReset("error 6").about(("copy", 7))
    assert shared(task, error, A, B) and not task.known.troubles
    assert shared(task, error, A)
    assert set(task.known.troubles.of(A)) == {TroubleSide.TARGET} and not task.known.troubles.of(B)
