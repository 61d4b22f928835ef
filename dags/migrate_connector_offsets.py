"""`migrate_connector_offsets`: move source connectors' offsets to topics of their own (KIP-618), and back."""

from __future__ import annotations

from airflow.sdk import DAG, AssetAlias, TriggerRule, task

from onceover_airflow import connectors, forms
from onceover_airflow.retrying import retry_interrupted

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
   `kafka://<connect>/<connector>.offsets` for each.

To go back: *rollback* before a connector was resumed, *downgrade* after it. *downgrade-soft* leaves
connectors stopped until the workers are without exactly-once, and is then run once more.
"""

with DAG(
    "migrate_connector_offsets",
    **forms.by_hand(),
    doc_md=DOC,
    params=connectors.connect_params(),
):
    retried = retry_interrupted()
    name = forms.value("connect")
    # Not asked is as good as answered; an answer that was refused, or a failure before, is not.
    unless_failed = {"multiple_outputs": False, "trigger_rule": TriggerRule.NONE_FAILED, **retried}
    listed = task(task_id=connectors.LIST_TASK, multiple_outputs=False, **retried)(connectors.list_connectors)
    pick = connectors.PickConnectorsOperator(task_id=connectors.PICK_TASK, connect=name, **retried)
    plan = task(task_id="plan_migration", **unless_failed)(connectors.plan_migration)
    approve = connectors.ApproveMigrationOperator(task_id=connectors.APPROVE_TASK, connect=name, **retried)
    apply = task(task_id=connectors.APPLY_TASK, **unless_failed)(connectors.apply_migration)
    verify = task(
        task_id="verify_migration", outlets=[AssetAlias(connectors.MIGRATED_ALIAS)], **unless_failed
    )(connectors.verify_migration)
    plan_done = plan(name)
    listed(name) >> pick >> plan_done >> approve >> apply(name) >> verify(name)
