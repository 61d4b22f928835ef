"""Whose answer counts: a sealed one of this very question, by a person, by another where that is asked."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from onceover.engine.approval import NOTHING, Approval, Consent, Item
from onceover.errors import UsageError
from onceover_airflow.approval import ANSWER_KEY, SHOWN_KEY, PlanApprovalOperator, Question, approved
from onceover_airflow.seal import opened, sealed
from tests.unit.airflow import asking
from tests.unit.airflow.asking import RETURNED, Exchange

TASK = "approve"
ITEM = Item("position orders:0", "skip", 5)


class Ask(PlanApprovalOperator):
    """Asks about one item."""

    def ask(self, context: Any) -> Question:
        """Return the question."""
        return Question([ITEM], "body", "text")


def asked(
    answer: str | None = "Approve",
    by: str | None = "anna",
    *,
    started_by: str | None = "ben",
    kind: str = "manual",
) -> Any:
    """Put the question, answer it, return the context of the task that does it."""
    run = SimpleNamespace(triggering_user_name=started_by, run_type=SimpleNamespace(value=kind))
    context: Any = {"ti": Exchange(), "dag_run": run}
    asking.ask(Ask(task_id=TASK, subject="s"), context, answer, by)
    return context


def kept(context: Any) -> dict[tuple[str, str], Any]:
    """Return the XComs of the run, for somebody who may change them."""
    exchange: Exchange = context["ti"]
    return exchange.kept


def test_who_said_yes_is_known_to_the_task_that_does_it() -> None:
    """And who had asked, and where: all of it goes into the journal."""
    found = approved(asked(), TASK)
    assert found.items == {ITEM.what: ITEM}
    assert found.consent == Consent("anna", "ben", "a_dag/a_run")
    assert found.consent.document() == {"by": "anna", "started_by": "ben", "run": "a_dag/a_run"}


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


@pytest.mark.parametrize(
    ("by", "started_by", "kind", "good"),
    [
        ("anna", "ben", "manual", True),
        ("anna", "anna", "manual", False),
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
    monkeypatch.setattr("onceover_airflow.approval.time.time", lambda: later_s)
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


def test_a_key_that_is_none_is_named(home: Path) -> None:
    """Nothing is sealed with half of one."""
    home.mkdir()
    (home / "approval_key").write_bytes(b"x")
    with pytest.raises(UsageError, match="damaged") as caught:
        sealed({})
    assert caught.value.where == str(home / "approval_key")


def test_every_line_of_a_journal_names_who_said_yes(tmp_path: Path) -> None:
    """The command line names nobody: it was who typed it."""
    lines = list(_journal(tmp_path / "a", approved(asked(), TASK))) + list(_journal(tmp_path / "b", None))
    assert [line["approved"] and line["approved"]["by"] for line in lines] == ["anna", None]


def _journal(path: Path, given: Approval | None) -> Iterable[dict[str, Any]]:
    from onceover.engine.journal import Journal
    from onceover.errors import Retriable

    with Journal(path, given) as journal:
        journal.failed(Retriable("away"))
    return [json.loads(line) for line in path.read_text().splitlines()]
