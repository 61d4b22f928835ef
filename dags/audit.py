"""`audit`: prove that both sides of a flow hold the same records; `audit_<flow>`: on its schedule."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, AssetAlias, Param, task

from onceover_airflow import audit, flows, tasks

DOC = """
### Audit

Compares both sides of one flow (a file in `include/flows`), record by record: presence, number, order,
partition, key, value, headers and timestamp. The same as `onceover audit`. It may run beside the flow.

1. **check_flow** reads the flow file and its connections. A fault ends the run at once.
2. **audit** is the Spark job. It ends well with the verdict *PASS* only. *FAIL*: records are not as they
   should be, each is named. *UNVERIFIABLE*: nothing wrong was found, but not everything could be compared,
   and it is said what and why. Killed, or a cluster away: it is tried again.
3. **report_audit** shows the verdict and where the report and the Data Docs are, also after a failure;
   announces the asset `kafka://<target alias>/<flow>.audit` after a PASS.

What was proven is kept on the target (`onceover status` shows how old it is); the next audit goes on there.
*Full* begins anew.
"""
# Audits only read, and keep their watermark behind a fence: more than one does no harm.
MAX_MANUAL_RUNS = 16


def build(dag_id: str, *, flow: Param, schedule: str | None = None) -> DAG:
    """Return the DAG; a scheduled audit never overlaps its own last run."""
    with DAG(
        dag_id,
        schedule=schedule,
        catchup=False,
        max_active_runs=1 if schedule else MAX_MANUAL_RUNS,
        is_paused_upon_creation=False,
        doc_md=DOC,
        tags=["onceover"],
        params={"flow": flow, **audit.audit_params(), "master": flows.master_param()},
    ) as dag:
        check = task(task_id="check_flow", retries=0, multiple_outputs=False)(tasks.check_flow)
        compare = audit.AuditOperator(
            task_id=audit.AUDIT_TASK,
            flow="{{ params.flow }}",
            topics="{{ params.topics }}",
            since="{{ params.since }}",
            full="{{ params.full }}",
            master="{{ params.master }}",
        )
        report = task(
            task_id="report_audit",
            retries=3,
            retry_delay=timedelta(seconds=5),
            multiple_outputs=False,
            outlets=[AssetAlias(audit.AUDITED_ALIAS)],
        )(audit.report_audit)
        checked = check("{{ params.flow }}")
        reported = report("{{ params.flow }}")
        # A teardown runs also when the job failed, and leaves the run's state to the job.
        checked.as_setup() >> compare >> reported.as_teardown()
        checked >> reported
    return dag


build("audit", flow=flows.flow_param(flows.flow_names()))
for planned in flows.scheduled_flows("audit"):
    build(
        f"audit_{planned.name}",
        flow=flows.flow_param([planned.name]),
        schedule=planned.schedule,
    )
