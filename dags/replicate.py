"""`replicate`: copy a flow's topics exactly once, started by hand; `replicate_<flow>`: on its schedule."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, AssetAlias, Param, task

from onceover_airflow import flows, tasks
from onceover_airflow.operators import ReplicateOperator

DOC = """
### Replicate

Copies the topics of one flow (a file in `include/flows`) from its source cluster to its target cluster, every
committed record once and in order. Progress lives on the target: a run goes on where the last one ended.

1. **check_flow** reads the flow file and its connections. A fault ends the run at once.
2. **replicate** is the Spark job. Killed, or a cluster away: it resumes by itself within seconds. Anything
   else ends the run with a message that says what to do.
3. **report_result** shows what was copied and what is still missing; announces the asset
   `kafka://<target alias>/<flow>` when everything is on the target. It runs also when the job failed.

Starting a flow that runs already is safe: the newer run takes over, the older one ends as *fenced*.
"""


# One run per flow is the rule and fencing keeps it; this only bounds what one mistake can start.
MAX_MANUAL_RUNS = 16


def build(dag_id: str, *, flow: Param, run_length: str, schedule: str | None = None) -> DAG:
    """Return the DAG; a scheduled flow never overlaps its own last run."""
    with DAG(
        dag_id,
        schedule=schedule,
        catchup=False,
        max_active_runs=1 if schedule else MAX_MANUAL_RUNS,
        is_paused_upon_creation=False,
        doc_md=DOC,
        tags=["onceover"],
        params={
            "flow": flow,
            "run_length": flows.run_length_param(run_length),
            "master": flows.master_param(),
        },
    ) as dag:
        check = task(task_id="check_flow", retries=0, multiple_outputs=False)(tasks.check_flow)
        replicate = ReplicateOperator(
            task_id="replicate",
            flow="{{ params.flow }}",
            until="{{ params.run_length }}",
            master="{{ params.master }}",
        )
        report = task(
            task_id="report_result",
            retries=3,
            retry_delay=timedelta(seconds=5),
            multiple_outputs=False,
            outlets=[AssetAlias(tasks.CAUGHT_UP_ALIAS)],
        )(tasks.report_result)
        checked = check("{{ params.flow }}")
        reported = report("{{ params.flow }}")
        # A teardown runs also when the job failed, and leaves the run's state to the job.
        checked.as_setup() >> replicate >> reported.as_teardown()
        checked >> reported
    return dag


build("replicate", flow=flows.flow_param(flows.flow_names()), run_length=flows.CAUGHT_UP)
for planned in flows.scheduled_flows("replicate"):
    build(
        f"replicate_{planned.name}",
        flow=flows.flow_param([planned.name]),
        run_length=planned.run_length,
        schedule=planned.schedule,
    )
