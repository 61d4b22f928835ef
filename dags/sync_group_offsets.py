"""`sync_group_offsets`: put consumer groups in place on the other side; `..._<flow>`: on its schedule."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetAlias

from onceover_airflow import flows
from onceover_airflow.jobs.retrying import retry_interrupted
from onceover_airflow.starting import forms, pools
from onceover_airflow.tasks import groups
from onceover_airflow.tasks.operation import gated

DOC = """
### Sync group offsets

Commits, for every consumer group of one flow (a file in `include/flows`), the exact counterpart of its
offsets on the other cluster: its consumers go on there with the first record they have not read. The same
as `onceover groups plan`, `apply` and `follow`. *failback* goes from the target to the source.

1. **plan_groups** shows in its log where every group would go on, and why. Changes nothing.
2. **approve_moves** asks a person, under *Required Actions*, about groups that would be moved back, over
   somebody else's commits, or past records that are gone. Skipped when there are none, and in scheduled runs:
   these leave such groups alone. Rejected: nothing is written.
3. **apply_groups** writes, once or for a while. Interrupted anywhere, it can be run again. What it did is
   in `ONCEOVER_HOME/<flow>/journal/groups.jsonl`. It announces the asset
   `x-onceover://<receiving alias>/<flow>.groups` when every group of the flow is in place, and fails, naming
   the way out, when one waits for somebody's decision, or none is called as the form says. Skipped when the
   flow has no groups.

A group with members on the receiving side is never written.
"""
# One look after another for so long; then the next run begins, so that Airflow shows progress.
CONTINUOUS_LENGTH = "1h"


def build(dag_id: str, kind: dict[str, Any], names: list[str], *, until: str, approve: bool) -> None:
    """Make the DAG; on a schedule nobody is there to answer."""
    with DAG(
        dag_id,
        **kind,
        doc_md=DOC,
        params={"flow": forms.flow_param(names), **forms.group_params(until=until, approve=approve)},
    ):
        settings = retry_interrupted(patient=kind["schedule"] is not None)
        if kind["schedule"] == flows.CONTINUOUS:
            settings["pool"] = pools.copy_pool()
        gated(groups.GROUPS, forms.value("flow"), settings, [AssetAlias(groups.SYNCED_ALIAS)])


build("sync_group_offsets", forms.by_hand(), flows.flow_names(), until=groups.ONCE, approve=True)
flows.build_scheduled(
    "sync_group_offsets",
    lambda flow: build(
        f"sync_group_offsets_{flow.name}",
        forms.on_schedule(flow.name, flow.schedule),
        [flow.name],
        until=CONTINUOUS_LENGTH if flow.schedule == flows.CONTINUOUS else groups.ONCE,
        approve=False,
    ),
)
