"""A flow file's topics as an operation, for the command line and the DAG ``sync_topics``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onceover.config.flow.flowfile import Flow
from onceover.kafka.ports import Cluster
from onceover.topics.own import StateSettings
from onceover.topics.sync import TopicSync, TopicSyncRequest
from onceover.wiring.apart import partitions_apart
from onceover.wiring.flows import journal_of, rules


@contextmanager
def topic_sync(flow: Flow, source: Cluster, target: Cluster) -> Iterator[TopicSync]:
    """Yield what brings the flow's topics, configuration and ACLs in line, whether it runs or not."""
    state = StateSettings(flow.state.replication_factor, flow.state.map_retention_ms)
    with partitions_apart(flow) as counts:
        which = rules(flow, target_partitions=counts)
        request = TopicSyncRequest(which, flow.topics.sync_configs, flow.topics.sync_acls, state)
        with TopicSync(flow.flow, request, source, target, journal_of(flow, "topics")) as sync:
            yield sync
