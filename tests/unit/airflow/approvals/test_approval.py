"""Whose answer counts: a sealed one of this very question, by a person, by another where that is asked."""

from __future__ import annotations

import itertools
import json
import os
import stat
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from onceover.errors import UsageError
from onceover.planning.approval import NOTHING, Approval, Consent, Item
from onceover_airflow.approvals.approval import (
    ANSWER_KEY,
    SHOWN_KEY,
    PlanApprovalOperator,
    Question,
    approved,
)
from onceover_airflow.approvals.seal import KEY_VARIABLE, opened, sealed
from onceover_airflow.errors import JobInterrupted
from tests.unit.airflow import asking
from tests.unit.airflow.asking import RETURNED, Exchange

TASK = "approve"
ITEM = Item("position orders:0", "skip", 5)


class Ask(PlanApprovalOperator):
    """Asks about one item."""

    def ask(self, context: Any) -> Question:
        """Return the question."""
        return Question([ITEM], "body", "text")


BEGUN = itertools.count()


def asked(
    answer: str | None = "Approve",
    by: str | None = "anna",
    *,
    started_by: str | None = "ben",
    kind: str = "manual",
) -> Any:
    """Put the question, answer it, return the context of the task that does it."""
    context = started(None, started_by=started_by, kind=kind)
    asking.ask(Ask(task_id=TASK, subject="s"), context, answer, by)
    return context


def started(run_id: str | None = "a_run", *, started_by: str | None = "ben", kind: str = "manual") -> Any:
    """Start a run; return the context of its tasks. Airflow knows when it began, and nobody says so to it."""
    run = SimpleNamespace(
        triggering_user_name=started_by,
        run_type=SimpleNamespace(value=kind),
        start_date=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=next(BEGUN)),
        clear_number=0,
    )
    return {"ti": Exchange(run_id), "dag_run": run, "params": {"topic": "orders"}}


def kept(context: Any) -> dict[tuple[str, str], Any]:
    """Return the XComs of the run, for somebody who may change them."""
    exchange: Exchange = context["ti"]
    return exchange.kept


def test_who_said_yes_is_known_to_the_task_that_does_it() -> None:
    """And who had asked, and where: all of it goes into the journal."""
    context = asked()
    found = approved(context, TASK)
    assert found.items == {ITEM.what: ITEM}
    run = f"a_dag/{context['ti'].run_id}"
    assert found.consent is not None
    assert found.consent == Consent("anna", "ben", run, found.consent.waited_s)
    told = found.consent.document()
    waited_s = told.pop("waited_s")
    # Asked and answered within a millisecond is 0.0, and known all the same.
    assert isinstance(waited_s, float) and 0.0 <= waited_s < 60.0
    assert told == {"by": "anna", "started_by": "ben", "run": run}


@pytest.mark.parametrize("answer", ["Reject", None])
def test_no_yes_is_no_approval(answer: str | None) -> None:
    """Rejected, or not answered: also where the asking task was marked as a success."""
    assert approved(asked(answer), TASK) is NOTHING


def forged_answer(context: Any) -> None:
    """The task is marked as a success, and its result is typed in."""
    yes = {"chosen_options": ["Approve"], "params_input": {}, "responded_by_user": {"id": "x", "name": "x"}}
    kept(context)[TASK, RETURNED] = yes


def test_a_result_that_somebody_typed_in_is_no_answer() -> None:
    context = asked(None)
    forged_answer(context)
    assert approved(context, TASK) is NOTHING


def unsealed(context: Any) -> None:
    kept(context)[TASK, ANSWER_KEY] = {**opened(kept(context)[TASK, SHOWN_KEY]), "by": "x"}


def shown_for_answered(context: Any) -> None:
    kept(context)[TASK, ANSWER_KEY] = kept(context)[TASK, SHOWN_KEY]


def other_items(context: Any) -> None:
    answer = kept(context)[TASK, ANSWER_KEY] = dict(kept(asked())[TASK, ANSWER_KEY])
    answer["text"] = answer["text"].replace("orders:0", "orders:1")


def other_person(context: Any) -> None:
    answer = kept(context)[TASK, ANSWER_KEY] = dict(kept(asked())[TASK, ANSWER_KEY])
    answer["text"] = answer["text"].replace("anna", "carl")


def of_another_run(context: Any) -> None:
    answer = opened(kept(asked())[TASK, ANSWER_KEY])
    kept(context)[TASK, ANSWER_KEY] = sealed({**answer, "run": "another"})


def nonsense(context: Any) -> None:
    kept(context)[TASK, ANSWER_KEY] = {"text": 1, "seal": None}


@pytest.mark.parametrize(
    "forge", [unsealed, shown_for_answered, other_items, other_person, of_another_run, nonsense]
)
def test_an_answer_that_the_task_was_not_given_is_refused(forge: Callable[[Any], None]) -> None:
    """Whoever may write XComs approves nothing with that."""
    context = asked(None)
    forge(context)
    with pytest.raises(AirflowFailException):
        approved(context, TASK)


