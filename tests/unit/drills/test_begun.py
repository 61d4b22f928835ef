"""What was planned is asked again once a drill has begun, and promoted only as it was planned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.abort import LeftFence, abort
from onceover.drills.codes import DrillCode
from onceover.drills.course import DrillStep
from onceover.drills.history import DrillHistory
from onceover.drills.journal import DrillJournal
from onceover.drills.orphans import export
from onceover.drills.orphans.export import OrphanExport
from onceover.drills.orphans.looks import TopicShape
from onceover.drills.outcome import DrillOutcome
from onceover.drills.rehearsing import rehearsal
from onceover.drills.rehearsing.rehearsal import Rehearsal
from onceover.drills.running import DrillRunner, changed
from onceover.drills.switching import switchover as switching
from onceover.drills.switching import unplanned
from onceover.drills.switching.switchover import Switchover, SwitchoverRequest, check_brought_over
from onceover.drills.switching.unplanned import UnplannedSteps
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.planning.operation import Caller
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment, LeftAt, PlacedProgress
from tests.unit.drills.orphans.test_rebuild import look_of
from tests.unit.drills.test_abort import Journal, Removal, letting_in
from tests.unit.drills.test_fences import Notes
from tests.unit.drills.test_switching import AWAY, enrolment, outcome, written

A = enrolment("a")


def test_one_that_is_planned_for_something_else_does_nothing() -> None:
    """Nor is it any drill: what the last one came to stays what people and alerts see."""
    chain = written(("d1", chains.BEGUN, {"mode": "planned"}))
    told: list[str] = []

    def append(drill: str, what: str, said: Mapping[str, Any]) -> None:
        chain.append(chains.next_entry(chain, drill, what, 0, said))

    journal = SimpleNamespace(
        check_folder=lambda: None,
        begin=lambda drill, said: append(drill, chains.BEGUN, said),
        heartbeat=lambda _: Opened(told),
        append=append,
        read=lambda: chain,
    )

    def again() -> None:
        assert told == ["alive"]
        raise changed("orders-dr", "it is another one")

    runner = DrillRunner(cast(Any, journal), lambda _: told.append("reported"))
    with pytest.raises(NeedsOperator, match="since it was planned it is another one"):
        runner.run(outcome(), (), list, lambda: told.append("closed"), Caller(lambda _: None), again)
    assert told == ["alive", "closed", "dead"]
    assert [(e.what, e.said.get("result")) for e in chain[2:]] == [(chains.ENDED, "refused")]
    assert [each["drill"] for each in DrillHistory("orders-dr", chain, 0).drills] == ["d1"]


def test_who_interrupts_one_that_cannot_take_back_what_it_did_hears_of_it() -> None:
    """Its report says so, too: "interrupted" alone has nobody look for writers that are kept off."""
    told: list[DrillOutcome] = []
    begun = outcome()
    chain = written((begun.drill, chains.BEGUN, {"mode": "planned"}))

    def interrupted(_: Deadline) -> Mapping[str, Any]:
        raise KeyboardInterrupt

    def refused(_: Deadline) -> Mapping[str, Any]:
        raise NeedsOperator("the switchover's command did not unfence", code=DrillCode.COMMAND_FAILED)

    journal = SimpleNamespace(
        check_folder=lambda: None,
        begin=lambda *_: None,
        heartbeat=lambda _: Opened([]),
        append=lambda drill, what, said: chain.append(chains.next_entry(chain, drill, what, 0, said)),
        read=lambda: chain,
    )
    course = (
        DrillStep("fence", "keep writers off", 10.0, interrupted, ""),
        DrillStep("undo", "let writers in again", 10.0, refused, ""),
    )
    runner = DrillRunner(cast(Any, journal), lambda each: told.append(deepcopy(each)))
    findings = [(str(DrillCode.STILL_FENCED), "writers of orders are kept off")]
    with pytest.raises(NeedsOperator, match="did not unfence") as caught:
        runner.run(begun, course, lambda: findings, lambda: None, Caller(lambda _: None), lambda: None)
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)
    assert caught.value.seen == "writers of orders are kept off"
    assert "drill abort" in str(caught.value.resolve)
    last = told[-1]
    assert (last.verdict, last.findings) == (chains.DrillResult.FAIL, tuple(findings))
    assert [str(each.state) for each in last.results] == ["failed", "failed"]
    assert last.results[-1].error is not None
    assert [(e.what, e.said.get("result")) for e in chain][-1] == (chains.ENDED, "interrupted")


@pytest.mark.parametrize("where", ["report", "append"])
def test_who_interrupts_one_that_is_over_leaves_none_that_runs(where: str) -> None:
    """All of it was done: gone on with, its clients would be moved once more."""
    begun = replace(outcome(), ended_ms=None)
    chain = written((begun.drill, chains.BEGUN, {"mode": "planned"}))
    left = [KeyboardInterrupt()]

    def interrupted(at: str, ends: bool) -> None:
        if at == where and ends and left:
            raise left.pop()

    def append(drill: str, what: str, said: Mapping[str, Any]) -> None:
        interrupted("append", what == chains.ENDED)
        chain.append(chains.next_entry(chain, drill, what, 0, said))

    journal = SimpleNamespace(
        check_folder=lambda: None,
        begin=lambda *_: None,
        heartbeat=lambda _: Opened([]),
        append=append,
        read=lambda: chain,
    )
    course = (DrillStep("undo", "let writers in again", 10.0, lambda _: {"promoted": True}, ""),)
    runner = DrillRunner(cast(Any, journal), lambda each: interrupted("report", each.ended_ms is not None))
    with pytest.raises(KeyboardInterrupt):
        runner.run(begun, course, list, lambda: None, Caller(lambda _: None), lambda: None)
    assert (chains.running(chain), chain[-1].said["done"]) == (None, True)


def test_one_whose_report_cannot_be_kept_is_not_begun(tmp_path: Path) -> None:
    """2 says that nothing was done: a journal that has begun tells of a drill, and makes a topic for it."""
    (tmp_path / "file").touch()
    journal = DrillJournal(cast(Any, None), "orders-dr", 1, tmp_path / "file" / "drills", lambda _: False)
    runner = DrillRunner(journal, lambda _: None)
    with pytest.raises(NotADirectoryError, match="file/drills"):
        runner.run(outcome(), (), list, lambda: None, Caller(lambda _: None), lambda: None)


@pytest.mark.parametrize(
    ("mode", "exit_code"), [("planned", NeedsOperator.exit_code), (chains.ABORT_MODE, Retriable.exit_code)]
)
def test_what_is_being_taken_away_is_waited_for_by_trying_again(
    monkeypatch: pytest.MonkeyPatch, mode: str, exit_code: int
) -> None:
    """As of a task that was cleared and killed; a drill that runs is somebody's business."""
    journal = DrillJournal(cast(Any, None), "orders-dr", 1, Path("nowhere"), lambda _: False)
    chain = written(("d1", chains.BEGUN, {"mode": mode}))
    monkeypatch.setattr(journal, "prepare", lambda: None)
    monkeypatch.setattr(journal, "read", lambda: chain)
    monkeypatch.setattr(journal, "is_alive", lambda _: True)
    with pytest.raises(OnceoverError) as caught:
        journal.begin("d2", {"mode": "planned"})
    assert (caught.value.code, caught.value.exit_code) == (DrillCode.DRILL_RUNS, exit_code)


