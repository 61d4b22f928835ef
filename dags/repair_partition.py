"""`repair_partition`: resume, skip or reseed stopped partitions of a flow, after a person's approval."""

from __future__ import annotations

from airflow.sdk import DAG

from onceover_airflow import flows
from onceover_airflow.jobs.retrying import retry_interrupted
from onceover_airflow.starting import forms
from onceover_airflow.tasks import repair
from onceover_airflow.tasks.operation import gated, then

DOC = """
### Repair partitions

A partition stops where going on would skip or repeat records, and says why (`onceover status`, the log of
`report_result`). This DAG does what the stop asks for, as `onceover partition` does: *resume* has it looked
at again once the cause is gone, *skip-to* goes on at a source offset, *reseed* copies it from its start, and
creates a target topic that is gone. Submitted untouched it resumes every stopped partition of the flow.

1. **plan_repair** shows in its log what would be done. Changes nothing; fails, naming the way out, when
   that cannot be done.
2. **approve_repair** asks a person, under *Required Actions*, with what would be repeated or skipped. Skipped
   when there is nothing to do. Rejected: nothing is changed, and nothing is fenced.
3. **apply_repair** plans again and does it. What it did is in `ONCEOVER_HOME/<flow>/journal/partition.jsonl`.
4. **report_repair** shows where the flow stands afterwards.

*skip-to* and *reseed* act as a start of the flow: a running copy ends with exit code 4. Start `replicate`
afterwards. *resume* disturbs nothing; a flow that does not run looks again when it is started.
"""

with DAG(
    "repair_partition",
    **forms.by_hand(),
    doc_md=DOC,
    params={"flow": forms.flow_param(flows.flow_names()), **repair.repair_params()},
):
    name, retried = forms.value("flow"), retry_interrupted()
    _, applied = gated(repair.REPAIR, name, retried)
    applied >> then("report_repair", repair.REPAIR.report, retried)(name)
