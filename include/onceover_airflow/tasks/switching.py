"""The tasks of the DAGs ``failover_drill`` and ``confirm_drill``: what ``onceover drill`` does.

Invariant: nothing is switched over that a person was not shown and has not said yes to, topic by topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from onceover.advice import advised
from onceover.drills.modes import BY_HAND
from onceover_airflow.access.flowcontext import errors_of_ours, flow_at_hand, log_text
from onceover_airflow.approvals.approval import table
from onceover_airflow.approvals.markdown import code, plain
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.flows import by_name
from onceover_airflow.jobs.starter import starter
from onceover_airflow.starting import forms
from onceover_airflow.tasks.ending import Undoing, drill_left
from onceover_airflow.tasks.operation import OperationTasks, judge

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.config.flow.flowfile import Flow
    from onceover.drills.switching.plan import SwitchoverPlan
    from onceover.drills.switching.switchover import Switchover
    from onceover.planning.operation import Outcome
    from onceover.planning.plan import Change

log = logging.getLogger(__name__)

DRY_RUN: Final = "dry-run"
MODES: Final = (DRY_RUN, "planned", "unplanned")
_OF_SWITCHOVER: Final = ("topics", "take_over", "whatever_is_lost")
_TEMPORARY: Final = 5


def drill_params() -> dict[str, Param]:
    """Return the form's fields, beside the flow. Untouched it looks, and changes nothing."""
    return {
        "mode": Param(
            DRY_RUN,
            type="string",
            enum=list(MODES),
            title="Mode",
            description_md="`dry-run`: what a failover would cost now. `planned`: switch over, nothing is "
            "lost. `unplanned`: the source is gone, what was copied is promoted.",
        ),
        "topics": forms.optional(
            "Topics", "Regular expression for whole source topics that are switched over. Empty: all."
        ),
        "take_over": forms.switch(
            "Take over",
            "Also move groups that somebody else has committed for on the target, as their own clients have "
            "where they came from there.",
            on=False,
        ),
        "whatever_is_lost": forms.switch(
            "Whatever is lost",
            "*unplanned*: a yes holds however source and flow are when it is done. For a source that comes "
            "and goes, which is another one at every look.",
            on=False,
        ),
        "apply": forms.apply_param(),
    }


def confirm_params() -> dict[str, Param]:
    """Return the fields of the form that tells a drill that something was done by hand."""
    return {
        "step": Param(
            BY_HAND[1],
            type="string",
            enum=list(BY_HAND),
            title="Step",
            description_md="`fence`: the producers are stopped. `redirect`: the clients were moved.",
        )
    }


