"""The tasks of the DAG ``failback``: those of other DAGs in a row, for the flow that leads back.

Every task is given the flow that was switched over; its file names the one that leads back.

Invariant: as for the DAGs that they are of. What a task goes on with is what it finds on the clusters, never
what an earlier one has said; after a question that nobody has said yes to, nothing more is done.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseSensorOperator, Param, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from onceover.planning import commands
from onceover_airflow.access.flowcontext import flow_at_hand
from onceover_airflow.approvals.approval import was_refused
from onceover_airflow.errors import TaskFailed
from onceover_airflow.flows import FOREVER
from onceover_airflow.starting import forms
from onceover_airflow.starting.runnames import SUBJECTS, new_run_id
from onceover_airflow.tasks.operation import judge
from onceover_airflow.tasks.orphans import OrphanTasks, orphan_params
from onceover_airflow.tasks.seeding import SeedTasks
from onceover_airflow.tasks.standing import show_standing
from onceover_airflow.tasks.switching import SwitchTasks, drill_params

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from onceover.config.flow.flowfile import Flow
    from onceover.planning.plan import Refusal
    from onceover.seeding.apply import Seeder
    from onceover.seeding.plan import SeedPlan

log = logging.getLogger(__name__)

_REPLICATE: Final = "replicate"
_STARTED: Final = "started"
# A run that is queued begins once its DAG is not paused, and a slot is free.
_TO_COME: Final = ("queued", "running")
_LOOK_S: Final = 5.0
# A topic that is copied anew takes its time.
_CATCHES_UP_S: Final = 24 * 3600.0


def failback_params() -> dict[str, Param]:
    """Return the form's fields, beside the flow: those of the DAGs that it is made of."""
    orphans, drill = orphan_params(), drill_params()
    return {
        "topics": orphans["topics"],
        "rebuild": forms.switch(
            "Rebuild",
            "Delete topics of the old source that hold records which were never copied, behind their export, "
            "and have them copied anew. A person is asked before. Off: such topics are not led back.",
            on=True,
        ),
        "forget_groups": orphans["forget_groups"],
        "take_over": drill["take_over"],
        "apply": orphans["apply"],
    }


@contextmanager
def way_back_at_hand(name: str) -> Iterator[tuple[Flow, Flow]]:
    """Yield the flow and the one that leads back, with the Connections of both."""
    from onceover.wiring.failovers.failback import way_back

    with flow_at_hand(name) as flow, flow_at_hand(way_back(flow).flow) as back:
        yield flow, back


def find_way_back(flow: str) -> dict[str, Any]:
    """Return which flow leads back, and how many topics were promoted. Changes nothing.

    Raises:
        JobInterrupted: the target does not answer; tried again.
        TaskFailed: the flow file names none, or nothing was promoted.
    """
    with way_back_at_hand(flow) as (found, back):
        copies = _copies(found, get_current_context())
        log.info("flow %s leads %d topics of flow %s back", back.flow, len(copies), found.flow)
        return {"flow": found.flow, "back": back.flow, "topics": len(copies)}


def _patterns(context: Context) -> Sequence[str]:
    topics = context["params"]["topics"]
    return (topics,) if topics else ()


def _copies(flow: Flow, context: Context) -> list[str]:
    from onceover.wiring.failovers.failback import promoted_copies

    return promoted_copies(flow, _patterns(context))


def _check_wanted(context: Context, approvals: Collection[str]) -> None:
    """Return where a person still wants it done.

    Raises:
        AirflowSkipException: nobody has said yes to an earlier question.
    """
    for task_id in approvals:
        if was_refused(context, task_id):
            raise AirflowSkipException(f"{task_id} was not answered with a yes")


class OrphansBackTasks(OrphanTasks):
    """Export what the old source holds alone, without topics that clients have gone back to already."""

    def plan(self, name: str) -> dict[str, Any]:
        """Show the plan in the log. As the base.

        Raises:
            AirflowSkipException: clients have gone back to all of it.
        """
        from onceover.wiring.failovers.failback import what_is_led_back

        context = get_current_context()
        with way_back_at_hand(name) as (flow, back):
            if what_is_led_back(flow, back).gone.issuperset(_copies(flow, context)):
                raise AirflowSkipException(f"flow {back.flow} has led it back, and clients have gone back")
        return super().plan(name)

    def besides(self, name: str) -> Collection[str]:
        """Return the topics that clients have gone back to."""
        from onceover.wiring.failovers.failback import gone_back

        with way_back_at_hand(name) as (flow, back):
            return gone_back(flow, back)


class BeginTasks(SeedTasks):
    """Let the flow that leads back begin exactly behind the promotion, where it has not begun."""

    needs_answer = True
    after: ClassVar = (OrphanTasks.approve_task,)
    subject = "Flow {{ params.flow }}: where the flow that leads back begins"

    def plan(self, name: str) -> dict[str, Any]:
        """Show the plan in the log, while nobody has said no. As the base."""
        _check_wanted(get_current_context(), self.after)
        return super().plan(name)

    @contextmanager
    def opened(self, name: str, context: Context) -> Iterator[Seeder]:
        """Yield what is to be seeded, with both clusters open."""
        from onceover.wiring.failovers.failback import way_back_seeder

        with (
            way_back_at_hand(name) as (flow, back),
            way_back_seeder(flow, back, _copies(flow, context)) as operation,
        ):
            yield operation

    def check(self, planned: SeedPlan) -> None:
        """Fail where one of the topics cannot be led back: they come back together."""
        judge(f"flow {planned.flow}, which leads back", _Refused(planned))


