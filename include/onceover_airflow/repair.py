"""The tasks of the DAG ``repair_partition``. Plain functions over the code of ``onceover partition``.

Invariant: nothing is done that a person has not approved: the same partitions, stopped for the same
reason, at the same risks, and under ``skip-to`` the same offset; while nobody else has changed their progress
by hand, and one time. How many records a risk concerns may have changed by then where the flow, or its
source, goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from onceover_airflow import forms
from onceover_airflow.approval import FlowApprovalOperator, Question, approved, table
from onceover_airflow.errors import TaskFailed
from onceover_airflow.flowcontext import flow_at_hand, log_text
from onceover_airflow.markdown import code, plain
from onceover_airflow.standing import show_standing

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.operate.repair import Repair
    from onceover.planning.plan import Change
    from onceover.wiring.repairs import RepairRequest

log = logging.getLogger(__name__)

APPROVE_TASK: Final = "approve_repair"
RESUME: Final = "resume"
SKIP: Final = "skip-to"
RESEED: Final = "reseed"


def repair_params() -> dict[str, Param]:
    """Return the form's fields. Untouched it resumes what is stopped, which repeats and skips nothing."""
    return {
        "action": Param(
            RESUME,
            type="string",
            enum=[RESUME, SKIP, RESEED],
            title="Action",
            description_md="`resume`: look again. `skip-to`: go on at an offset. `reseed`: copy anew.",
        ),
        "topic": forms.optional(
            "Topic", "Source topic. With `resume`, topic and partition empty: everything that is stopped."
        ),
        "partition": forms.optional_number(
            "Partition", "Number of the source partition.", maximum=forms.MAX_PARTITION
        ),
        "offset": forms.optional_number(
            "Offset", "For `skip-to`: the next source offset to copy.", maximum=forms.MAX_OFFSET
        ),
        "apply": forms.apply_param(),
    }


def plan_repair(flow: str) -> dict[str, Any]:
    """Show the plan in the log; return ids and counts. Changes nothing.

    Raises:
        JobInterrupted: a cluster does not answer; tried again.
        TaskFailed: it cannot be done, with what resolves that; or any other error.
    """
    planned = read_plan(flow, get_current_context()["params"])
    log_text(log, planned.describe())
    refuse_refused(planned)
    return {
        "flow": flow,
        "plan_id": planned.plan_id,
        "operation": planned.operation,
        "partitions": len(planned.sources),
        "changes": len(planned.changes),
    }


def read_plan(flow: str, params: Mapping[str, Any]) -> Repair:
    """Return the plan as of now."""
    from onceover.wiring import repairs

    with flow_at_hand(flow) as loaded:
        return repairs.plan_repair(loaded, _request(params))


def apply_repair(flow: str) -> dict[str, Any]:
    """Do what was approved; return what was done.

    Raises:
        AirflowSkipException: only a plan was asked for, or there is nothing to do.
        JobInterrupted: a cluster does not answer; tried again, which plans anew.
        TaskFailed: other partitions or risks have come since the approval, or any other error.
    """
    from onceover.wiring import repairs

    context = get_current_context()
    params = context["params"]
    if not params["apply"]:
        raise AirflowSkipException("only a plan was asked for")

    def show(planned: Repair) -> None:
        log_text(log, planned.describe())
        refuse_refused(planned)

    approval = approved(context, APPROVE_TASK)
    if not approval.items:
        raise AirflowSkipException("nothing was approved")
    with flow_at_hand(flow) as loaded:
        done = repairs.apply_repair(loaded, _request(params), show, approval)
    if done.earlier:
        log.info("done already, by an earlier try of what was approved; nothing was changed now")
    if done.generation is not None:
        log.info("a running copy of the flow is fenced: start the DAG replicate for flow %s", flow)
    return {
        "flow": flow,
        "operation": done.plan.operation,
        "partitions": len(done.plan.sources),
        "generation": done.generation,
    }


def report_repair(flow: str) -> dict[str, Any]:
    """Show where the flow stands; return counts.

    What was resumed is looked at by the running lanes within moments, or at the next start: until then it is
    still shown as stopped.

    Raises:
        JobInterrupted: a cluster does not answer; tried again.
        TaskFailed: any other error.
    """
    status = show_standing(flow)
    stopped = sum(1 for partition in status["partitions"] if partition["stop"])
    return {"flow": flow, "state": status["state"], "partitions_stopped": stopped}


def refuse_refused(planned: Repair) -> None:
    """Fail where the plan cannot be carried out.

    Raises:
        TaskFailed: it refuses something.
    """
    if planned.refused:
        shown = "; ".join(f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in planned.refused)
        raise TaskFailed(f"flow {planned.flow}: {planned.operation} is not possible: {shown}")


def _request(params: Mapping[str, Any]) -> RepairRequest:
    """Return what the form asks for; what makes no sense is refused with the plan.

    Raises:
        TaskFailed: a topic without its partition, or the other way round.
    """
    from onceover.model import TopicPartition
    from onceover.wiring.repairs import RepairRequest

    topic, partition = params["topic"] or None, params["partition"]
    if (topic is None) is not (partition is None):
        given = f"topic {topic}" if topic else f"partition {partition}"
        raise TaskFailed(
            f"only {given} is given; expected: topic and partition, or with {RESUME} neither; to resolve: "
            "start the DAG again with both"
        )
    named, offset = None if topic is None else TopicPartition(topic, int(partition)), params["offset"]
    # JSON Schema takes 3.0 for an integer, too.
    return RepairRequest(params["action"], named, None if offset is None else int(offset))


class ApproveRepairOperator(FlowApprovalOperator):
    """Wait until a person approves the repair; skipped where there is nothing to do.

    Rejected, or not answered in time, nothing is changed and nothing is fenced.
    """

    own_task = APPROVE_TASK
    about = "partitions to be repaired"

    def ask(self, context: Context) -> Question:
        """Return the question; skipped where there is nothing to do."""
        if not context["params"]["apply"]:
            raise AirflowSkipException("only a plan was asked for")
        planned = read_plan(self.flow, context["params"])
        refuse_refused(planned)
        if not planned.changes:
            raise AirflowSkipException("nothing to do")
        return Question(planned.items, question(planned), planned.describe())


def question(planned: Repair) -> str:
    """Return the plan as Markdown: what is repeated or skipped, and why."""
    rows = [
        (plain(c.what), code(c.object), plain(c.from_), plain(c.to), plain(_risk(c)), plain(c.reason))
        for c in planned.changes
    ]
    lines = table(("change", "of", "from", "to", "records", "why"), rows)
    if planned.is_start:
        lines.append("A running copy of the flow is fenced and has to be started again.")
    else:
        lines.append("Nothing is repeated or skipped: a partition whose cause is not gone stays stopped.")
    lines.append("**Reject** changes nothing at all.")
    return "\n".join(lines)


def _risk(change: Change) -> str:
    if change.risk == "none":
        return "-"
    # Offsets are counted: transaction markers among them are no records.
    return f"{change.risk} {'an unknown number' if change.records is None else f'up to {change.records}'}"