def test_what_was_shown_cannot_be_changed_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A yes to one plan would be one to another."""
    context = asked(None)
    shown = kept(context)[TASK, SHOWN_KEY]
    shown["text"] = shown["text"].replace("orders:0", "orders:1")
    monkeypatch.setattr(Ask, "execute", lambda *_: None)
    with pytest.raises(AirflowFailException, match="not written by it"):
        asking.ask(Ask(task_id=TASK, subject="s"), context)


def test_an_answer_by_nobody_is_none() -> None:
    """A task can answer itself; that is not a person."""
    with pytest.raises(AirflowFailException, match="nobody knows who has approved"):
        approved(asked(by=None), TASK)


def put(context: Any, answer: str | None = "Approve", meanwhile: Callable[[], None] = lambda: None) -> None:
    """Put the question of a run."""
    asking.ask(Ask(task_id=TASK, subject="s"), context, answer, meanwhile=meanwhile)


def test_what_another_question_has_shown_is_not_what_is_answered() -> None:
    """A run was deleted, and its id used again: what it showed is sealed, and may be put back by anybody."""
    first, second = started(), started()
    put(first, None)
    for path in (Path(os.environ["ONCEOVER_HOME"]) / "approval_questions").iterdir():
        path.unlink()  # on another machine, that shares no folder

    def swap() -> None:
        kept(second)[TASK, SHOWN_KEY] = kept(first)[TASK, SHOWN_KEY]

    with pytest.raises(AirflowFailException, match="another question"):
        put(second, meanwhile=swap)
    assert (TASK, ANSWER_KEY) not in kept(second)


def test_what_an_earlier_try_has_shown_is_not_what_is_answered() -> None:
    """Within one run, too: the id of a try is nobody's choice."""
    context = started()

    def swap() -> None:
        shown = opened(kept(context)[TASK, SHOWN_KEY])
        kept(context)[TASK, SHOWN_KEY] = sealed({**shown, "question": "another"})

    with pytest.raises(AirflowFailException, match="question another"):
        put(context, meanwhile=swap)


def begun_again(context: Any) -> None:
    """Somebody deletes the run and starts one of the same name, or sets the run going again."""
    context["dag_run"].start_date += timedelta(seconds=1)


def other_wish(context: Any) -> None:
    context["params"] = {"topic": "payments"}


def other_starter(context: Any) -> None:
    context["dag_run"].triggering_user_name = "carl"


@pytest.mark.parametrize("change", [begun_again, other_wish, other_starter])
def test_an_answer_counts_in_the_run_that_asked(change: Callable[[Any], None]) -> None:
    """Whoever kept it puts it back in vain."""
    context = asked()
    change(context)
    with pytest.raises(AirflowFailException, match="another question"):
        approved(context, TASK)


def test_an_answer_counts_for_the_tries_of_one_task() -> None:
    """An interruption is none of its end; who clears the task that has done it is to ask again."""
    context = asked()
    context["ti"].tried_again()
    assert approved(context, TASK) != NOTHING
    context["ti"].tried_again(cleared=True)
    with pytest.raises(AirflowFailException, match="used before"):
        approved(context, TASK)


@pytest.mark.parametrize("answer", ["Approve", "Reject", None])
@pytest.mark.parametrize("cleared", [True, False])
def test_a_run_puts_its_question_once(answer: str | None, *, cleared: bool) -> None:
    """Cleared when it was answered, or while its process took the answer, which makes another try."""
    context = asked(answer)
    context["ti"].tried_again(cleared=cleared)
    with pytest.raises(AirflowFailException, match="puts it once"):
        put(context)


def test_a_run_of_a_name_that_was_used_does_not_ask() -> None:
    put(started(), "Reject")
    with pytest.raises(AirflowFailException, match="puts it once"):
        put(started())


def test_a_try_that_was_interrupted_before_it_asked_is_followed_by_one_that_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster was away."""

    def away(*_: object) -> Question:
        raise JobInterrupted("away")

    context = started()
    with monkeypatch.context() as patch:
        patch.setattr(Ask, "ask", away)
        with pytest.raises(JobInterrupted):
            put(context)
    context["ti"].tried_again()
    put(context)
    assert approved(context, TASK) != NOTHING


def test_who_clears_anothers_run_is_not_another_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow tells no task who has cleared it; with one person it would be one alone."""
    cleared = started()
    cleared["dag_run"].clear_number = 1
    monkeypatch.setenv("ONCEOVER_APPROVER", "another")
    with pytest.raises(AirflowFailException, match="was cleared"):
        put(cleared)
    monkeypatch.setenv("ONCEOVER_APPROVER", "anyone")
    put(cleared)
    assert approved(cleared, TASK) != NOTHING


def test_questions_of_long_ago_are_forgotten(home: Path) -> None:
    """Nobody can answer them any more, and a folder that grows for ever is looked at for ever."""
    put(started("old"))
    (old,) = (home / "approval_questions").iterdir()
    os.utime(old, (0, 0))
    put(started("new"))
    (new,) = (home / "approval_questions").iterdir()
    assert new != old


