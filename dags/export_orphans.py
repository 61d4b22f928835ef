"""`export_orphans`: what the old source of an unplanned switchover holds alone, to a topic and a file."""

from __future__ import annotations

from airflow.sdk import DAG

from onceover_airflow import flows
from onceover_airflow.jobs.retrying import retry_interrupted
from onceover_airflow.starting import forms
from onceover_airflow.tasks import orphans
from onceover_airflow.tasks.operation import gated

DOC = """
### Export orphans

For when the source of one flow (a file in `include/flows`) is back behind an unplanned switchover: the
records that were written there and never copied. The same as `onceover drill orphans`; `docs/drills.md` has
more.

1. **plan_orphans** shows in its log what was never copied, by partition, transactions that are open there,
   and those that were torn. Changes nothing.
2. **approve_orphans** asks a person, under *Required Actions*, with all of that. Skipped when there is
   nothing to export. Rejected: nothing is done.
3. **apply_orphans** exports each record once, to the topic `__onceover.<flow>.orphans` on the target and to a
   file below `ONCEOVER_HOME/<flow>/orphans`, and reads both back. With *Rebuild* it then deletes the topics
   on the old source, so that the flow the other way copies them anew. Interrupted anywhere, it can be run
   again.
"""

with DAG(
    "export_orphans",
    **forms.by_hand(),
    doc_md=DOC,
    params={"flow": forms.flow_param(flows.flow_names()), **orphans.orphan_params()},
):
    gated(orphans.ORPHANS, forms.value("flow"), retry_interrupted())
