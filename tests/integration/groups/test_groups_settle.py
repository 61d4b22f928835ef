"""Coordinators that take no write, because their log lacks replicas, are told from those that do."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.config.clients.resolve import ClientConfig
from onceover.errors import Retriable
from onceover.groups.settle import GroupSettler
from onceover.kafka.cluster import LiveCluster
from onceover.model import TopicPartition
from tests.support.brokers.clusters import ClusterFactory
from tests.support.flows.replica import alter_config
from tests.support.session.wait import wait_until

_OFFSETS, _TIMEOUT_S = "__consumer_offsets", 60.0


@pytest.mark.soak
def test_logs_that_lack_replicas_are_refused_and_settled_once_they_have_them(
    start_cluster: ClusterFactory,
) -> None:
    """The transaction that was refused there cannot be ended before: it keeps nobody from going on then."""
    cluster = start_cluster("settled", brokers=3, heap_mb=320)
    admin = AdminClient(cluster.client)
    admin.create_topics([NewTopic("state", 1, 3)])["state"].result(_TIMEOUT_S)
    own = TopicPartition("state", 0)
    groups = {f"group-{number}": own for number in range(20)}

    def replicas(count: int) -> bool:
        known = admin.list_topics(_OFFSETS, _TIMEOUT_S).topics[_OFFSETS].partitions
        return all(len(partition.isrs) == count for partition in known.values())

    with LiveCluster(ClientConfig("target", dict(cluster.client))) as target:
        settler = GroupSettler(target, "settler", own)
        wait_until(lambda: settler.settle(groups) == {}, _TIMEOUT_S, "all are settled")
        alter_config(cluster.client, _OFFSETS, {"min.insync.replicas": "3"})
        cluster.nodes[2].kill()
        wait_until(lambda: replicas(2), _TIMEOUT_S, "replicas are missed")
        for _ in range(2):
            refused = settler.settle(groups)
            assert refused.keys() == groups.keys()
            assert all(isinstance(error, Retriable) for error in refused.values())
        alter_config(cluster.client, _OFFSETS, {"min.insync.replicas": "2"})
        wait_until(lambda: settler.settle(groups) == {}, _TIMEOUT_S, "all are settled again")
        settler.close()