@dataclass(frozen=True)
class _Refused:
    """A plan's refusals, as an outcome has them."""

    planned: SeedPlan

    @property
    def waiting(self) -> Sequence[Refusal]:
        return self.planned.refused

    @property
    def exit_code(self) -> int:
        return self.planned.exit_code


class BackTasks(SwitchTasks):
    """Switch the flow that leads back over, planned, or go on with that behind its promotion."""

    after: ClassVar = (*BeginTasks.after, BeginTasks.approve_task)
    subject = "Flow {{ params.flow }}: clients go back"

    def mode(self, context: Context) -> str:
        """Return the only mode there is: both sides are there."""
        return "planned"

    @contextmanager
    def at_hand(self, name: str) -> Iterator[Flow]:
        """Yield the flow that leads back."""
        with way_back_at_hand(name) as (_, back):
            yield back

    def of_file(self, name: str) -> Flow:
        """Return the flow that leads back, without its Connections."""
        from onceover.wiring.failovers.failback import way_back

        return way_back(super().of_file(name))

    def plan(self, name: str) -> dict[str, Any]:
        """Show the plan, once the flow that leads back has caught up; without that there is none to show.

        Nor is there where clients have gone back already.
        """
        from onceover.wiring.failovers.failback import went_back

        context = get_current_context()
        _check_wanted(context, self.after)
        if not context["params"]["apply"]:
            raise AirflowSkipException("only a plan was asked for, and nothing was led back")
        with way_back_at_hand(name) as (flow, back):
            if went_back(flow, back, _copies(flow, context)):
                lead = commands.lead_back(flow.flow, back.flow)
                raise AirflowSkipException(f"clients have gone back; {lead} has flow {flow.flow} copy again")
        return super().plan(name)


ORPHANS_BACK: Final = OrphansBackTasks()
BEGIN: Final = BeginTasks()
BACK: Final = BackTasks()


class StartReplicating(TriggerDagRunOperator):
    """Start the DAG ``replicate`` for the flow that leads back, without an end; skipped where it runs.

    :param flow: that was switched over (templated)
    """

    template_fields: Sequence[str] = ("flow",)

    def __init__(self, *, flow: str, **kwargs: Any) -> None:
        super().__init__(trigger_dag_id=_REPLICATE, **kwargs)
        self.flow = flow

    def execute(self, context: Context) -> Any:
        """Look, then start it.

        Raises:
            AirflowSkipException: it runs, nobody wants it, or clients have gone back already.
            TaskFailed: not all of its topics were led back.
        """
        from onceover.drills.switching.failback import copies_already

        back = ready_to_copy(self.flow, context)
        standing = show_standing(back)
        if copies_already(standing):
            raise AirflowSkipException(f"flow {back} runs")
        self.trigger_run_id = new_run_id(back, SUBJECTS[_REPLICATE], datetime.now(UTC))
        started = {"run": self.trigger_run_id, "behind": standing["generation"]}
        context["ti"].xcom_push(key=_STARTED, value=started)
        self.conf = {"flow": back, "run_length": FOREVER}
        return super().execute(context)


def ready_to_copy(name: str, context: Context) -> str:
    """Return the flow that leads back, once it has taken in all that was promoted.

    Raises:
        AirflowSkipException: only a plan was asked for, or nobody has said yes; or clients have gone back.
        TaskFailed: it has not taken in something.
    """
    from onceover.wiring.failovers.failback import check_led_back

    if not context["params"]["apply"]:
        raise AirflowSkipException("only a plan was asked for")
    _check_wanted(context, BackTasks.after)
    with way_back_at_hand(name) as (flow, back):
        if not check_led_back(flow, back, _copies(flow, context)):
            raise AirflowSkipException(
                f"flow {back.flow} has nothing to copy: clients have gone back with it"
            )
    return back.flow


class AwaitCaughtUp(BaseSensorOperator):
    """Wait until the flow that leads back has caught up; between two looks nothing runs.

    :param flow: that was switched over (templated)
    :param started: the task that may have started it a moment ago
    """

    template_fields: Collection[str] = ("flow",)

    def __init__(self, *, flow: str, started: str, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=_LOOK_S, timeout=_CATCHES_UP_S, **kwargs)
        self.flow = flow
        self.started = started

    def poke(self, context: Context) -> bool:
        """Tell whether it has.

        Raises:
            AirflowSkipException: only a plan was asked for, nobody has said yes, or clients have gone back.
            JobInterrupted: a cluster does not answer; tried again.
            TaskFailed: it has stopped, and waits for somebody.
        """
        from onceover.drills.switching.failback import may_go_back, why_over

        status = show_standing(ready_to_copy(self.flow, context))
        over = why_over(status)
        if over is not None and not self._is_to_begin(status, context["ti"]):
            raise TaskFailed(over)
        return may_go_back(status)

    def _is_to_begin(self, status: Mapping[str, Any], ti: RuntimeTaskInstanceProtocol) -> bool:
        """Tell whether what is over is a run of before: the one that was started has not led yet."""
        started = ti.xcom_pull(task_ids=self.started, key=_STARTED)
        if not started or status["generation"] != started["behind"]:
            return False
        state = ti.get_dagrun_state(_REPLICATE, started["run"])
        log.info("run %s of the DAG %s is %s, and has not begun to copy", started["run"], _REPLICATE, state)
        return state in _TO_COME
