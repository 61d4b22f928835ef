"""The tasks of the DAG ``sync_topics``.

Invariant: a change that may cost records is made only when it was shown to a person, as it is, and approved;
anything else that has come meanwhile is shown in a new run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Asset, AssetAlias, get_current_context

from onceover_airflow.access.flowcontext import flow_at_hand, log_text
from onceover_airflow.approvals.approval import table
from onceover_airflow.approvals.markdown import Inline, code, plain
from onceover_airflow.errors import TaskFailed
from onceover_airflow.tasks.operation import OperationTasks
from onceover_airflow.telling.assets import proven_uri

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.planning.operation import Outcome
    from onceover.topics.sync import SyncPlan, TopicSync

log = logging.getLogger(__name__)

# Outlet under which the flows' topics are announced: which flow it is, is known at run time only.
SYNCED_ALIAS: Final = "onceover_synced"


class TopicTasks(OperationTasks["SyncPlan"]):
    """Plan, approve and apply a flow's topics, their configuration and ACLs."""

    plan_task = "plan_topics"
    approve_task = "approve_changes"
    apply_task = "apply_topics"
    subject = "Flow {{ params.flow }}: changes that may cost records"

    @contextmanager
    def opened(self, name: str, context: Context) -> Iterator[TopicSync]:
        """Yield the flow's topics, with both clusters open."""
        from onceover.wiring import flows, topics

        with flow_at_hand(name) as flow, flows.opened(flow, topics.topic_sync) as sync:
            yield sync

    def question(self, planned: SyncPlan) -> str:
        """Return the changes that may cost records, as Markdown."""
        changes = planned.risky
        rows = [
            (plain(c.what), code(c.object), _setting(c.from_), _setting(c.to), plain(c.risk)) for c in changes
        ]
        others = len(planned.changes) - len(changes)
        lines = table(("change", "of", "from", "to", "risk"), rows)
        lines.append(f"{others} other changes cost nothing. **Reject** changes nothing at all.")
        return "\n".join(lines)

    def finish(self, name: str, context: Context, outcome: Outcome) -> dict[str, Any]:
        """Return what was done: ``report`` looks again, and judges."""
        return dict(outcome.counts)

    def report(self, name: str) -> dict[str, Any]:
        """Look again, say what is left, announce the asset when nothing is and there is something in scope.

        Raises:
            JobInterrupted: a cluster does not answer; tried again.
            TaskFailed: a topic or an ACL is refused until somebody decides; no topic is in scope; or
                any other error.
        """
        from onceover.topics.scopecheck import nothing_in_scope

        context = get_current_context()
        planned = self.read(name, context)
        log_text(log, planned.describe())
        if planned.exit_code:
            refused = "; ".join(f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in planned.refused)
            raise TaskFailed(f"flow {name} needs an operator: {refused}")
        if nothing := nothing_in_scope(r.document() for r in planned.refused):
            raise TaskFailed(nothing)
        if planned.is_empty:
            uri = synced_uri(name)
            context["outlet_events"][AssetAlias(SYNCED_ALIAS)].add(Asset(uri), extra=planned.counts)
            log.info("synced: %s", uri)
        return planned.counts


TOPICS: Final = TopicTasks()


def synced_uri(flow: str) -> str:
    """Return the asset of a flow's topics; flow names hold no dot, so it is nobody's caught-up asset."""
    with flow_at_hand(flow) as loaded:
        return proven_uri(loaded.target.alias, f"{loaded.flow}.topics")


def _setting(value: str | int | None) -> Inline:
    return plain("not set") if value is None else code(value)
