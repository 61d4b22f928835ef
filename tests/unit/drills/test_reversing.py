"""The steps of a planned switchover that lift fences, without clusters."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.journal import DrillJournal
from onceover.drills.switching.lettingin import in_the_way
from onceover.drills.switching.steps import PlannedSteps
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment
from tests.unit.drills.test_fences import Notes
from tests.unit.drills.test_switching import enrolment


class Chain:
    """A journal in memory."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []

    def add(self, drill: str, what: str, said: dict[str, Any] | None = None) -> None:
        self.entries.append(chains.next_entry(self.entries, drill, what, 0, said or {}))

    def journal(self, is_alive: bool) -> DrillJournal:
        stand_in = SimpleNamespace(read=lambda: self.entries, is_alive=lambda _: is_alive)
        return cast(DrillJournal, stand_in)


class Steps(PlannedSteps):
    """Topic a, which this drill has promoted."""

    def _live(self, state: FlowState | None = None) -> dict[str, Enrolment]:
        return dict(self.enrolled)


@pytest.mark.parametrize(("principal", "lifted"), [("User:*", [["a"]]), ("User:app", [])])
def test_a_fence_that_shuts_everybody_out_is_lifted_although_the_way_back_does_not_begin(
    principal: str, lifted: list[list[str]]
) -> None:
    """The source holds records of its own, say: that is for a person, who would not know of the fence."""
    heard: list[list[str]] = []

    def lift(_: Notes, topics: Collection[str], __: Deadline) -> dict[str, Any]:
        heard.append(sorted(topics))
        return {}

    def refuses(_: Collection[str]) -> Any:
        raise NeedsOperator("it holds records of its own", code="ORPHANS")

    notes = Notes()
    notes.write(chains.FENCED, {"kind": "acls", "marks": [["a", principal], ["other", "User:*"]]})
    parts = SimpleNamespace(reverse=refuses, lifted=SimpleNamespace(lift=lift))
    steps = Steps(cast(Any, parts), "d1", "d1", {"a": enrolment("a", "d1")}, True, notes, cast(Any, None))
    with pytest.raises(NeedsOperator, match="of its own"):
        steps.reverse(Deadline(5.0))
    assert heard == lifted


@pytest.mark.parametrize("is_sure", [True, False])
def test_without_the_target_the_fence_of_one_that_was_killed_is_lifted_too(*, is_sure: bool) -> None:
    """As *look* has found it in the journal, while nobody can have taken this one over: then it is theirs."""
    notes, given_up = Notes(), list[object]()
    notes.sure = is_sure
    notes.write(chains.FENCED, {"kind": "acls", "marks": [["a", "User:*"], ["other", "User:*"]]})

    def gone(*_: object) -> Any:
        raise Retriable("no broker of west answers")

    def give_up(_: object, inherited: object) -> str:
        given_up.append(inherited)
        return "1 ACLs are deleted"

    made = SimpleNamespace(how="DENY WRITE for User:*")
    sides = {"source": SimpleNamespace(alias="east"), "target": SimpleNamespace(alias="west")}
    lifted = SimpleNamespace(give_up=give_up)
    parts = SimpleNamespace(flow="orders-dr", look=gone, fence=made, lifted=lifted, **sides)
    steps = Steps(cast(Any, parts), "d2", "d2", {"a": enrolment("a")}, True, notes, cast(Any, None))
    with pytest.raises(Retriable):
        steps.look(Deadline(5.0))
    steps._not_promoted = gone  # pyrefly: ignore[method-assign]
    with pytest.raises(Retriable):
        steps.undo(Deadline(5.0))
    told = dict(steps.findings)["STILL_FENCED"]
    if is_sure:
        assert given_up == [{"acls": {("a", "User:*")}}]
        assert "1 ACLs are deleted" in told
        return
    assert given_up == []
    for part in (
        "a (1 topics)",
        "east (DENY WRITE for User:*)",
        "`onceover drill abort orders-dr`",
        "by hand",
    ):
        assert part in told, part


