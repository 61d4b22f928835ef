"""The tasks of a DAG that changes something: plan, ask a person, apply. Airflow's skin over every operation.

Invariant: what is done is what a person was shown and said yes to, as far as the operation's plan wants an
approval; nothing to approve is no failure. Rejected, or a failure before, never reaches the clusters.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from airflow.sdk import AssetAlias, TriggerRule, XComArg, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from onceover.shown import lined
from onceover_airflow.access.flowcontext import log_text
from onceover_airflow.approvals.approval import MAX_LISTED, PlanApprovalOperator, Question, approved
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.tasks.ending import Undoing, ends_as_a_command

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.planning.operation import Operation, Outcome, Planned
    from onceover.planning.plan import Refusal

log = logging.getLogger(__name__)

_TEMPORARY: Final = 5
P = TypeVar("P", bound="Planned")


class OperationTasks(ABC, Generic[P]):
    """The tasks of one DAG, over the code that the command line runs. Without state of its own.

    ``name``, in every method, is of what is operated on: a flow, or a Connect cluster.

    Attributes:
        plan_task: what the tasks are called; ``approve_task`` and ``apply_task`` likewise.
        field: of the form, that has the name.
        subject: of the question, a template.
        needs_answer: whether nothing at all is done where nothing was approved; otherwise what needs no
            approval is done all the same.
    """

    plan_task: ClassVar[str]
    approve_task: ClassVar[str]
    apply_task: ClassVar[str]
    field: ClassVar[str] = "flow"
    subject: ClassVar[str]
    needs_answer: ClassVar[bool] = False

    @abstractmethod
    def opened(self, name: str, context: Context) -> AbstractContextManager[Operation[P, Outcome]]:
        """Return the operation that the form asks for, which is open until the end of the context."""

    @abstractmethod
    def question(self, planned: P) -> str:
        """Return what a person is asked, as Markdown."""

    def check(self, planned: P) -> None:
        """Fail where a plan cannot be carried out at all; by itself it always can.

        Raises:
            TaskFailed: it cannot, and what resolves that.
        """

    def undoing(self, name: str) -> Undoing | None:
        """Return what looks for the rest of an ``apply`` that Airflow has ended; None where there is none."""
        return None

    def wants_asking(self, context: Context) -> bool:
        """Tell whether the form wants a person asked."""
        return bool(context["params"]["apply"])

    def finish(self, name: str, context: Context, outcome: Outcome) -> dict[str, Any]:
        """Return what is kept of an outcome; raises as ``judge``."""
        judge(f"{self.field} {name}", outcome)
        return dict(outcome.counts)

    def read(self, name: str, context: Context) -> P:
        """Return the plan as of now."""
        with self.opened(name, context) as operation:
            return operation.plan()

    def plan(self, name: str) -> dict[str, Any]:
        """Show the plan in the log; return names and counts. Changes nothing.

        Raises:
            JobInterrupted: a cluster does not answer; tried again.
            TaskFailed: it cannot be carried out, with what resolves that; or any other error.
        """
        planned = self.read(name, get_current_context())
        log_text(log, planned.describe())
        self.check(planned)
        return dict(planned.counts)

    def ask(self, name: str, context: Context) -> Question:
        """Return the question about the plan as it is now.

        Raises:
            AirflowSkipException: nobody is to be asked, or there is nothing to approve.
            Others as ``plan``.
        """
        if not self.wants_asking(context):
            raise AirflowSkipException("nobody is to be asked")
        planned = self.read(name, context)
        self.check(planned)
        if not planned.items:
            raise AirflowSkipException("nothing of the plan needs an approval")
        return Question(planned.items, self.question(planned), planned.describe())

    def apply(self, name: str) -> dict[str, Any]:
        """Do what the plan says, as far as it was approved; return what became of it.

        Raises:
            AirflowSkipException: only a plan was asked for, or nothing was approved.
            JobInterrupted: a cluster does not answer; tried again, which goes on from there.
            TaskFailed: it would be something else by now than was approved; something waits for somebody's
                decision; or any other error.
        """
        from onceover.planning.operation import Caller

        context = get_current_context()
        if not context["params"]["apply"]:
            raise AirflowSkipException("only a plan was asked for")

        def announce(planned: Any) -> None:
            log_text(log, planned.describe())
            self.check(planned)

        with ends_as_a_command(f"{self.field} {name}") as ending:
            approval = approved(context, self.approve_task)
            if self.needs_answer and not approval.items:
                raise AirflowSkipException("nothing was approved")
            with self.opened(name, context) as operation, ending.looked_after(self.undoing(name)):
                outcome = operation.apply(Caller(announce, log.info), approval)
        log_text(log, outcome.describe())
        return self.finish(name, context, outcome)


class Judged(Protocol):
    """What may leave something that waits for somebody."""

    @property
    def exit_code(self) -> int:
        """0 where nothing does, 5 where running it again may help."""

    @property
    def waiting(self) -> Sequence[Refusal]:
        """What does, and why."""


def judge(what: str, outcome: Judged) -> None:
    """Fail where an outcome is not good.

    Args:
        what: it is about.

    Raises:
        JobInterrupted: running it again may help.
        TaskFailed: something waits for somebody, with what resolves it.
    """
    if not outcome.exit_code:
        return
    waiting = [refusal for refusal in outcome.waiting if refusal.blocks]
    shown = [f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in waiting[:MAX_LISTED]]
    more = [f"and {len(waiting) - MAX_LISTED} more"] if len(waiting) > MAX_LISTED else []
    text = lined([f"{what}: not all of it is done:", *shown, *more])
    raise JobInterrupted(text) if outcome.exit_code == _TEMPORARY else TaskFailed(text)


class ApproveOperator(PlanApprovalOperator):
    """Wait until a person approves what of a plan needs that; skipped where nothing does.

    Rejected, or not answered in time, the task downstream is skipped, and nothing at all is changed.

    :param name: of what is operated on (templated)
    """

    template_fields: Collection[str] = ("name", "subject")

    def __init__(self, *, tasks: OperationTasks[Any], name: str, **kwargs: Any) -> None:
        super().__init__(subject=tasks.subject, **kwargs)
        self.tasks = tasks
        self.name = name

    def ask(self, context: Context) -> Question:
        """Return the question, or skip it."""
        return self.tasks.ask(self.name, context)


def gated(
    tasks: OperationTasks[Any],
    name: str,
    retried: dict[str, Any],
    outlets: Collection[AssetAlias] = (),
) -> tuple[XComArg, XComArg]:
    """Wire the three tasks in the DAG at hand; return the first and the last one.

    Args:
        name: template of what is operated on.
        retried: when each of them is tried again.
        outlets: what ``apply`` announces.
    """
    planned = then(tasks.plan_task, tasks.plan, retried)(name)
    approval = ApproveOperator(task_id=tasks.approve_task, tasks=tasks, name=name, **retried)
    applied = then(tasks.apply_task, tasks.apply, retried, outlets)(name)
    planned >> approval >> applied
    return planned, applied


def then(
    task_id: str,
    done: Callable[[str], dict[str, Any]],
    retried: dict[str, Any],
    outlets: Collection[AssetAlias] = (),
) -> Callable[[str], XComArg]:
    """Return a task that runs although one before it was skipped, and not after a failure."""
    return task(
        task_id=task_id,
        multiple_outputs=False,
        trigger_rule=TriggerRule.NONE_FAILED,
        outlets=list(outlets),
        **retried,
    )(done)
