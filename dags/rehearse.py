"""`rehearse`: rehearse a failover beside the running flow; `rehearse_<flow>`: on its schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, AssetAlias, task

from onceover_airflow import flows
from onceover_airflow.jobs.retrying import retry_interrupted
from onceover_airflow.starting import forms
from onceover_airflow.tasks import rehearsing
from onceover_airflow.telling import deadlines
from onceover_airflow.telling.deadlines import told_after

DOC = """
### Rehearse

Rehearses a failover of one flow (a file in `include/flows`) beside the running flow, and proves what it
shows. The same as `onceover drill run`. It touches no client: nobody is asked, and nothing stays.

1. **plan_rehearsal** shows in its log what would be copied, and every step with its deadline. It changes
   nothing.
2. **rehearse** writes numbered records into a topic of its own, copies them and the newest records of some
   of the flow's topics, lets a consumer group fail over, compares everything, goes on reading and writing on
   the target, and takes everything away again, also when it fails or is ended. It ends well with *PASS*
   only; its button *Report* leads to the page. After a PASS it announces
   `x-onceover://<target alias>/<flow>.rehearsal`.

Killed, or a cluster away: it is tried again, from the beginning. One rehearsal of a flow runs at a time.
"""
# Longer than all of its steps may take together.
LONGEST = timedelta(minutes=30)


def build(dag_id: str, kind: dict[str, Any], names: list[str]) -> None:
    """Make the DAG that rehearses one of the flows."""
    with DAG(
        dag_id,
        **kind,
        doc_md=DOC,
        deadline=told_after(deadlines.REHEARSAL),
        params={"flow": forms.flow_param(names), **rehearsing.rehearsal_params()},
    ):
        flow, retried = forms.value("flow"), retry_interrupted(patient=kind["schedule"] is not None)
        plan = task(task_id="plan_rehearsal", multiple_outputs=False, **retried)(rehearsing.plan_rehearsal)
        rehearse = rehearsing.RehearseOperator(
            task_id=rehearsing.REHEARSE_TASK,
            flow=flow,
            execution_timeout=LONGEST,
            outlets=[AssetAlias(rehearsing.REHEARSED_ALIAS)],
            **retried,
        )
        plan(flow) >> rehearse


build("rehearse", forms.by_hand(), flows.flow_names())
flows.build_scheduled(
    "rehearse",
    lambda flow: build(f"rehearse_{flow.name}", forms.on_schedule(flow.name, flow.schedule), [flow.name]),
)