class Opened:
    """Signs of life, as they are heard."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def __enter__(self) -> None:
        self._told.append("alive")

    def __exit__(self, *_: object) -> None:
        self._told.append("dead")


def test_what_was_done_under_an_approval_is_open_no_more_though_another_try_came_late() -> None:
    approval: Mapping[str, Any] = {"approval": {"id": "mine"}}
    passed: Mapping[str, Any] = {"result": "PASS", "done": True}
    done = [("d1", chains.BEGUN, approval), ("d1", chains.ENDED, passed)]
    late = [("d2", chains.BEGUN, approval), ("d2", chains.ENDED, {"result": chains.DrillResult.REFUSED})]
    assert chains.open_approval(written(*done, *late)) is None
    assert chains.open_approval(written(*late)) == "d2"


def test_a_fence_that_another_one_has_made_to_stay_meanwhile_is_not_lifted() -> None:
    """It was the same topics' fence of one that died; by now they are promoted."""
    left, lifted = [["a", "b"], ["a", "b"], ["b", "c"], ["b", "c"]], list[str]()
    fence = LeftFence(lambda: left.pop(0), tuple, lambda: None, letting_in(lifted.extend))
    found = abort(cast(Any, Journal()), cast(Any, Removal()), fence, "orders-dr", lambda _: False)
    assert (lifted, found.unfenced) == (["b"], ("b",))


MOVED: list[Enrolment | None] = [
    None,
    enrolment("a", "d2"),
    A.leaving(LeftAt(7, 70)),
    replace(A, placed={0: PlacedProgress(8, 0, 0)}),
    replace(A, changed={0: "an approval"}),
    replace(A, source_id=UUID(int=9)),
    replace(A, target_id=UUID(int=9)),
]


