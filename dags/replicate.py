"""`replicate`: copy a flow's topics exactly once, started by hand; `replicate_<flow>`: on its schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, AssetAlias, task

from onceover_airflow import flows
from onceover_airflow.jobs.operators import COPIED_ALIAS, ReplicateOperator
from onceover_airflow.starting import forms, pools
from onceover_airflow.tasks import replicating
from onceover_airflow.telling import deadlines
from onceover_airflow.telling.deadlines import told_after

DOC = """
### Replicate

Copies the topics of one flow (a file in `include/flows`) from its source cluster to its target cluster, every
committed record once and in order. Progress lives on the target: a run goes on where the last one ended.

1. **check_flow** reads the flow file and its connections. A fault ends the run at once.
2. **replicate** is the Spark job. Killed, or a cluster away: it resumes by itself within seconds. Anything
   else ends the run with a message that says what to do. Caught up, it announces each target topic as the
   asset `kafka://<host:port>/<topic>`.
3. **report_result** shows what was copied and what is still missing; announces the asset
   `x-onceover://<target alias>/<flow>` when this run has brought everything to the target. It runs also when
   the job failed, and announces nothing then.

A flow that matches no topic fails: it copies nothing. `onceover flow check FLOW --explain` shows why.

Starting a flow that runs already is safe: the newer run takes over, the older one ends as *fenced*. A run
that a schedule begins leaves one that lives alone, and is skipped, also where that one has begun while it
waited.
"""


def build(dag_id: str, kind: dict[str, Any], names: list[str], run_length: str) -> None:
    """Make the DAG that copies one of the flows."""
    scheduled = kind["schedule"] is not None
    with DAG(
        dag_id,
        **kind,
        doc_md=DOC,
        # By hand a person says how long, and a continuous run has no end.
        deadline=told_after(deadlines.COPY) if scheduled and run_length == flows.CAUGHT_UP else None,
        params={
            "flow": forms.flow_param(names),
            "run_length": forms.run_length_param(run_length),
            "master": forms.master_param(),
        },
    ):
        flow = forms.value("flow")
        check = task(task_id="check_flow", retries=0, multiple_outputs=False)(replicating.check_copy)
        replicate = ReplicateOperator(
            task_id="replicate",
            flow=flow,
            until=forms.value("run_length"),
            master=forms.value("master"),
            pool=pools.copy_pool(),
            outlets=[AssetAlias(COPIED_ALIAS)],
        )
        report = task(
            task_id="report_result",
            retries=3,
            retry_delay=timedelta(seconds=5),
            multiple_outputs=False,
            outlets=[AssetAlias(replicating.CAUGHT_UP_ALIAS)],
        )(replicating.report_result)
        checked = check(flow)
        reported = report(flow)
        # A teardown runs also when the job failed, and leaves the run's state to the job.
        checked.as_setup() >> replicate >> reported.as_teardown()
        checked >> reported


build("replicate", forms.by_hand(), flows.flow_names(), flows.CAUGHT_UP)
flows.build_scheduled(
    "replicate",
    lambda flow: build(
        f"replicate_{flow.name}", forms.on_schedule(flow.name, flow.schedule), [flow.name], flow.run_length
    ),
)
