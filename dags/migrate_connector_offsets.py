"""`migrate_connector_offsets`: move source connectors' offsets to topics of their own (KIP-618), and back."""

from __future__ import annotations

from airflow.sdk import DAG, AssetAlias, task

from onceover_airflow.jobs.retrying import retry_interrupted
from onceover_airflow.starting import forms
from onceover_airflow.tasks import connectors
from onceover_airflow.tasks.operation import gated, then

DOC = """
### Migrate connector offsets

Moves the source offsets of connectors of one Kafka Connect cluster (a file in `include/connect`) from the
workers' shared topic to a topic of each connector's own, byte by byte, without a connector starting from
zero. The same as `onceover connectors plan`, `apply` and `verify`; with another *operation* as `rollback` or
`downgrade`, likewise with a plan and an approval.

1. **list_connectors** asks the live cluster which connectors it runs. Changes nothing.
2. **pick_connectors** asks a person, under *Required Actions*, which of them. Skipped when the form names
   them.
3. **plan_migration** shows in its log what would be done to each, what is refused and what deserves a look.
4. **approve_migration** asks a person, with the plan. Skipped when there is nothing to do. Rejected:
   nothing is changed.
5. **apply_migration** goes through the connectors one after the other: stop, fence, snapshot, copy in one
   transaction, verify, configure, resume, watch. One that fails does not touch the others. Interrupted
   anywhere, it can be run again. Journal and manifests are in `ONCEOVER_HOME/connect/<name>`.
6. **verify_migration** looks again after *migrate*; announces the asset
   `x-onceover://<connect>/<connector>.offsets` for each.

To go back: *rollback* before a connector was resumed, *downgrade* after it. *downgrade-soft* leaves
connectors stopped until the workers are without exactly-once, and is then run once more.
"""

with DAG(
    "migrate_connector_offsets",
    **forms.by_hand(),
    doc_md=DOC,
    params=connectors.connect_params(),
):
    name, retried, migration = forms.value("connect"), retry_interrupted(), connectors.MIGRATION
    listed = task(task_id=connectors.LIST_TASK, multiple_outputs=False, **retried)(connectors.list_connectors)
    pick = connectors.PickConnectorsOperator(task_id=connectors.PICK_TASK, connect=name, **retried)
    # Not asked is as good as answered; an answer that was refused, or a failure before, is not.
    planned, applied = gated(migration, name, retried)
    verify = then("verify_migration", migration.verify, retried, [AssetAlias(connectors.MIGRATED_ALIAS)])
    listed(name) >> pick >> planned
    applied >> verify(name)
