"""`failover_drill`: what a failover would cost, and doing one; `confirm_drill`: what a person has done."""

from __future__ import annotations

from airflow.sdk import DAG, task

from onceover_airflow import flows
from onceover_airflow.jobs.retrying import retry_interrupted
from onceover_airflow.starting import forms
from onceover_airflow.tasks import switching
from onceover_airflow.tasks.operation import gated

DOC = """
### Failover drill

What a failover of one flow (a file in `include/flows`) would cost now, and doing one. The same as
`onceover drill plan` and `run`; `docs/drills.md` has every step.

1. **plan_drill** shows in its log, for *dry-run*, what would be lost, repeated or skipped and who uses the
   source, and fails while something has to be decided first; for *planned* and *unplanned* every step with
   its deadline, and the point of no return. It changes nothing.
2. **approve_drill** asks a person, under *Required Actions*, with all of that. Skipped for a dry-run.
   Rejected, or not answered in time: nothing is done.
3. **run_drill** switches over. Before the point of no return a failing run undoes itself; behind it it only
   goes forward: start this DAG again, and it goes on. Where the flow file has a person fence the producers
   or move the clients, it waits for the DAG `confirm_drill`.

To fail back, run it for the flow in the other direction.
"""
CONFIRM = """
### Confirm a step of a drill

Tells the drill of a flow that waits that the producers are stopped (*fence*), or that the clients were moved
(*redirect*). The same as `onceover drill confirm`; who has started this run is written into the journal.
"""

with DAG(
    "failover_drill",
    **forms.by_hand(),
    doc_md=DOC,
    params={"flow": forms.flow_param(flows.flow_names()), **switching.drill_params()},
):
    gated(switching.DRILL, forms.value("flow"), retry_interrupted())

with DAG(
    "confirm_drill",
    **forms.by_hand(),
    doc_md=CONFIRM,
    params={"flow": forms.flow_param(flows.flow_names()), **switching.confirm_params()},
):
    confirm = task(task_id="confirm", multiple_outputs=False, **retry_interrupted())(switching.confirm)
    confirm(forms.value("flow"))