@pytest.mark.parametrize(
    "error",
    [
        Retriable("no broker of east answers"),
        NeedsOperator("the switchover's command did not unfence", code=DrillCode.COMMAND_FAILED),
    ],
)
@pytest.mark.parametrize("began", [True, False])
def test_writers_that_could_not_be_let_in_are_told_whatever_it_was(
    error: OnceoverError, *, began: bool
) -> None:
    """The source is away, or the program for it has failed."""
    notes = Notes()

    def fails(*_: object) -> Any:
        raise error

    sides = {"source": SimpleNamespace(alias="east"), "target": SimpleNamespace(alias="west")}
    made = SimpleNamespace(how="DENY WRITE for User:*", make=lambda *_: {})
    lifted = SimpleNamespace(lift=fails, give_up=fails)
    parts = SimpleNamespace(flow="orders-dr", fence=made, lifted=lifted, **sides)
    steps = Steps(cast(Any, parts), "d2", "d2", {"a": enrolment("a")}, True, notes, cast(Any, None))
    steps._not_promoted = lambda: ["a"]  # pyrefly: ignore[method-assign]
    if began:
        steps.fence(Deadline(5.0))
    with pytest.raises(type(error), match=error.message):
        steps.undo(Deadline(5.0))
    found = dict(steps.findings)
    assert list(found) == (["STILL_FENCED"] if began else [])
    text = (
        f"writers of a (1 topics) are kept off east still: {error.message}. `onceover drill abort orders-dr`"
    )
    assert not began or text in found["STILL_FENCED"]


@pytest.mark.parametrize(
    ("began", "promoting", "other", "told"),
    [
        (True, False, False, "2 ACLs are deleted, though the journal does not know of it any more"),
        (True, True, False, "let them in by hand"),
        (True, False, True, "let them in by hand"),
        (False, False, False, None),
    ],
)
def test_whoever_has_lost_its_journal_lets_in_whom_it_keeps_off(
    told: str | None, *, began: bool, promoting: bool, other: bool
) -> None:
    """Its topic was deleted: no other drill, and no abort, will ever know of this fence."""
    notes = Notes()

    def unknown() -> None:
        raise NeedsOperator("the journal knows nothing of drill d2", code=DrillCode.JOURNAL_DAMAGED)

    def nothing(*_: object) -> Any:
        return {}

    sides = {"source": SimpleNamespace(alias="east"), "target": SimpleNamespace(alias="west")}
    made = SimpleNamespace(how="DENY WRITE for User:*", make=nothing)
    lifted = SimpleNamespace(lift=nothing, give_up=lambda *_: "2 ACLs are deleted")
    parts = SimpleNamespace(flow="orders-dr", fence=made, lifted=lifted, **sides)
    steps = Steps(cast(Any, parts), "d2", "d2", {"a": enrolment("a")}, True, notes, cast(Any, None))
    steps._not_promoted = lambda: ["a"]  # pyrefly: ignore[method-assign]
    if began:
        steps.fence(Deadline(5.0))
    steps._began_promoting = promoting
    if other:
        notes.write(chains.BEGUN, {"mode": "planned"})
    notes.check = unknown  # pyrefly: ignore[method-assign]
    with pytest.raises(NeedsOperator, match="knows nothing of drill d2"):
        steps.undo(Deadline(5.0))
    assert [(code, told in text) for code, text in steps.findings if told] == (
        [] if told is None else [("STILL_FENCED", True)]
    )
    assert bool(steps.findings) == began


@pytest.mark.parametrize("began", [True, False])
def test_who_is_cut_off_from_the_target_names_a_fence_that_it_may_have_made(*, began: bool) -> None:
    """And none where it has not come to that."""

    def away(*_: object, **__: object) -> Any:
        raise Retriable("no broker of west answers")

    notes = Notes()
    notes.sure = False
    sides = {"source": SimpleNamespace(alias="east"), "target": SimpleNamespace(alias="west")}
    made = SimpleNamespace(how="./switch fence", make=away)
    parts = SimpleNamespace(flow="orders-dr", fence=made, lifted=None, **sides)
    steps = Steps(cast(Any, parts), "d2", "d2", {"a": enrolment("a")}, True, notes, cast(Any, None))
    steps._not_promoted = away  # pyrefly: ignore[method-assign]
    if began:
        with pytest.raises(Retriable):
            steps.fence(Deadline(5.0))
    with pytest.raises(Retriable):
        steps.undo(Deadline(5.0))
    assert [code for code, _ in steps.findings] == (["STILL_FENCED"] if began else [])