@pytest.mark.parametrize(
    ("by", "started_by", "kind", "good"),
    [
        ("anna", "ben", "manual", True),
        ("anna", "anna", "manual", False),
        ("Anna", "anna", "manual", False),
        ("anna ", "anna", "manual", False),
        ("ＡＮＮＡ", "anna", "manual", False),
        ("annabel", "anna", "manual", True),
        ("anna", None, "manual", False),
        ("anna", None, "backfill", False),
        ("anna", None, "scheduled", True),
        ("anna", "anna", "asset_triggered", False),
        ("anna", None, "asset_triggered", True),
    ],
)
def test_another_person_may_be_required(
    monkeypatch: pytest.MonkeyPatch, by: str, started_by: str | None, kind: str, good: bool
) -> None:
    """Not the one who started the run; who is not known cannot be another."""
    context = asked(by=by, started_by=started_by, kind=kind)
    assert approved(context, TASK) != NOTHING
    monkeypatch.setenv("ONCEOVER_APPROVER", "another")
    if good:
        assert approved(context, TASK) != NOTHING
    else:
        with pytest.raises(AirflowFailException, match="ONCEOVER_APPROVER"):
            approved(context, TASK)


def test_a_misspelt_rule_is_refused_before_anybody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for the default it would let everybody pass."""
    context = asked()
    monkeypatch.setenv("ONCEOVER_APPROVER", "other")
    with pytest.raises(AirflowFailException, match="anyone or another"):
        approved(context, TASK)
    with pytest.raises(AirflowFailException, match="anyone or another"):
        asked()


def test_an_answer_of_days_ago_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    context = asked()
    later_s = time.time() + 5 * 86_400
    monkeypatch.setattr("onceover_airflow.approvals.approval.time.time", lambda: later_s)
    with pytest.raises(AirflowFailException, match="5 days ago"):
        approved(context, TASK)


def test_the_key_is_its_owners_alone_and_stays(home: Path) -> None:
    """With another one, answers that are waited for would be lost."""
    first = sealed({"a": 1})
    path = home / "approval_key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (sealed({"a": 1}), [each.name for each in home.iterdir()]) == (first, [path.name])
    assert path.read_bytes() not in json.dumps(first).encode()
    path.unlink()
    with pytest.raises(UsageError, match="not written by it"):
        opened(first)


def test_the_key_may_lie_where_no_executor_is(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share ONCEOVER_HOME with the driver, and what they run is somebody's code."""
    path = tmp_path / "airflow" / "key"
    monkeypatch.setenv(KEY_VARIABLE, str(path))
    first = sealed({"a": 1})
    assert (opened(first), stat.S_IMODE(path.stat().st_mode)) == ({"a": 1}, 0o600)
    assert not (home / "approval_key").exists()
    path.write_bytes(b"x")
    with pytest.raises(UsageError, match="damaged") as caught:
        opened(first)
    assert caught.value.where == str(path)


def test_a_key_that_is_none_is_named(home: Path) -> None:
    """Nothing is sealed with half of one."""
    home.mkdir()
    (home / "approval_key").write_bytes(b"x")
    (home / "approval_key").chmod(0o600)
    with pytest.raises(UsageError, match="damaged") as caught:
        sealed({})
    assert caught.value.where == str(home / "approval_key")


@pytest.mark.parametrize(("mode", "good"), [(0o600, True), (0o400, True), (0o644, False), (0o660, False)])
def test_a_key_that_others_can_read_is_not_used(home: Path, mode: int, *, good: bool) -> None:
    """A copy of it made by `cp`, say: who reads it seals what they like."""
    made = sealed({"a": 1})
    (home / "approval_key").chmod(mode)
    if good:
        assert opened(made) == {"a": 1}
    else:
        with pytest.raises(UsageError, match=f"mode {mode:04o}") as caught:
            opened(made)
        assert caught.value.code == "APPROVAL_KEY"


def test_a_key_of_somebody_else_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose it is may give it to anybody."""
    made = sealed({"a": 1})
    status = os.stat_result((0o100600, 0, 0, 1, 4711, 0, 32, 0, 0, 0))
    monkeypatch.setattr("onceover.private.os.fstat", lambda _: status)
    with pytest.raises(UsageError, match="it belongs to user id"):
        opened(made)


def test_every_line_of_a_journal_names_who_said_yes(tmp_path: Path) -> None:
    """The command line names nobody: it was who typed it."""
    lines = list(_journal(tmp_path / "a", approved(asked(), TASK))) + list(_journal(tmp_path / "b", None))
    assert [line["approved"] and line["approved"]["by"] for line in lines] == ["anna", None]


def _journal(path: Path, given: Approval | None) -> Iterable[dict[str, Any]]:
    from onceover.errors import Retriable
    from onceover.planning.journal import Journal

    with Journal(path, given) as journal:
        journal.failed(Retriable("away"))
    return [json.loads(line) for line in path.read_text().splitlines()]
