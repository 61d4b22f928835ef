"""The tasks of the DAG ``sync_topics``. Plain functions over the code that ``onceover topics`` runs.

Invariant: a change that may cost records is made only when it was shown to a person, as it is, and approved;
anything else that has come meanwhile is shown in a new run.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Asset, AssetAlias, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from onceover_airflow.approval import FlowApprovalOperator, Question, approved, table
from onceover_airflow.errors import TaskFailed
from onceover_airflow.flowcontext import flow_at_hand, log_text
from onceover_airflow.markdown import Inline, code, plain

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.topics.sync import SyncPlan

log = logging.getLogger(__name__)

# Outlet under which the flows' topics are announced: which flow it is, is known at run time only.
SYNCED_ALIAS: Final = "onceover_synced"
APPROVE_TASK: Final = "approve_changes"


def plan_topics(flow: str) -> dict[str, Any]:
    """Show the plan in the log and return what it amounts to. Changes nothing.

    Raises:
        JobInterrupted: a cluster does not answer; tried again.
        TaskFailed: any other error.
    """
    planned = read_plan(flow)
    show(planned)
    return count_plan(planned)


def read_plan(flow: str) -> SyncPlan:
    """Return the plan as of now."""
    from onceover.wiring import topics as topic_runs

    with flow_at_hand(flow) as loaded:
        return topic_runs.plan_topics(loaded)


def count_plan(planned: SyncPlan) -> dict[str, Any]:
    """Return ids and counts, for the XCom."""
    plan, risky = planned.plan, planned.risky
    return {
        "flow": plan.flow,
        "plan_id": plan.plan_id,
        "changes": len(plan.changes),
        "risky": len(risky.changes),
        "refused": len(plan.refused),
    }


def show(planned: SyncPlan) -> None:
    """Log the plan as a person reads it."""
    log_text(log, planned.describe())


def apply_topics(flow: str) -> dict[str, Any]:
    """Do what the plan says and return what was done.

    Raises:
        AirflowSkipException: only a plan was asked for.
        JobInterrupted: a cluster does not answer; tried again, which goes on from there.
        TaskFailed: other changes that may cost records have come since the approval; or any
            other error.
    """
    from onceover.wiring import topics as topic_runs

    context = get_current_context()
    if not context["params"]["apply"]:
        raise AirflowSkipException("only a plan was asked for")
    with flow_at_hand(flow) as loaded:
        applied = topic_runs.apply_topics(loaded, show, approved(context, APPROVE_TASK))
    log_text(log, applied.describe())
    return {"flow": flow, "plan_id": applied.first.plan.plan_id, "changes_made": applied.changes}


def report_topics(flow: str) -> dict[str, Any]:
    """Look again, say what is left, announce the asset when nothing is and there is something in scope.

    Raises:
        JobInterrupted: a cluster does not answer; tried again.
        TaskFailed: a topic or an ACL is refused until somebody decides; no topic is in scope; or
            any other error.
    """
    from onceover.topics.scopecheck import nothing_in_scope

    planned = read_plan(flow)
    show(planned)
    counts = count_plan(planned)
    if planned.exit_code:
        refused = "; ".join(f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in planned.plan.refused)
        raise TaskFailed(f"flow {flow} needs an operator: {refused}")
    if nothing := nothing_in_scope(r.document() for r in planned.plan.refused):
        raise TaskFailed(nothing)
    if planned.is_empty:
        uri = synced_uri(flow)
        get_current_context()["outlet_events"][AssetAlias(SYNCED_ALIAS)].add(Asset(uri), extra=counts)
        log.info("synced: %s", uri)
    return counts


def synced_uri(flow: str) -> str:
    """Return the asset of a flow's topics; flow names hold no dot, so it is nobody's caught-up asset."""
    with flow_at_hand(flow) as loaded:
        return f"kafka://{loaded.target.alias}/{loaded.flow}.topics"


class ApproveChangesOperator(FlowApprovalOperator):
    """Wait until a person approves the changes that may cost records; skipped where there are none.

    Rejected, or not answered in time, the task downstream is skipped and nothing is changed.
    """

    own_task = APPROVE_TASK
    about = "changes that may cost records"

    def ask(self, context: Context) -> Question:
        """Return the question; skipped where there is nothing to ask."""
        if not context["params"]["apply"]:
            raise AirflowSkipException("only a plan was asked for")
        planned = read_plan(self.flow)
        if not planned.items:
            raise AirflowSkipException("no change of the plan can cost records")
        return Question(planned.items, question(planned), planned.describe())


def question(planned: SyncPlan) -> str:
    """Return the changes that may cost records, as Markdown."""
    changes = planned.risky.changes
    rows = [
        (plain(c.what), code(c.object), _setting(c.from_), _setting(c.to), plain(c.risk)) for c in changes
    ]
    others = len(planned.plan.changes) - len(changes)
    lines = table(("change", "of", "from", "to", "risk"), rows)
    lines.append(f"{others} other changes cost nothing. **Reject** changes nothing at all.")
    return "\n".join(lines)


def _setting(value: str | int | None) -> Inline:
    return plain("not set") if value is None else code(value)
