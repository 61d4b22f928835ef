"""The tasks of the DAG ``sync_group_offsets``. Plain functions over the code that ``onceover groups`` runs.

Invariant: a group is moved back, or over somebody else's commits, only where a person was shown exactly that
move, from where the group stands, and approved it; whatever else has come meanwhile is left alone and
reported.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Asset, AssetAlias, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from onceover.shown import lined
from onceover_airflow.approval import MAX_LISTED, FlowApprovalOperator, Question, approved, table
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.flowcontext import flow_at_hand, log_text
from onceover_airflow.markdown import code, plain

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.groups.plan import GroupPlan, Row
    from onceover.planning.approval import Approval
    from onceover.planning.plan import Refusal
    from onceover.wiring.groups import GroupRequest

log = logging.getLogger(__name__)

# Outlet under which the flows' groups are announced: which flow it is, is known at run time only.
SYNCED_ALIAS: Final = "onceover_groups_synced"
APPROVE_TASK: Final = "approve_moves"
ONCE: Final = "once"
FOLLOW_INTERVAL_S: Final = 10.0
_DONE, _TEMPORARY = 0, 5


def plan_groups(flow: str) -> dict[str, Any]:
    """Show the plan in the log; return names and counts. Changes nothing.

    Raises:
        JobInterrupted: a cluster does not answer; tried again.
        TaskFailed: any other error.
    """
    planned = read_plan(flow, get_current_context()["params"])
    log_text(log, planned.describe())
    return {
        "flow": flow,
        "plan_id": planned.plan_id,
        "changes": len(planned.changes),
        "refused": len(planned.refused),
        "risky": len(planned.risky),
    }


def read_plan(flow: str, params: Mapping[str, Any]) -> GroupPlan:
    """Return the plan as of now."""
    from onceover.wiring import groups as group_runs

    with flow_at_hand(flow) as loaded:
        return group_runs.plan_groups(loaded, _request(params))


def apply_groups(flow: str) -> dict[str, Any]:
    """Put the groups in place, once or for a while, and announce the asset when all of the flow are.

    Raises:
        AirflowSkipException: only a plan was asked for; or the flow has no groups, so nothing is in place.
        JobInterrupted: a cluster does not answer; tried again, which goes on from there.
        TaskFailed: a group waits for somebody's decision; no group is called as the form says; or
            any other error.
    """
    context = get_current_context()
    params = context["params"]
    if not params["apply"]:
        raise AirflowSkipException("only a plan was asked for")
    shown = approved(context, APPROVE_TASK)
    counts, refused, code = _write(flow, params, lambda row: shown.covers(row.item), shown)
    for refusal in refused:
        log.warning("left alone: %s: %s; %s", refusal.object, refusal.message, refusal.resolve)
    if code == _TEMPORARY:
        raise JobInterrupted(_told(flow, refused))
    if code != _DONE:
        raise TaskFailed(_told(flow, refused))
    if not counts["positions"]:
        raise _nobody(flow, params["group"])
    if params["group"]:
        log.info("not announced: the asset stands for all groups of the flow, and only some were asked for")
        return counts
    with flow_at_hand(flow) as loaded:
        receiving = loaded.target if params["direction"] == "failover" else loaded.source
        uri = f"kafka://{receiving.alias}/{loaded.flow}.groups"
    context["outlet_events"][AssetAlias(SYNCED_ALIAS)].add(Asset(uri), extra=counts)
    log.info("synced: %s", uri)
    return counts


def _write(
    flow: str, params: Mapping[str, Any], approves: Callable[[Row], bool], approval: Approval
) -> tuple[dict[str, Any], list[Refusal], int]:
    from onceover.config.units import parse_duration_ms
    from onceover.wiring import groups as group_runs

    request = _request(params, approves, approval)
    with flow_at_hand(flow) as loaded:
        if params["until"] == ONCE:
            applied = group_runs.apply_groups(
                loaded, request, lambda plan: log_text(log, plan.describe()), _wait
            )
            refused = [*applied.plan.refused, *applied.refused]
            made, positions = len(applied.done), len(applied.plan.rows)
            return _counts(flow, made, positions, refused), refused, applied.exit_code
        until_s = time.monotonic() + parse_duration_ms(params["until"]) / 1000
        pause = _until(until_s)
        followed = group_runs.follow_groups(loaded, request, FOLLOW_INTERVAL_S, pause, log.info)
        log_text(log, followed.describe())
        counts = _counts(flow, followed.changes, followed.positions, followed.refused)
        return counts, followed.refused, followed.exit_code


def _counts(flow: str, made: int, positions: int, refused: Collection[Refusal]) -> dict[str, Any]:
    return {"flow": flow, "changes_made": made, "positions": positions, "left": len(refused)}


def _nobody(flow: str, pattern: str | None) -> Exception:
    """Return how the task ends when there was no position to put in place."""
    if pattern:
        return TaskFailed(
            f"flow {flow}: no group that {pattern} matches has offsets in the flow's topics; "
            f"to resolve: correct the pattern; all groups: onceover groups plan {flow}"
        )
    return AirflowSkipException(
        f"flow {flow}: no consumer group has offsets in the flow's topics: nothing was put in place"
    )


def _request(
    params: Mapping[str, Any],
    approves: Callable[[Row], bool] | None = None,
    approval: Approval | None = None,
) -> GroupRequest:
    from onceover.groups.decide import Allowed, Direction
    from onceover.wiring.groups import GroupRequest

    patterns = [params["group"]] if params["group"] else []
    allowed = Allowed(rewind=params["allow_rewind"])
    return GroupRequest(Direction(params["direction"]), patterns, allowed, approves, approval)


def _wait(seconds: float) -> bool:
    """Wait; a task that is ended meanwhile is ended by a signal."""
    time.sleep(seconds)
    return False


def _until(at_s: float) -> Callable[[float], bool]:
    def pause(seconds: float) -> bool:
        left_s = max(0.0, at_s - time.monotonic())
        time.sleep(min(seconds, left_s))
        return time.monotonic() >= at_s

    return pause


def _told(flow: str, refused: Collection[Refusal]) -> str:
    waiting = [refusal for refusal in refused if refusal.blocks]
    shown = [f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in waiting[:MAX_LISTED]]
    more = [f"and {len(waiting) - MAX_LISTED} more"] if len(waiting) > MAX_LISTED else []
    return lined([f"flow {flow}: groups that are not in place:", *shown, *more])


class ApproveMovesOperator(FlowApprovalOperator):
    """Wait until a person approves the moves that may skip or repeat records; skipped where there are none.

    Rejected, or not answered in time, nothing is written.
    """

    own_task = APPROVE_TASK
    about = "groups that would skip or repeat records"

    def ask(self, context: Context) -> Question:
        """Return the question; skipped where nothing is risky, or nobody is to be asked."""
        params = context["params"]
        if not params["apply"] or not params["approve"]:
            raise AirflowSkipException("nobody is to be asked")
        planned = read_plan(self.flow, params)
        if not planned.risky:
            raise AirflowSkipException("nothing to approve")
        items = [row.item for row in planned.risky]
        return Question(items, question(planned.risky), planned.describe())


def question(risky: Collection[Row]) -> str:
    """Return the moves that may skip or repeat records, as Markdown."""
    changes = [row.change for row in risky]
    rows = [
        (plain(c.what), code(c.object), plain(c.from_), plain(c.to), plain(f"{c.risk} {_count(c.records)}"))
        for c in changes
    ]
    lines = table(("change", "of", "from", "to", "offsets"), rows)
    lines.append("Offsets are as of now; groups move. **Reject** writes nothing at all, for no group.")
    return "\n".join(lines)


def _count(records: int | None) -> str:
    return "an unknown number" if records is None else str(records)