@pytest.mark.parametrize("now", MOVED)
def test_a_topic_that_was_moved_meanwhile_is_another_copy(now: Enrolment | None) -> None:
    assert now is None or not now.is_still(A)


def test_more_partitions_make_no_other_copy() -> None:
    more = replace(A, start={0: 0, 1: 0}, placed={1: PlacedProgress(8, 0, 0)})
    assert more.is_still(A)
    assert not A.is_still(more)


class Steps(UnplannedSteps):
    """Topic a, as its record is by now."""

    now: Enrolment | None = A

    def _live(self, state: FlowState | None = None) -> dict[str, Enrolment]:
        return {} if self.now is None else {"a": self.now}


class Promoting:
    """A target whose leader writes down what is promoted."""

    def __init__(self) -> None:
        self.enrolled: list[Enrolment] = []
        self.copy, self.glances = UUID(int=2), 0
        target = SimpleNamespace(
            alias="west",
            retry=lambda call: call(),
            topics=lambda _: {"a": SimpleNamespace(topic_id=self.copy)},
            list_offsets=lambda tps, *_: dict.fromkeys(tps, 5),
            committed=lambda *_: {},
        )
        parts: Any = SimpleNamespace(flow="orders-dr", target=target, glance=self.glance)
        self.steps = Steps(parts, "d1", "d1", {"a": A}, True, Notes(), cast(Any, None))
        layout = SimpleNamespace(generation=8)
        self.steps._leader = cast(Any, SimpleNamespace(layout=layout, enrol=self.enrol))

    def enrol(self, enrolled: Iterable[Enrolment], _: object) -> None:
        self.enrolled += enrolled

    def glance(self) -> Mapping[str, Any]:
        self.glances += 1
        return AWAY


@pytest.mark.parametrize("now", MOVED)
def test_what_is_not_as_it_was_planned_is_not_promoted(now: Enrolment | None) -> None:
    """By whatever the flow's state says when nobody else can write it any more."""
    promoting = Promoting()
    promoting.steps.now = now
    with pytest.raises(NeedsOperator) as refused:
        promoting.steps.promote(Deadline(5.0))
    assert (refused.value.code, promoting.enrolled) == ("SCOPE_CHANGED", [])


def test_a_copy_that_was_made_anew_since_it_was_looked_at_is_not_promoted() -> None:
    promoting = Promoting()
    promoting.steps.standing()
    promoting.copy = UUID(int=3)
    with pytest.raises(NeedsOperator) as refused:
        promoting.steps.promote(Deadline(5.0))
    assert (refused.value.code, promoting.enrolled) == ("LOG_CHANGED", [])
    promoting.copy = UUID(int=2)
    promoting.steps.promote(Deadline(5.0))
    assert [(each.source, each.is_promoted) for each in promoting.enrolled] == [("a", True)]
    promoting.copy = UUID(int=3)
    promoting.steps._name_anew({"a": str(UUID(int=2))})
    assert [code for code, _ in promoting.steps.findings] == ["LOG_CHANGED"]


