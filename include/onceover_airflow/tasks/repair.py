"""The tasks of the DAG ``repair_partition``.

Invariant: nothing is done that a person has not approved: the same partitions, stopped for the same
reason, at the same risks, and under ``skip-to`` the same offset; while nobody else has changed their progress
by hand, and one time. How many records a risk concerns may have changed by then where the flow, or its
source, goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param

from onceover_airflow.access.flowcontext import flow_at_hand
from onceover_airflow.approvals.approval import table
from onceover_airflow.approvals.markdown import code, plain
from onceover_airflow.errors import TaskFailed
from onceover_airflow.starting import forms
from onceover_airflow.tasks.operation import OperationTasks
from onceover_airflow.tasks.standing import show_standing

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.operate.repair import Repair, RepairRequest
    from onceover.operate.repairapply import Repairer
    from onceover.planning.plan import Change

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


class RepairTasks(OperationTasks["Repair"]):
    """Plan, approve and apply what a stopped partition asks for."""

    plan_task = "plan_repair"
    approve_task = "approve_repair"
    apply_task = "apply_repair"
    subject = "Flow {{ params.flow }}: partitions to be repaired"
    needs_answer = True

    @contextmanager
    def opened(self, name: str, context: Context) -> Iterator[Repairer]:
        """Yield the repair that the form asks for, with both clusters open."""
        from onceover.wiring import flows, repairs

        with flow_at_hand(name) as flow:
            making = partial(repairs.repairer, request=_request(context["params"]))
            with flows.opened(flow, making) as repair:
                yield repair

    def check(self, planned: Repair) -> None:
        """Fail where something is refused: nothing is done then."""
        if planned.refused:
            shown = "; ".join(f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in planned.refused)
            raise TaskFailed(f"flow {planned.flow}: {planned.operation} is not possible: {shown}")

    def question(self, planned: Repair) -> str:
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

    def report(self, name: str) -> dict[str, Any]:
        """Show where the flow stands; return counts.

        What was resumed is looked at by the running lanes within moments, or at the next start: until then it
        is still shown as stopped.

        Raises:
            JobInterrupted: a cluster does not answer; tried again.
            TaskFailed: any other error.
        """
        status = show_standing(name)
        stopped = sum(1 for partition in status["partitions"] if partition["stop"])
        return {"flow": name, "state": status["state"], "partitions_stopped": stopped}


REPAIR: Final = RepairTasks()


def _request(params: Mapping[str, Any]) -> RepairRequest:
    """Return what the form asks for; what makes no sense is refused with the plan.

    Raises:
        TaskFailed: a topic without its partition, or the other way round.
    """
    from onceover.model import TopicPartition
    from onceover.operate.repair import RepairRequest

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


def _risk(change: Change) -> str:
    if change.risk == "none":
        return "-"
    # Offsets are counted: transaction markers among them are no records.
    return f"{change.risk} {'an unknown number' if change.records is None else f'up to {change.records}'}"
