"""`seed_progress`: write a flow's progress from an origin, or take over from MirrorMaker 2."""

from __future__ import annotations

from airflow.sdk import DAG

from onceover_airflow import flows
from onceover_airflow.jobs.retrying import retry_interrupted
from onceover_airflow.starting import forms
from onceover_airflow.tasks import seeding
from onceover_airflow.tasks.operation import gated

DOC = """
### Seed progress

Writes where one flow (a file in `include/flows`) goes on. *seed* takes the positions from a consumer group
on the source, a time, another flow, or the flow's own offset map; *adopt* takes over a MirrorMaker 2 flow
that was stopped, and finds the positions by comparing both sides. The same as `onceover seed` and
`onceover adopt`.

1. **plan_progress** shows in its log what would be written, repeated and skipped. Changes nothing.
2. **approve_progress** asks a person, under *Required Actions*, with every position. Skipped when there is
   nothing to write. Rejected: nothing is written, and nothing is fenced.
3. **apply_progress** fences the flow, plans again, and writes. Interrupted anywhere, it can be run again.
   What it did is in `ONCEOVER_HOME/<flow>/journal`. It fails, naming the way out, when a partition is
   refused; the others are written.

It acts as a start of the flow: a running copy ends with exit code 4. Start `replicate` afterwards.
"""

with DAG(
    "seed_progress",
    **forms.by_hand(),
    doc_md=DOC,
    params={"flow": forms.flow_param(flows.flow_names()), **seeding.seed_params()},
):
    gated(seeding.PROGRESS, forms.value("flow"), retry_interrupted())
