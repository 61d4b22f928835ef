"""The tasks of the DAG ``sync_topics``. Plain functions over the code that ``onceover topics`` runs.

Invariant: a change that may cost records is made only when exactly the risky changes that were shown to a
person were approved; anything else that has come meanwhile is shown in a new run.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Asset, AssetAlias, get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from onceover_airflow.flowcontext import flow_at_hand, log_text

if TYPE_CHECKING:
    from onceover.engine.topicsync import SyncPlan

log = logging.getLogger(__name__)

# Outlet under which the flows' topics are announced: which flow it is, is known at run time only.
SYNCED_ALIAS: Final = "onceover_synced"
PLAN_TASK: Final = "plan_topics"


def plan_topics(flow: str) -> dict[str, Any]:
    """Show the plan in the log and return what it amounts to. Changes nothing.

    Raises:
        JobInterrupted: a cluster does not answer; tried again.
        AirflowFailException: any other error.
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
        "risk_id": risky.plan_id,
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
        AirflowFailException: other changes that may cost records have come since the approval; or any
            other error.
    """
    from onceover.wiring import topics as topic_runs

    context = get_current_context()
    if not context["params"]["apply"]:
        raise AirflowSkipException("only a plan was asked for")
    approved = context["ti"].xcom_pull(task_ids=PLAN_TASK)

    def check(planned: SyncPlan) -> None:
        show(planned)
        check_approved(planned, approved["risk_id"])

    with flow_at_hand(flow) as loaded:
        applied = topic_runs.apply_topics(loaded, check)
    log_text(log, applied.describe())
    return {"flow": flow, "plan_id": applied.first.plan.plan_id, "changes_made": applied.changes}


def check_approved(planned: SyncPlan, risk_id: str) -> None:
    """Refuse a plan whose risky changes are not the ones that were approved.

    Raises:
        AirflowFailException: there are others.
    """
    risky = planned.risky
    if risky.changes and risky.plan_id != risk_id:
        raise AirflowFailException(
            "the clusters have changed since the plan was made, and now other changes may cost records; "
            f"expected: plan {risk_id}; seen: plan {risky.plan_id}; to resolve: start the DAG again"
        )


def report_topics(flow: str) -> dict[str, Any]:
    """Look again, say what is left, announce the asset when nothing is and there is something in scope.

    Raises:
        JobInterrupted: a cluster does not answer; tried again.
        AirflowFailException: a topic or an ACL is refused until somebody decides; no topic is in scope; or
            any other error.
    """
    from onceover.engine.scopecheck import nothing_in_scope

    planned = read_plan(flow)
    show(planned)
    counts = count_plan(planned)
    if planned.exit_code:
        refused = "; ".join(f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in planned.plan.refused)
        raise AirflowFailException(f"flow {flow} needs an operator: {refused}")
    if nothing := nothing_in_scope(r.document() for r in planned.plan.refused):
        raise AirflowFailException(nothing)
    if planned.is_empty:
        uri = synced_uri(flow)
        get_current_context()["outlet_events"][AssetAlias(SYNCED_ALIAS)].add(Asset(uri), extra=counts)
        log.info("synced: %s", uri)
    return counts


def synced_uri(flow: str) -> str:
    """Return the asset of a flow's topics; flow names hold no dot, so it is nobody's caught-up asset."""
    with flow_at_hand(flow) as loaded:
        return f"kafka://{loaded.target.alias}/{loaded.flow}.topics"
