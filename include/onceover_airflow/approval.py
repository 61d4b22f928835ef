"""Asking a person before records may be lost.

Invariant: what is shown is the plan as it is when the question is put, and it is asked only where a change
may cost records; a plan that changed between its task and the question fails instead of asking.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException

from onceover_airflow.markdown import Inline, code, plain
from onceover_airflow.topics import PLAN_TASK, check_approved, read_plan

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.engine.topicsync import SyncPlan

# Nobody answered: nothing is done. Long enough for a weekend.
ANSWER_WITHIN: Final = timedelta(days=3)
# A page of changes helps nobody to decide; the log of the plan's task has all.
MAX_LISTED: Final = 30


class FlowApprovalOperator(ApprovalOperator):
    """Ask a person about one flow. Not answered in time counts as rejected.

    :param flow: the flow's name (templated)
    """

    template_fields: Collection[str] = ("flow", "subject")
    about: ClassVar[str]

    def __init__(self, *, flow: str, **kwargs: Any) -> None:
        super().__init__(
            subject=f"Flow {{{{ params.flow }}}}: {self.about}",
            defaults=self.REJECT,
            response_timeout=ANSWER_WITHIN,
            **kwargs,
        )
        self.flow = flow


class ApprovePlanOperator(FlowApprovalOperator):
    """Wait until a person approves the changes that may cost records; skipped where there are none.

    Rejected, or not answered in time, the task downstream is skipped and nothing is changed.
    """

    about = "changes that may cost records"

    def execute(self, context: Context) -> Any:
        """Put the question, or skip it.

        Raises:
            AirflowSkipException: there is nothing to ask.
            JobInterrupted: a cluster does not answer; tried again.
            AirflowFailException: the plan has changed since it was made.
        """
        planned = context["ti"].xcom_pull(task_ids=PLAN_TASK)
        if not context["params"]["apply"]:
            raise AirflowSkipException("only a plan was asked for")
        if not planned["risky"]:
            raise AirflowSkipException("no change of the plan can cost records")
        now = read_plan(self.flow)
        check_approved(now, planned["risk_id"])
        self.body = question(now)
        return super().execute(context)


def table(columns: Sequence[str], rows: Sequence[Sequence[Inline]], plan_task: str) -> list[str]:
    """Return a Markdown table as lines: the first rows, and where the others are.

    Args:
        plan_task: the task whose log has all of them.
    """
    lines = [_row(columns), "|" + "---|" * len(columns), *map(_row, rows[:MAX_LISTED]), ""]
    if len(rows) > MAX_LISTED:
        lines.append(f"and {len(rows) - MAX_LISTED} more: see the log of `{plan_task}`.")
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def question(planned: SyncPlan) -> str:
    """Return the changes that may cost records, as Markdown."""
    changes = planned.risky.changes
    rows = [
        (plain(c.what), code(c.object), _setting(c.from_), _setting(c.to), plain(c.risk)) for c in changes
    ]
    others = len(planned.plan.changes) - len(changes)
    lines = table(("change", "of", "from", "to", "risk"), rows, PLAN_TASK)
    lines.append(f"{others} other changes cost nothing. **Reject** changes nothing at all.")
    return "\n".join(lines)


def _setting(value: str | int | None) -> Inline:
    return plain("not set") if value is None else code(value)