class SwitchTasks(OperationTasks["SwitchoverPlan"]):
    """Plan, approve and run a switchover; a dry-run is the plan alone."""

    plan_task = "plan_drill"
    approve_task = "approve_drill"
    apply_task = "run_drill"
    subject = "Flow {{ params.flow }}: {{ params.mode }} switchover"
    needs_answer = True

    def mode(self, context: Context) -> str:
        """Return what the form asks for."""
        return str(context["params"]["mode"])

    def at_hand(self, name: str) -> AbstractContextManager[Flow]:
        """Return the flow that is switched over, with its Connections at hand."""
        return flow_at_hand(name)

    def of_file(self, name: str) -> Flow:
        """Return the flow that is switched over, without its Connections."""
        from onceover.config.flow.load import load_flow

        return load_flow(by_name(name))

    @contextmanager
    def opened(self, name: str, context: Context) -> Iterator[Switchover]:
        """Yield the switchover that the form asks for, with both clusters at hand."""
        from onceover.planning.operation import wait
        from onceover.wiring import flows
        from onceover.wiring.failovers import switchovers

        params = context["params"]
        topics = (params["topics"],) if params["topics"] else ()
        # The form of the way back has no such field: nothing is lost there.
        whatever = params.get("whatever_is_lost", False)
        options = switchovers.SwitchoverOptions(
            self.mode(context), topics, params["take_over"], whatever, starter(context)
        )
        with (
            self.at_hand(name) as flow,
            flows.opened(flow, partial(switchovers.switchover, options=options, pause=wait)) as operation,
        ):
            yield operation

    def undoing(self, name: str) -> Undoing:
        """Return what lets writers in again."""
        return drill_left(self.of_file(name))

    def plan(self, name: str) -> dict[str, Any]:
        """Show the plan in the log, or what a failover would cost now. Changes nothing.

        Raises:
            TaskFailed: a failover is not possible as things are, with what comes first; or a field is filled
                in that a look has no use for.
            Others as the base.
        """
        context = get_current_context()
        if self.mode(context) != DRY_RUN:
            return super().plan(name)
        check_look(context["params"])
        from onceover.wiring.failovers.drills import dry_run

        with flow_at_hand(name) as flow:
            found = dry_run(flow)
        log_text(log, found.describe())
        if found.exit_code:
            first = "; ".join(map(advised, found.needs))
            first = first or "; ".join(f"{part}: {error}" for part, error in found.problems.items())
            text = f"flow {name} is not ready: {first or 'not everything could be looked at, see the log'}"
            raise JobInterrupted(text) if found.exit_code == _TEMPORARY else TaskFailed(text)
        return {"flow": name, "ready": True, "topics_with_losses": len(found.losses or ())}

    def wants_asking(self, context: Context) -> bool:
        """Tell whether the form wants a person asked: a look changes nothing."""
        return super().wants_asking(context) and self.mode(context) != DRY_RUN

    def apply(self, name: str) -> dict[str, Any]:
        """Switch over; return names and counts. As the base."""
        if self.mode(get_current_context()) == DRY_RUN:
            raise AirflowSkipException("only a look was asked for")
        return super().apply(name)

    def question(self, planned: SwitchoverPlan) -> str:
        """Return the plan as Markdown: what changes for good, and every step with its deadline."""
        rows = [
            (plain(c.what), code(c.object), plain(c.from_), plain(c.to), plain(_cost(c)), plain(c.reason))
            for c in planned.changes
        ]
        lines = [] if planned.standing is None else [f"**{plain(str(planned.standing))}**", ""]
        lines += table(("change", "of", "from", "to", "lost", "how"), rows)
        steps = [(plain(s.title), plain(f"{s.deadline_s:.0f} s"), code(s.by_hand)) for s in planned.steps]
        lines += table(("step", "at most", "by hand"), steps)
        lines.append(
            "The point of no return is *give the copies to clients*: before it a failing run undoes itself, "
            "behind it it only goes forward. **Reject** changes nothing at all."
        )
        return "\n".join(lines)

    def finish(self, name: str, context: Context, outcome: Outcome) -> dict[str, Any]:
        """Return names, counts and where the report is; raises as ``judge``."""
        from onceover.wiring.failovers.drills import report_page

        with errors_of_ours():
            flow = self.of_file(name)
        page = str(report_page(flow, str(outcome.counts["drill"])))
        log.info("report: %s", page)
        judge(f"flow {flow.flow}, report {page}", outcome)
        return {**outcome.counts, "report": page}


def check_look(params: Mapping[str, Any]) -> None:
    """Refuse fields that a look does not go by: somebody means something that would not be told.

    Raises:
        TaskFailed: there are some.
    """
    if filled := [name for name in _OF_SWITCHOVER if params[name]]:
        raise TaskFailed(
            f"{', '.join(filled)}: not for the mode {DRY_RUN}, which looks at all of the flow; to resolve: "
            f"start the DAG again with another mode, or without {'it' if len(filled) == 1 else 'them'}"
        )


def _cost(change: Change) -> str:
    # What comes again is not lost: the change says so itself.
    if change.risk in ("none", "repeat"):
        return "-"
    return "not known" if change.records is None else f"{change.records} offsets"


DRILL: Final = SwitchTasks()


def confirm(flow: str) -> dict[str, Any]:
    """Tell the drill that waits that a step was done by hand, by whoever has started this run.

    Raises:
        JobInterrupted: the target does not answer; tried again.
        TaskFailed: no drill of the flow is running, or any other error.
    """
    from onceover.planning.operation import wait
    from onceover.wiring.failovers.switchovers import confirm_step

    context = get_current_context()
    run = context.get("dag_run")
    by = None if run is None else run.triggering_user_name
    with flow_at_hand(flow) as loaded:
        told = confirm_step(loaded, context["params"]["step"], wait, by=by)
    log.info("told drill %s: %s is done", told["drill"], told["step"])
    return told
