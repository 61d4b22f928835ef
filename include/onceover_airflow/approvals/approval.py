"""Asking a person before anything is done that they should know of.

Invariant: what is shown is the plan as it is when the question is put, all of it in the log of the task that
asks; exactly that is kept as approved, with who has approved it, for the task that does it. That reads the
answer itself, under the seal of the task that was given it: no state of a task, and no XCom that somebody has
written or kept, stands for an answer. It counts once, in the run that asked (module ``asked``). Nobody asked,
rejected, or asked too long ago: nothing is approved.
"""

from __future__ import annotations

import logging
import os
import time
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.standard.operators.hitl import ApprovalOperator

from onceover.errors import UsageError
from onceover.shown import screen
from onceover_airflow.access.flowcontext import errors_of_ours, log_text
from onceover_airflow.approvals import asked
from onceover_airflow.approvals.markdown import Inline
from onceover_airflow.approvals.seal import opened, sealed
from onceover_airflow.codes import AirflowCode

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.planning.approval import Approval, Consent, Item

log = logging.getLogger(__name__)

# Nobody answered: nothing is done. Long enough for a weekend.
ANSWER_WITHIN: Final = timedelta(days=3)
# The tries after an answer take minutes.
_GOOD_FOR: Final = ANSWER_WITHIN + timedelta(days=1)
# A page of changes helps nobody to decide; the log of the task that asks has all.
MAX_LISTED: Final = 30
SHOWN_KEY: Final = "onceover_shown"
ANSWER_KEY: Final = "onceover_answer"
# Whether somebody may approve what they have started themselves.
APPROVER_VARIABLE: Final = "ONCEOVER_APPROVER"
ANYONE: Final = "anyone"
ANOTHER: Final = "another"
# Runs that a flow's file, or another DAG, has asked for.
_UNATTENDED: Final = ("scheduled", "asset_triggered")


@dataclass(frozen=True)
class Question:
    """What a person is asked.

    Args:
        items: what they approve with a yes.
        body: Markdown for the page.
        text: all of the plan, for the log.
    """

    items: Iterable[Item]
    body: str
    text: str


