"""Asking a person before anything is done that they should know of.

Invariant: what is shown is the plan as it is when the question is put, all of it in the log of the task that
asks; exactly that is kept as approved, for the task that does it. Nobody asked, rejected, or asked too long
ago: nothing is approved.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException

from onceover_airflow.flowcontext import log_text
from onceover_airflow.markdown import Inline

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.engine.approval import Approval, Item

log = logging.getLogger(__name__)

# Nobody answered: nothing is done. Long enough for a weekend.
ANSWER_WITHIN: Final = timedelta(days=3)
# The tries after an answer take minutes; who clears a task later than this is to be asked again.
_GOOD_FOR: Final = ANSWER_WITHIN + timedelta(days=1)
# A page of changes helps nobody to decide; the log of the task that asks has all.
MAX_LISTED: Final = 30
SHOWN_KEY: Final = "onceover_shown"


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
        from onceover.engine.approval import Approval

        question = self.ask(context)
        log_text(log, question.text)
        shown = {**Approval.of(question.items).to_json(), "asked_s": time.time()}
        context["ti"].xcom_push(SHOWN_KEY, shown)
        self.body = question.body
        return super().execute(context)


class FlowApprovalOperator(PlanApprovalOperator):
    """Ask a person about one flow.

    ``own_task`` is what the task is called in its DAG; ``about`` ends the subject.

    :param flow: the flow's name (templated)
    """

    template_fields: Collection[str] = ("flow", "subject")
    own_task: ClassVar[str]
    about: ClassVar[str]

    def __init__(self, *, flow: str, **kwargs: Any) -> None:
        super().__init__(subject=f"Flow {{{{ params.flow }}}}: {self.about}", **kwargs)
        self.flow = flow


def approved(context: Context, task_id: str) -> Approval:
    """Return what a person was shown by the task ``task_id`` and said yes to; nothing where nobody was asked.

    Raises:
        AirflowFailException: that was days ago.
    """
    from onceover.engine.approval import NOTHING, Approval

    task_instance = context["ti"]
    shown = task_instance.xcom_pull(task_ids=task_id, key=SHOWN_KEY)
    answer = task_instance.xcom_pull(task_ids=task_id)
    if not shown or not answer or answer["chosen_options"] != [ApprovalOperator.APPROVE]:
        return NOTHING
    age = timedelta(seconds=time.time() - shown["asked_s"])
    if age > _GOOD_FOR:
        raise AirflowFailException(
            f"what was approved was shown {age.days} days ago; expected: at most {_GOOD_FOR.days}; "
            "to resolve: start the DAG again"
        )
    return Approval.from_json(shown)


def table(columns: Sequence[str], rows: Sequence[Sequence[Inline]]) -> list[str]:
    """Return a Markdown table as lines: the first rows, and where the others are."""
    lines = [_row(columns), "|" + "---|" * len(columns), *map(_row, rows[:MAX_LISTED]), ""]
    if len(rows) > MAX_LISTED:
        lines.append(f"and {len(rows) - MAX_LISTED} more: see the log of this task.")
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
