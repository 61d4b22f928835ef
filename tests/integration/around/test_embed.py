"""The embedded clusters keep their promises on real brokers."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.errors import Retriable
from onceover_lab.embed import kafka as kafka_module
from onceover_lab.embed import trials
from onceover_lab.embed.kafka import KafkaCluster
from onceover_lab.embed.node import KafkaNode
from onceover_lab.embed.ports import PortReservation
from onceover_lab.embed.security import Mechanism, Security
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.session.wait import wait_until

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


def wrong_credentials(mechanism: Mechanism) -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        # A well-formed token that does not name its subject where the broker looks for it.
        return {"sasl.oauthbearer.config": "principalClaimName=azp principal=admin"}
    return {"sasl.password": "wrong"}


def test_shared_clusters_are_two_different_ones(
    source_cluster: SharedCluster, target_cluster: SharedCluster
) -> None:
    """Source and target answer under the ids that were given to them."""
    clusters = (source_cluster, target_cluster)
    admins = [AdminClient({**cluster.client, **QUIET}) for cluster in clusters]
    seen = [admin.describe_cluster().result(TIMEOUT_S).cluster_id for admin in admins]

    assert [cluster.cluster_id for cluster in clusters] == seen
    assert len(set(seen)) == 2


@pytest.mark.soak
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


@pytest.mark.soak
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"])
def test_secured_cluster_takes_its_users_and_refuses_others(
    start_cluster: ClusterFactory, mechanism: Mechanism
) -> None:
    """SASL_SSL works with the cluster's credentials only; ACLs give the ordinary user nothing."""
    security = Security(mechanism, authorizer=True)
    cluster = start_cluster("secured", security=security)

    create_topic(cluster.admin_client, "guarded")
    produce(cluster.admin_client, "guarded", [b"value"])

    assert read(cluster.admin_client, "guarded", 1) == [b"value"]
    ordinary = AdminClient({**cluster.client, **QUIET})
    assert "guarded" not in ordinary.list_topics(timeout=TIMEOUT_S).topics
    stranger = AdminClient({**cluster.admin_client, **wrong_credentials(mechanism), **QUIET})
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT|_ALL_BROKERS_DOWN|_AUTHENTICATION"):
        stranger.list_topics(timeout=1.5)
    assert_discreet(security, cluster.nodes[0])


def assert_discreet(security: Security, node: KafkaNode) -> None:
    """Neither the process list nor the broker's log shows a password, and the file that may is private."""
    properties = node.home / "server.properties"
    command = " ".join(psutil.Process(node.pid).cmdline())
    for password in security.users().values():
        assert password not in command
        assert password not in node.log_path.read_text()
    assert properties.stat().st_mode & 0o077 == 0


@pytest.mark.soak
def test_three_brokers_survive_the_loss_of_one(start_cluster: ClusterFactory) -> None:
    """With one of three brokers killed, acknowledged records stay readable and new ones are taken."""
    cluster = start_cluster("three", brokers=3)
    create_topic(cluster.client, "replicated", replicas=3)
    produce(cluster.client, "replicated", [b"before"])
    admin = AdminClient({**cluster.client, **QUIET})
    leader = admin.list_topics(timeout=TIMEOUT_S).topics["replicated"].partitions[0].leader

    cluster.nodes[leader - 1].kill()
    produce(cluster.client, "replicated", [b"after"])

    assert read(cluster.client, "replicated", 2) == [b"before", b"after"]


@pytest.mark.soak
def test_older_release_speaks_the_older_transactions(start_cluster: ClusterFactory) -> None:
    """A 3.9.1 broker starts from its own pinned jars and keeps data over a restart."""
    cluster = start_cluster("older", version="3.9.1")
    create_topic(cluster.client, "kept")
    produce(cluster.client, "kept", [b"value"])

    cluster.nodes[0].stop()
    cluster.nodes[0].start()

    assert read(cluster.client, "kept", 1) == [b"value"]


