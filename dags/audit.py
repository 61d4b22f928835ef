"""`audit`: prove that both sides of a flow hold the same records; `audit_<flow>`: on its schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, AssetAlias, task

from onceover_airflow import flows
from onceover_airflow.starting import forms, pools
from onceover_airflow.tasks import audit
from onceover_airflow.telling import deadlines
from onceover_airflow.telling.deadlines import told_after

DOC = """
### Audit

Compares both sides of one flow (a file in `include/flows`), record by record: presence, number, order,
partition, key, value, headers and timestamp. The same as `onceover audit`. It may run beside the flow.

1. **check_flow** reads the flow file, its connections and what the form asks for. A fault ends the run at
   once.
2. **audit** is the Spark job. It ends well with the verdict *PASS* only. *FAIL*: records are not as they
   should be, each is named. *UNVERIFIABLE*: nothing wrong was found, but not everything could be compared,
   and it is said what and why. Killed, or a cluster away: it is tried again.
3. **report_audit** shows the verdict and where the report and the Data Docs are, also after a failure;
   announces the asset `x-onceover://<target alias>/<flow>.audit` after a PASS of the flow as a whole.

What was proven is kept on the target (`onceover status` shows how old it is); the next audit goes on there.
*Full* begins anew.
"""


def build(dag_id: str, kind: dict[str, Any], names: list[str]) -> None:
    """Make the DAG that audits one of the flows."""
    with DAG(
        dag_id,
        **kind,
        doc_md=DOC,
        deadline=told_after(deadlines.AUDIT),
        params={
            "flow": forms.flow_param(names),
            **audit.audit_params(),
            "master": forms.master_param(),
        },
    ):
        flow = forms.value("flow")
        check = task(task_id="check_flow", retries=0, multiple_outputs=False)(audit.check_audit)
        compare = audit.AuditOperator(
            task_id=audit.AUDIT_TASK,
            flow=flow,
            topics=forms.value("topics"),
            since=forms.value("since"),
            full=forms.value("full"),
            master=forms.value("master"),
            pool=pools.audit_pool(scheduled=kind["schedule"] is not None),
        )
        reported = audit.ReportOperator(
            task_id="report_audit",
            flow=flow,
            retries=3,
            retry_delay=timedelta(seconds=5),
            outlets=[AssetAlias(audit.AUDITED_ALIAS)],
        )
        checked = check(flow)
        # A teardown runs also when the job failed, and leaves the run's state to the job.
        checked.as_setup() >> compare >> reported.as_teardown()
        checked >> reported


build("audit", forms.by_hand(), flows.flow_names())
flows.build_scheduled(
    "audit",
    lambda flow: build(f"audit_{flow.name}", forms.on_schedule(flow.name, flow.schedule), [flow.name]),
)