def test_the_source_is_looked_at_again_where_the_question_has_taken_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not before: clients wait meanwhile. The copies are looked at each time."""
    promoting = Promoting()
    promoting.steps.standing()
    promoting.copy = UUID(int=3)
    assert promoting.steps.standing().copies == {"a": str(UUID(int=3))}
    assert promoting.glances == 1
    monkeypatch.setattr(unplanned, "_GOOD_S", 0.0)
    old = Promoting()
    old.steps.standing()
    old.steps.standing()
    assert old.glances == 2


@pytest.mark.parametrize(("now", "is_refused"), [(A, False), (enrolment("a", "d2"), True)])
def test_a_rehearsal_copies_nothing_of_what_was_promoted_meanwhile(
    monkeypatch: pytest.MonkeyPatch, now: Enrolment, *, is_refused: bool
) -> None:
    monkeypatch.setattr(rehearsal, "started", lambda *_: (SimpleNamespace(enrolled={"a": now}), None))
    nobody: Any = None
    made = Rehearsal(cast(Any, SimpleNamespace(target=None)), *[nobody] * 6)
    plan: Any = SimpleNamespace(flow="orders-dr", topics=("a",))
    assert refused(lambda: made._check_again(plan)) == is_refused


SHAPE = TopicShape("id", 1, 3, {})


@pytest.mark.parametrize(
    ("cuts", "unmade", "is_refused"),
    [
        ({"a": ("id of a", 5)}, {"gone": SHAPE}, False),
        ({"a": ("id of a", 9)}, {"gone": SHAPE}, True),
        ({"a": ("another", 5)}, {"gone": SHAPE}, True),
        ({}, {"gone": SHAPE}, True),
        ({"a": ("id of a", 5)}, {}, True),
    ],
)
def test_orphans_are_those_of_topics_that_were_led_back_by_nobody_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
    cuts: dict[str, tuple[str, int]],
    unmade: dict[str, TopicShape],
    *,
    is_refused: bool,
) -> None:
    """Nor is a topic made again that another run has made."""
    look = look_of("a")
    monkeypatch.setattr(export, "unmade_topics", lambda _: unmade)
    topics = SimpleNamespace(cuts=lambda _: {look.source._replace(topic=t): at for t, at in cuts.items()})
    parts: Any = SimpleNamespace(
        reader=SimpleNamespace(topics=topics), drills=SimpleNamespace(read=lambda: ())
    )
    plan: Any = SimpleNamespace(
        flow="f", view=SimpleNamespace(looks=[look]), remade=("gone",), shapes={"gone": SHAPE}
    )
    made = OrphanExport(parts, rebuild=True, forgets=lambda _: False)
    assert refused(lambda: made._check_again(plan)) == is_refused


def refused(check: Callable[[], None]) -> bool:
    """Tell whether something else would be done than was planned."""
    try:
        check()
    except NeedsOperator as error:
        return error.code == "PLAN_CHANGED"
    return False


@pytest.mark.parametrize("mode", ["planned", "unplanned"])
def test_what_clients_have_gone_back_with_is_not_gone_on_with(mode: str) -> None:
    """Of a source that is gone nobody knows: a planned one waits for it, an unplanned one does not."""
    asked = SwitchoverRequest(mode, None, "", "", None)
    operation = Switchover(*cast(Any, (None, asked, None, None, None, None, 1)))
    chain = written(("d1", chains.BEGUN, {"mode": mode}), ("d1", chains.ENDED, {"done": False}))
    enrolled = [enrolment("a", "d1"), enrolment("b", "d1")]

    def found(gone: Callable[[], Collection[str]]) -> list[str]:
        parts: Any = SimpleNamespace(flow="orders-dr", source=SimpleNamespace(alias="east"), gone_back=gone)
        unfinished = operation._unfinished(parts, chain, enrolled)
        return [] if unfinished is None else [each.source for each in unfinished[1]]

    def away() -> Collection[str]:
        raise Retriable("no broker of east answers")

    assert (found(tuple), found(lambda: "a"), found(lambda: "ab")) == (["a", "b"], ["b"], [])
    if mode == "unplanned":
        assert found(away) == ["a", "b"]
        return
    with pytest.raises(Retriable, match="clients have gone back to east") as raised:
        found(away)
    assert "--mode unplanned" in str(raised.value.resolve)


@pytest.mark.parametrize(("gone", "is_refused"), [("", False), ("b", True), ("ab", True)])
def test_what_clients_go_back_with_since_the_plan_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, gone: str, *, is_refused: bool
) -> None:
    """By a switchover of the flow the other way, which asks nobody here."""
    chain = written(("d1", chains.BEGUN, {"mode": "planned"}), ("d1", chains.ENDED, {"done": False}))
    asked, journal = SwitchoverRequest("planned", None, "", "", None), SimpleNamespace(read=lambda: chain)
    operation = Switchover(*cast(Any, (None, asked, journal, None, None, None, 1)))
    enrolled = {each: enrolment(each, "d1") for each in "ab"}
    monkeypatch.setattr(switching, "started", lambda *_: (SimpleNamespace(enrolled=enrolled), None))
    parts = SimpleNamespace(flow="orders-dr", target=None, gone_back=lambda: gone)
    plan: Any = SimpleNamespace(flow="orders-dr", goes_on="d1", standing=None)
    steps: Any = SimpleNamespace(parts=parts, enrolled=enrolled)
    assert refused(lambda: operation._check_again(plan, steps, cast(Any, None))) == is_refused


@pytest.mark.parametrize("state", ["done", "failed", "running"])
def test_whoever_was_not_brought_over_is_not_let_in(state: str) -> None:
    """Also where another one has gone on with it, and has brought them over."""
    begun = ("d1", chains.BEGUN, {"mode": "planned"}), ("d2", chains.BEGUN, {"goes_on": "d1"})
    chain = written(*begun, ("d2", chains.STEP, {"step": "redirect", "state": state}))
    if state == "done":
        check_brought_over("orders-dr", chain, [enrolment("a", "d1")])
    else:
        with pytest.raises(NeedsOperator, match="d1 has not brought clients over") as raised:
            check_brought_over("orders-dr", chain, [enrolment("a", "d1")])
        assert raised.value.code == "PAST_RETURN"
    check_brought_over("orders-dr", chain, [enrolment("a")])
