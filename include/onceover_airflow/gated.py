"""How a DAG is wired that changes something of a flow: plan, ask a person, do it.

Invariant: nothing to approve is no failure, and what is done is checked against the answer again; rejected,
or a failure before, never reaches the clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from airflow.sdk import AssetAlias, TriggerRule, XComArg, task

from onceover_airflow.approval import FlowApprovalOperator

Task = Callable[[str], dict[str, Any]]


def gated(
    flow: str,
    plan: Task,
    ask: type[FlowApprovalOperator],
    apply: Task,
    retried: dict[str, Any],
    outlets: Collection[AssetAlias] = (),
) -> XComArg:
    """Wire the three tasks in the DAG at hand; return the last one. Tasks are called like their functions.

    Args:
        flow: template of the flow's name.
        ask: the operator that asks.
        retried: when each of them is tried again.
        outlets: what ``apply`` announces.
    """
    planned = task(task_id=plan.__name__, multiple_outputs=False, **retried)(plan)(flow)
    approval = ask(task_id=ask.own_task, flow=flow, **retried)
    applied = then(apply, retried, outlets)(flow)
    planned >> approval >> applied
    return applied


def then(
    done: Task, retried: dict[str, Any], outlets: Collection[AssetAlias] = ()
) -> Callable[[str], XComArg]:
    """Return a task that runs although one before it was skipped, and not after a failure."""
    return task(
        task_id=done.__name__,
        multiple_outputs=False,
        trigger_rule=TriggerRule.NONE_FAILED,
        outlets=list(outlets),
        **retried,
    )(done)