def test_a_broker_keeps_to_its_folder_whatever_that_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the locale has ASCII alone: its data were in another folder beside it, or nowhere."""
    monkeypatch.setenv("LC_ALL", "C")
    cluster = KafkaCluster.start(tmp_path / "Früchte und 数据", "east")
    try:
        assert [folder.name for folder in tmp_path.iterdir()] == ["Früchte und 数据"]
        assert (cluster.nodes[0].data / "__cluster_metadata-0").is_dir()
    finally:
        cluster.close(remove=True)


class StolenOnce(PortReservation):
    """A reservation whose first port is taken by a listener all the same."""

    thief: ClassVar[socket.socket | None] = None

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        if StolenOnce.thief is None:
            StolenOnce.thief = socket.socket()
            StolenOnce.thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            StolenOnce.thief.bind(("127.0.0.1", self.port))
            StolenOnce.thief.listen()


@pytest.mark.soak
def test_lost_port_is_replaced_and_close_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port lost to another program is replaced; after close, also of a paused broker, nothing is left."""
    monkeypatch.setattr(kafka_module, "PortReservation", StolenOnce)
    try:
        cluster = KafkaCluster.start(tmp_path, "closed")
    finally:
        stolen = None
        if StolenOnce.thief is not None:
            stolen = StolenOnce.thief.getsockname()[1]
            StolenOnce.thief.close()
    pid, port = cluster.nodes[0].pid, cluster.nodes[0].ports.client
    cluster.nodes[0].pause()

    cluster.close()

    assert stolen is not None and port != stolen
    assert not psutil.pid_exists(pid)
    PortReservation(port).release()
    assert (cluster.nodes[0].data / "meta.properties").exists()


@pytest.mark.soak
def test_killed_parent_takes_its_brokers_with_it(tmp_path: Path) -> None:
    """SIGKILL of the process that started a cluster, from a short-lived thread even, ends the broker."""
    program = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from onceover_lab.embed.kafka import KafkaCluster, start_all\n"
        "cluster, = start_all([lambda: KafkaCluster.start(Path(sys.argv[1]), 'orphan')])\n"
        "sys.stdout.write(f'{cluster.nodes[0].pid}\\n')\n"
        "sys.stdout.flush()\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            broker = psutil.Process(int(parent.stdout.readline()))
        finally:
            parent.kill()

    wait_until(lambda: not _runs(broker), TIMEOUT_S, "the broker has ended with its parent")


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_trial_writes_offsets_of_a_group_that_its_reader_is_not_in(
    source_cluster: SharedCluster, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setup ended in CI: a reader's generation is an old one while it joins (ILLEGAL_GENERATION)."""
    monkeypatch.setattr(trials, "_NAME", unique_name)
    monkeypatch.setattr(trials, "_NOBODYS_GROUP", f"{unique_name}-of-nobody")
    client = {"bootstrap.servers": source_cluster.bootstrap}
    create_topic(client, unique_name)
    reader = Consumer({**client, **QUIET, "group.id": unique_name})
    try:
        reader.subscribe([unique_name])
        wait_until(lambda: reader.poll(0.1) is None and reader.assignment(), TIMEOUT_S, "it has joined")
        trials._write(client, "none")
    finally:
        reader.close()
    group = ConsumerGroupTopicPartitions(f"{unique_name}-of-nobody")
    admin = AdminClient({**client, **QUIET})
    answer = admin.list_consumer_group_offsets([group])
    (place,) = answer[group.group_id].result(TIMEOUT_S).topic_partitions
    assert (place.topic, place.partition, place.offset) == (unique_name, 0, 0)


def test_a_trial_that_is_refused_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that setup says it in a line, and tries once more."""

    def refuse(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))

    monkeypatch.setattr(trials, "_await", refuse)
    with pytest.raises(Retriable, match="refused"):
        trials.use_broker({"bootstrap.servers": "127.0.0.1:1"})
