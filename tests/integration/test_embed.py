"""The embedded clusters keep their promises on real brokers."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clusters import ClusterFactory, SharedCluster

QUIET = {"log_level": 0}
TIMEOUT_S = 30.0


def create_topic(client: dict[str, str], topic: str, replicas: int = 1) -> None:
    admin = AdminClient({**client, **QUIET})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=replicas)])[topic].result(
        TIMEOUT_S
    )


def produce(client: dict[str, str], topic: str, values: list[bytes]) -> None:
    producer = Producer({**client, **QUIET})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def read(client: dict[str, str], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**client, **QUIET, "group.id": "unused", "enable.auto.commit": "false"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [record.value() for record in consumer.consume(count, TIMEOUT_S)]
    finally:
        consumer.close()


def test_shared_clusters_are_two_different_ones(
    source_cluster: SharedCluster, target_cluster: SharedCluster
) -> None:
    """Source and target answer under the ids that were given to them."""
    clusters = (source_cluster, target_cluster)
    admins = [AdminClient({**cluster.client, **QUIET}) for cluster in clusters]
    seen = [admin.describe_cluster().result(TIMEOUT_S).cluster_id for admin in admins]

    assert [cluster.cluster_id for cluster in clusters] == seen
    assert len(set(seen)) == 2


def test_killed_and_stopped_broker_keeps_ports_and_data(start_cluster: ClusterFactory) -> None:
    """SIGKILL, restart, SIGTERM, restart: same address, acknowledged records still there."""
    cluster = start_cluster("restarted")
    node, address = cluster.nodes[0], cluster.bootstrap
    create_topic(cluster.client, "kept")
    produce(cluster.client, "kept", [b"before"])

    node.kill()
    assert not node.alive
    node.start()
    produce(cluster.client, "kept", [b"between"])
    node.stop()
    assert not node.alive
    node.start()

    assert cluster.bootstrap == address
    assert read(cluster.client, "kept", 2) == [b"before", b"between"]
