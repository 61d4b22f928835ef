"""A flow file's topics, planned and applied: what the command line and the DAG ``sync_topics`` call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onceover.config.flowfile import Flow
from onceover.config.load import run_dir
from onceover.kafka.cluster import Cluster
from onceover.planning.approval import Approval
from onceover.planning.journal import Journal
from onceover.topics.own import StateSettings
from onceover.topics.sync import AppliedSync, SyncPlan, TopicSync, TopicSyncRequest
from onceover.wiring.apart import partitions_apart
from onceover.wiring.flows import open_clusters, rules


@contextmanager
def topic_sync(flow: Flow, source: Cluster, target: Cluster) -> Iterator[TopicSync]:
    """Yield what plans and applies the flow's topics from outside, whether it runs or not."""
    state = StateSettings(flow.state.replication_factor, flow.state.map_retention_ms)
    with partitions_apart(flow) as counts:
        which = rules(flow, target_partitions=counts)
        request = TopicSyncRequest(which, flow.topics.sync_configs, flow.topics.sync_acls, state)
        with TopicSync(flow.flow, request, source, target) as sync:
            yield sync


def plan_topics(flow: Flow) -> SyncPlan:
    """Return what ``topics apply`` would do. Changes nothing; clusters are opened and closed here."""
    source, target = open_clusters(flow)
    with source, target, topic_sync(flow, source, target) as sync:
        return sync.plan()


def apply_topics(
    flow: Flow, announce: Callable[[SyncPlan], None], approval: Approval | None = None
) -> AppliedSync:
    """Bring the flow's topics, configuration and ACLs in line.

    Args:
        announce: shown the plan before anything is done.
        approval: the changes that may cost records which somebody has said yes to; None for those that
            ``announce`` is shown first.
    """
    source, target = open_clusters(flow)
    journal = Journal(run_dir(flow) / "journal" / "topics.jsonl", approval)
    with source, target, journal, topic_sync(flow, source, target) as sync:
        return sync.apply(journal, announce, approval)