class PlanApprovalOperator(ApprovalOperator):
    """Ask a person about a plan. Not answered in time counts as rejected: nothing is changed."""

    def __init__(self, *, subject: str, **kwargs: Any) -> None:
        super().__init__(subject=subject, defaults=self.REJECT, response_timeout=ANSWER_WITHIN, **kwargs)

    @abstractmethod
    def ask(self, context: Context) -> Question:
        """Return the question about the plan as it is now.

        Raises:
            AirflowSkipException: there is nothing to ask.
            JobInterrupted: a cluster does not answer; tried again.
            AirflowFailException: it cannot be done; or any other error.
        """

    def execute(self, context: Context) -> Any:
        """Put the question, or skip it. Raises as ``ask``."""
        from onceover.planning.approval import Approval

        with errors_of_ours():
            rule = _rule()
            question = self.ask(context)
            if rule == ANOTHER and asked.was_run_cleared(context):
                raise _cleared()
            asked.put_once(context)
            log_text(log, question.text)
            shown = {**Approval.of(question.items).to_json(), **asked.origin_of(context, self.task_id)}
            own = {"question": asked.question_id(context), "asked_s": time.time()}
            context["ti"].xcom_push(SHOWN_KEY, sealed({**shown, **own}))
        self.body = question.body
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Keep the answer, which Airflow hands to this task alone, under its seal."""
        answer = super().execute_complete(context, event)
        if answer and answer["chosen_options"] == [self.APPROVE]:
            by = (answer["responded_by_user"] or {}).get("name")
            task_instance = context["ti"]
            with errors_of_ours():
                shown = opened(task_instance.xcom_pull(task_ids=self.task_id, key=SHOWN_KEY))
                asked.check_origin(shown, context, self.task_id)
                asked.check_question(shown, context)
                task_instance.xcom_push(ANSWER_KEY, sealed({**shown, "by": by, "answered_s": time.time()}))
        return answer


def approved(context: Context, task_id: str) -> Approval:
    """Return what a person was shown by the task ``task_id`` and said yes to; nothing where nobody has.

    Raises:
        AirflowFailException: that was days ago; nobody knows who it was; it was who started the run, and has
            to be somebody else; the answer was used before, or is not the one that the task was given.
    """
    from onceover.planning.approval import NOTHING, Approval, Consent

    found = context["ti"].xcom_pull(task_ids=task_id, key=ANSWER_KEY)
    if not found:
        return NOTHING
    with errors_of_ours():
        answer = opened(found)
        asked.check_origin(answer, context, task_id)
        asked.check_uncleared(context)
        _check_age(answer["asked_s"])
        waited_s = round(answer["answered_s"] - answer["asked_s"], 3) if "answered_s" in answer else None
        run = f"{answer['dag']}/{answer['run']}"
        consent = Consent(answer.get("by") or "", _starter(context), run, waited_s)
        _check_person(consent, context)
    log.info("approved by %s; started by %s", screen(consent.by), screen(consent.started_by or "nobody"))
    return replace(Approval.from_json(answer), consent=consent)


def was_refused(context: Context, task_id: str) -> bool:
    """Tell whether the task ``task_id`` has put a question of this run, and nobody has said yes to it."""
    pull = context["ti"].xcom_pull
    return bool(pull(task_ids=task_id, key=SHOWN_KEY)) and not pull(task_ids=task_id, key=ANSWER_KEY)


def _check_age(asked_s: float) -> None:
    age = timedelta(seconds=time.time() - asked_s)
    if age > _GOOD_FOR:
        raise UsageError(
            f"what was approved was shown {age.days} days ago",
            code=AirflowCode.APPROVAL_TOO_OLD,
            expected=f"at most {_GOOD_FOR.days}",
            resolve="start the DAG again",
        )


def _check_person(consent: Consent, context: Context) -> None:
    if not consent.by:
        raise UsageError(
            "nobody knows who has approved it", code=AirflowCode.NO_APPROVER, resolve="start the DAG again"
        )
    if _rule() == ANYONE:
        return
    unknown = consent.started_by is None and _by_hand(context)
    if unknown or _is_one_person(consent.by, consent.started_by):
        raise UsageError(
            "nobody knows who has started the run" if unknown else f"{consent.by} has also started the run",
            code=AirflowCode.SAME_PERSON,
            expected=f"an approval by another person than the one who started it ({APPROVER_VARIABLE})",
            seen=f"approved by {consent.by}",
            resolve="start the DAG again, and let somebody else answer",
        )


def _is_one_person(name: str, other: str | None) -> bool:
    """Tell whether two logins may be one person's: a directory lets Anna in as anna, too, or with a blank.

    Where Airflow is told to keep such logins apart, it has a user for each, and who has one has the other.
    """
    return other is not None and _plain(name) == _plain(other)


def _plain(name: str) -> str:
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def _cleared() -> UsageError:
    return UsageError(
        "the run was cleared, and nobody knows by whom: who answers may be alone with it",
        code=AirflowCode.SAME_PERSON,
        expected=f"two persons, of whom one has started the run ({APPROVER_VARIABLE})",
        resolve="start the DAG again, and let somebody else answer",
    )


def _rule() -> str:
    rule = os.environ.get(APPROVER_VARIABLE) or ANYONE
    if rule not in (ANYONE, ANOTHER):
        raise UsageError(
            f"{APPROVER_VARIABLE} is not understood",
            code=AirflowCode.BAD_APPROVER,
            expected=f"{ANYONE} or {ANOTHER}",
            resolve="correct it in the environment of Airflow's workers",
        )
    return rule


def _starter(context: Context) -> str | None:
    return getattr(context.get("dag_run"), "triggering_user_name", None)


def _by_hand(context: Context) -> bool:
    """Tell whether it is for a person to have started the run; unless that is known, it is."""
    kind = getattr(context.get("dag_run"), "run_type", None)
    return str(getattr(kind, "value", kind)) not in _UNATTENDED


def table(columns: Sequence[str], rows: Sequence[Sequence[Inline]]) -> list[str]:
    """Return a Markdown table as lines: the first rows, and where the others are."""
    lines = [_row(columns), "|" + "---|" * len(columns), *map(_row, rows[:MAX_LISTED]), ""]
    if len(rows) > MAX_LISTED:
        lines.append(f"and {len(rows) - MAX_LISTED} more: see the log of this task.")
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
