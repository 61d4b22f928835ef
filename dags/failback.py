"""`failback`: the way back behind a switchover, led from the first look to the switchover the other way."""

from __future__ import annotations

from airflow.sdk import DAG, TriggerRule, task

from onceover_airflow import flows
from onceover_airflow.jobs.retrying import retry_interrupted
from onceover_airflow.starting import forms
from onceover_airflow.tasks import failback
from onceover_airflow.tasks.operation import gated

DOC = """
### Failback

The way back of one flow (a file in `include/flows`) that was switched over, planned or not, once its source
is there again. `switchover.reverse` in its file names the flow that leads back. These are the steps of other
DAGs, in their order, each with its own question under *Required Actions*; `docs/drills.md` has more.

1. **find_way_back** looks which flow leads back, and what was promoted.
2. **plan_orphans**, **approve_orphans**, **apply_orphans** as in `export_orphans`: what the old source holds
   alone is exported, and with *Rebuild* its topics are made anew. Skipped when there is nothing. Topics that
   clients have gone back to already are left alone, here and in what follows.
3. **plan_progress**, **approve_progress**, **apply_progress** as in `seed_progress`: the flow that leads back
   begins exactly behind the promotion. Skipped where the switchover has done that.
4. **start_replicate** starts the DAG `replicate` for it, until somebody stops it, unless it runs already;
   **await_caught_up** waits until it has caught up, for a day. Both are skipped where clients have gone back
   with all of it.
5. **plan_drill**, **approve_drill**, **run_drill** as in `failover_drill`: the planned switchover of the flow
   that leads back, or what one that was killed has left to do. Where its file has a person fence or redirect,
   it waits for the DAG `confirm_drill`.

A question that is rejected, or not answered in time, ends it there; what was done before stays, and the DAG
started again goes on with it. It may be killed and started again anywhere.
"""

with DAG(
    "failback",
    **forms.by_hand(),
    doc_md=DOC,
    params={"flow": forms.flow_param(flows.flow_names()), **failback.failback_params()},
):
    flow, retried = forms.value("flow"), retry_interrupted()
    found = task(task_id="find_way_back", multiple_outputs=False, **retried)(failback.find_way_back)(flow)
    look, exported = gated(failback.ORPHANS_BACK, flow, retried)
    planned, begun = gated(failback.BEGIN, flow, retried)
    started = failback.StartReplicating(
        task_id="start_replicate", flow=flow, trigger_rule=TriggerRule.NONE_FAILED, **retried
    )
    caught_up = failback.AwaitCaughtUp(
        task_id="await_caught_up",
        flow=flow,
        started="start_replicate",
        trigger_rule=TriggerRule.NONE_FAILED,
        # It may take hours, with an outage now and then.
        **retry_interrupted(patient=True),
    )
    switched, _ = gated(failback.BACK, flow, retried)
    found >> look
    exported >> planned
    begun >> started >> caught_up >> switched
