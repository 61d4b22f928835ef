"""`sync_topics`: bring a flow's topics, their configuration and ACLs in line on the target."""

from __future__ import annotations

from airflow.sdk import DAG, AssetAlias

from onceover_airflow import flows
from onceover_airflow.jobs.retrying import retry_interrupted
from onceover_airflow.starting import forms
from onceover_airflow.tasks import topics
from onceover_airflow.tasks.operation import gated, then

DOC = """
### Sync topics

Compares the topics of one flow (a file in `include/flows`) with their copies on the target: missing
topics and partitions, configuration, and ACLs where the flow asks for them. The same as `onceover topics
plan` and `apply`. A running flow does most of this by itself; target topics that it did not create are
taken over here only.

1. **plan_topics** shows in its log what would be done and why. Changes nothing.
2. **approve_changes** asks a person, under *Required Actions*, when a change may cost records (a shorter
   retention, another cleanup policy). Skipped when none can. Rejected: nothing is changed.
3. **apply_topics** does it. Interrupted anywhere, it can be run again. What it did is in
   `ONCEOVER_HOME/<flow>/journal/topics.jsonl`.
4. **report_topics** looks again; announces the asset `x-onceover://<target alias>/<flow>.topics` when nothing
   is left, and fails, naming the way out, when a topic is refused or none is in scope.

It never disturbs a running flow.
"""

with DAG(
    "sync_topics",
    **forms.by_hand(),
    doc_md=DOC,
    params={
        "flow": forms.flow_param(flows.flow_names()),
        "apply": forms.apply_param(),
    },
):
    name, retried = forms.value("flow"), retry_interrupted()
    # Not asked, nothing that costs records is approved; the rest is done all the same.
    _, applied = gated(topics.TOPICS, name, retried)
    applied >> then("report_topics", topics.TOPICS.report, retried, [AssetAlias(topics.SYNCED_ALIAS)])(name)
