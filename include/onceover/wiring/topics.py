"""A flow file's topics, planned and applied: what the command line and the DAG ``sync_topics`` call."""

from __future__ import annotations

from collections.abc import Callable

from onceover.config.flowfile import Flow
from onceover.config.load import run_dir
from onceover.config.runsettings import RunSettings
from onceover.engine.approval import Approval
from onceover.engine.flowtopics import StateSettings
from onceover.engine.journal import Journal
from onceover.engine.topicsync import Applied, SyncPlan, TopicSync, Wish
from onceover.kafka.cluster import Cluster
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.treatments import target_partitions


def topic_sync(flow: Flow, source: Cluster, target: Cluster) -> TopicSync:
    """Return what plans and applies the flow's topics from outside, whether it runs or not."""
    state = StateSettings(flow.state.replication_factor, flow.state.map_retention_ms)
    counts = target_partitions(flow, RunSettings.of(flow))
    wish = Wish(rules(flow, target_partitions=counts), flow.topics.sync_configs, flow.topics.sync_acls, state)
    return TopicSync(flow.flow, wish, source, target)


def plan_topics(flow: Flow) -> SyncPlan:
    """Return what ``topics apply`` would do. Changes nothing; clusters are opened and closed here."""
    source, target = open_clusters(flow)
    with source, target, topic_sync(flow, source, target) as sync:
        return sync.plan()


def apply_topics(
    flow: Flow, announce: Callable[[SyncPlan], None], approval: Approval | None = None
) -> Applied:
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