def test_nothing_is_promoted_behind_a_fence_that_somebody_has_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody has written in the moment since, perhaps; behind the promotion it is told."""
    asked: list[object] = []

    def gone(marks: object) -> list[str]:
        asked.append(marks)
        return ["a"]

    notes = Notes()
    notes.write(chains.FENCED, {"kind": "acls", "marks": [["a", "User:*"], ["other", "User:*"]]})
    made = SimpleNamespace(kind="acls", how="DENY WRITE for User:*", gone=gone)
    parts = SimpleNamespace(flow="orders-dr", fence=made)
    steps = Steps(cast(Any, parts), "d1", "d1", {"a": enrolment("a")}, True, notes, cast(Any, None))
    monkeypatch.setattr(Steps, "_check_same", lambda *_: None)
    with pytest.raises(NeedsOperator) as refused:
        steps._check_topics([])
    assert (refused.value.code, refused.value.where) == ("FENCE_LEAKS", "a")
    steps._name_leaks()
    assert [code for code, _ in steps.findings] == ["FENCE_LEAKS"]
    assert asked == [{("a", "User:*")}] * 2
    made.gone = lambda _: []
    steps._check_topics([])


def test_that_nobody_tells_whether_the_fence_stands_keeps_nothing_from_being_done() -> None:
    def away(_: object) -> Any:
        raise Retriable("no broker of east answers")

    parts = SimpleNamespace(fence=SimpleNamespace(kind="acls", gone=away))
    steps = Steps(cast(Any, parts), "d1", "d1", {}, True, Notes(), cast(Any, None))
    steps._name_leaks()
    assert [code for code, _ in steps.findings] == ["NOT_COMPARED"]


NEED = {"code": "ACL_WITHHELD", "message": "a DENY limits it", "resolve": "resolve it", "exit": 3}
PROBLEM = {"message": "may not see", "where": "east", "resolve": "grant DESCRIBE"}


@pytest.mark.parametrize(("exit_code", "kind"), [(5, Retriable), (3, NeedsOperator), (2, NeedsOperator)])
def test_what_cannot_be_looked_at_is_tried_again_only_where_that_may_help(
    exit_code: int, kind: type[OnceoverError]
) -> None:
    """With its way out; a need that does not block holds nobody up, and what needs a person comes first."""
    found = {
        "status": "copying",
        "losses": [],
        "needs": [{**NEED, "blocks": False}],
        "problems": {"groups": {**PROBLEM, "exit": 5}, "topics": {**PROBLEM, "exit": exit_code}},
    }
    parts = SimpleNamespace(flow="f", look=lambda: found, fence=None)
    steps = Steps(cast(Any, parts), "d2", "d2", {}, True, Notes(), cast(Any, None))
    with pytest.raises(kind, match="cannot be looked at: may not see") as caught:
        steps.look(Deadline(5.0))
    assert (caught.value.where, caught.value.resolve) == ("east", "grant DESCRIBE")


BUSY = NeedsOperator("drill r1 of flow back is running", code=DrillCode.DRILL_RUNS, resolve="wait for it")
ENDING = Retriable("drill r1 of flow back is running, to its end", code=DrillCode.DRILL_RUNS)


@pytest.mark.parametrize("left_s", [600.0, 0.0])
@pytest.mark.parametrize("busy", [BUSY, ENDING])
def test_a_rehearsal_the_other_way_is_waited_for_before_writers_are_let_in(
    left_s: float, busy: OnceoverError
) -> None:
    """It began behind the look; until it ends nobody can write on either side, and trying again may help."""
    answers: list[Any] = [busy, busy, {"let_in": {"acls": 1}}]

    def let_in(_: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, OnceoverError):
            raise answer
        return answer

    sides = {"source": SimpleNamespace(alias="east"), "target": SimpleNamespace(alias="west")}
    parts = SimpleNamespace(flow="f", let_in=let_in, redirect=lambda *_: {"moved": True}, **sides)
    steps = Steps(cast(Any, parts), "d1", "d1", {"a": enrolment("a", "d1")}, True, Notes(), cast(Any, None))
    if left_s:
        assert steps.redirect(Deadline(left_s)) == {"let_in": {"acls": 1}, "moved": True}
        return
    with pytest.raises(Retriable, match="drill r1 of flow back is running"):
        steps.redirect(Deadline(left_s))


@pytest.mark.parametrize("left_s", [600.0, 0.0])
def test_a_rehearsal_the_other_way_is_waited_for_before_anybody_is_kept_off(left_s: float) -> None:
    answers = ["r1", "r1", None]
    target = SimpleNamespace(alias="west")
    parts = SimpleNamespace(target=target, back="back", in_the_way=lambda _: answers.pop(0))
    steps = Steps(cast(Any, parts), "d1", "d1", {"a": enrolment("a")}, True, Notes(), cast(Any, None))
    if left_s:
        steps._await_way(Deadline(left_s))
        assert answers == []
        return
    with pytest.raises(Retriable, match="drill r1 of flow back runs") as caught:
        steps._await_way(Deadline(left_s))
    assert "`onceover drill abort back`" in str(caught.value.resolve)


@pytest.mark.parametrize(
    ("fenced", "is_alive", "found"), [("a", True, "r1"), ("other", True, None), ("a", False, None)]
)
def test_only_a_living_drill_of_a_flow_that_keeps_somebody_off_these_topics_is_in_the_way(
    fenced: str, is_alive: bool, found: str | None
) -> None:
    chain = Chain()
    chain.add("d0", chains.BEGUN)
    chain.add("d0", chains.FENCED, {"kind": "acls", "marks": [[fenced, "User:*"]]})
    chain.add("d0", chains.ENDED)
    assert in_the_way(chain.journal(is_alive), ["a", "b"], ["acls"]) is None
    chain.add("r1", chains.BEGUN)
    assert in_the_way(chain.journal(is_alive), ["a", "b"], ["acls"]) == found


def test_a_fence_that_nobody_can_lift_any_more_is_named_before_anybody_is_kept_off() -> None:
    """The other flow's file has lost its command: behind the promotion no run would get past it."""
    chain = Chain()
    chain.add("d0", chains.BEGUN)
    chain.add("d0", chains.FENCED, {"kind": "command", "marks": [["a", "-"]]})
    chain.add("d0", chains.ENDED)
    journal = chain.journal(is_alive=False)
    with pytest.raises(NeedsOperator, match="1 topics are fenced by command") as caught:
        in_the_way(journal, ["a", "b"], ["acls", "person"])
    assert "`switchover.command`" in str(caught.value.resolve)
    assert in_the_way(journal, ["b"], ["acls", "person"]) is None
    assert in_the_way(journal, ["a", "b"], ["acls", "command"]) is None


def test_who_cannot_let_writers_in_is_told_how_to_go_on_without_the_source() -> None:
    """It has died behind the promotion, and may be gone for good."""

    def gone(*_: object) -> Any:
        raise Retriable("no broker of east answers")

    sides = {"source": SimpleNamespace(alias="east"), "target": SimpleNamespace(alias="west")}
    parts = SimpleNamespace(flow="orders-dr", let_in=gone, **sides)
    steps = Steps(cast(Any, parts), "d1", "d1", {"a": enrolment("a", "d1")}, True, Notes(), cast(Any, None))
    with pytest.raises(Retriable, match="no broker of east answers") as caught:
        steps.redirect(Deadline(5.0))
    assert "`onceover drill run orders-dr --mode unplanned` goes on without it" in str(caught.value.resolve)
