"""A run that nobody but a schedule wants leaves one that lives alone: it would take over, and end."""

from __future__ import annotations

from onceover.ages import moment_text
from onceover.errors import NeedsOperator
from onceover.kafka.ports import Cluster
from onceover.lead.codes import LeadCode
from onceover.state.read import read_run
from onceover.state.records.runstate import FlowRun


def leave_alone(target: Cluster, flow: str, begun_by: str | None) -> None:
    """Look, at the last moment, whether another run copies: whoever starts now fences it.

    Seconds pass between a scheduler's look and the start of a driver, in which somebody may have begun one.

    Args:
        begun_by: which run of a DAG asks; what an earlier try of it has left is its own.

    Raises:
        NeedsOperator: LEFT_ALONE.
        Retriable: the target is away.
    """
    other = read_run(target, flow)
    if is_other(other, begun_by):
        raise left_alone(flow, other)


def is_other(run: FlowRun, begun_by: str | None) -> bool:
    """Tell whether a run lives, and is not an earlier try of the one that asks. Pure."""
    return run.lives and run.begun_by != begun_by


def left_alone(flow: str, run: FlowRun) -> NeedsOperator:
    """Return who is left alone. Pure."""
    return NeedsOperator(
        f"flow {flow} is copied by a run on {run.host} since {moment_text(run.started_ms or 0)}, "
        "which is left alone",
        code=LeadCode.LEFT_ALONE,
        resolve="to have this one take over, trigger the DAG by hand",
    )
