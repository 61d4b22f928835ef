"""Answers that never come, or come from somebody else.

Hosts that die without a FIN, processes that are frozen, and an address behind which another cluster answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.config.clients.resolve import ClientConfig
from onceover.connectors.offsets.write import Entry, write_in_transaction
from onceover.copy.loop import Until
from onceover.errors import NeedsOperator
from onceover.kafka import calls
from onceover.kafka.admin.acls import Acl, AclAdmin
from onceover.kafka.admin.topics import Admin, TopicSpec
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.link import connection
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.produce.notes import RecordWriter
from onceover.lead.ends import EndCheck
from onceover.model import TopicPartition
from onceover.wiring.flows import open_clusters
from onceover_lab.embed.kafka import KafkaCluster, start_all
from tests.support.brokers.busy import BusyProducer
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.brokers.proxy import Proxy, Temper
from tests.support.flows.replica import Live, Replica, topic_config
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0
# What the flow file allows is 10 s at least: a test need not wait for that.
_PATIENCE_MS = 3000


class Line:
    """A cluster of one broker behind a proxy."""

    def __init__(self, cluster: KafkaCluster, proxy: Proxy) -> None:
        self.cluster, self.proxy = cluster, proxy
        proxy.upstream = cluster.nodes[0].ports.client


@pytest.fixture(scope="module")
def lines(session_home: Path) -> Iterator[tuple[Line, Line]]:
    """Source and target, every connection of clients through a proxy each."""
    factory = ClusterFactory(session_home)

    def start(name: str, proxy: Proxy) -> Callable[[], KafkaCluster]:
        return lambda: factory(name, advertised=[proxy.port])

    with Proxy() as near, Proxy() as far:
        try:
            source, target = start_all([start("silent-source", near), start("silent-target", far)])
            yield Line(source, near), Line(target, far)
        finally:
            factory.close()


@pytest.fixture
def replica(
    lines: tuple[Line, Line], tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Replica]:
    """A flow that waits for an answer for a moment only; the adversaries come through the brokers' own."""
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_MS", _PATIENCE_MS)
    source, target = (line.cluster for line in lines)
    inside = (source.internal_bootstrap, target.internal_bootstrap)
    with Replica(tmp_path, unique_name, source.client, target.client, unsecured=inside) as replica:
        replica.configure(lanes=1)
        yield replica


def copied(replica: Replica, live: Live, topic: str, records: int) -> None:
    """Write records past the proxy and wait until the running flow has committed them."""
    before = replica.partition_status(topic)["position"]
    replica.source.idempotent(topic, 0, replica.source.records(records))

    def over() -> bool:
        return bool(replica.partition_status(topic)["position"] == before + records) or not live.alive

    wait_until(over, _TIMEOUT_S, "the records are copied")
    assert live.alive


@pytest.mark.parametrize("side", [pytest.param("source", marks=pytest.mark.soak), "target"])
def test_a_host_that_died_without_a_word_is_left_for_its_successor(
    replica: Replica, lines: tuple[Line, Line], side: str
) -> None:
    """Nobody answers on the old connections, and nobody ends them either: an idle lane's Fetch is in flight
    there, and on the target its and the driver's look at the state."""
    topic = replica.topic()
    with replica.running() as live:
        copied(replica, live, topic, 5)
        lines[side == "target"].proxy.treat(Temper.SWALLOW)
        copied(replica, live, topic, 5)
    replica.assert_same()


def test_who_has_waited_for_a_dead_host_once_does_not_wait_on_every_older_connection(
    lines: tuple[Line, Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver has several: met one after the other, they took it 100 s."""
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_MS", _PATIENCE_MS)
    line = lines[0]
    config = ClientConfig(
        "source", {k: v for k, v in line.cluster.client.items() if k.startswith("bootstrap")}
    )
    with LiveCluster(config) as cluster:
        anybody = cluster.control()
        (node,) = (broker.node_id for broker in calls.metadata(anybody, []).brokers)
        by_name = cluster.control(node)
        assert by_name is not anybody
        line.proxy.treat(Temper.SWALLOW)
        with pytest.raises(ConnectionLost):
            calls.metadata(anybody, [])
        assert not by_name.usable
        assert calls.metadata(cluster.control(node), []).brokers


@pytest.mark.parametrize("side", [pytest.param("source", marks=pytest.mark.soak), "target"])
def test_an_address_that_comes_to_lead_to_the_other_cluster_changes_neither(
    replica: Replica, lines: tuple[Line, Line], side: str
) -> None:
    """The worst one that it could lead to: topics of the same names, with records, and a right to write."""
    topic = replica.topic()
    mine, other = lines if side == "source" else reversed(lines)
    mine_port, other_port = (line.cluster.nodes[0].ports.client for line in (mine, other))

    def run() -> None:
        with replica.running() as live:
            copied(replica, live, topic, 5)
            mine.proxy.upstream = other_port
            mine.proxy.cut()
            try:
                replica.source.idempotent(topic, 0, replica.source.records(5))
                replica.source.idempotent(replica.topic("later"), 0, replica.source.records(5))
                wait_until(lambda: not live.alive, _TIMEOUT_S, "the flow ends")
            finally:
                mine.proxy.upstream = mine_port
                mine.proxy.cut()

    with pytest.raises(NeedsOperator) as caught:
        run()
    assert caught.value.code == "FOREIGN_CLUSTER"
    assert [len(replica.source_records(topic)), len(replica.target_records(topic))] == [10, 5]
    source_topics = AdminClient(lines[0].cluster.client).list_topics(timeout=_TIMEOUT_S).topics
    assert not [name for name in source_topics if name.startswith(f"__onceover.{replica.name}.")]
    assert replica.copy().records == 10
    replica.assert_same()


@pytest.mark.soak
def test_a_task_that_begins_behind_an_address_that_leads_elsewhere_stops_no_partition(
    replica: Replica, lines: tuple[Line, Line], capsys: pytest.CaptureFixture[str]
) -> None:
    """It finds its clusters anew: a topic of the same name there is none that was created anew, and nobody is
    told to copy it again. Neither is who asks for that meanwhile, nor what ends a run told anything of it."""
    topic, (near, far) = replica.topic(), lines
    replica.source.idempotent(topic, 0, replica.source.records(5))
    with replica.flow.running() as (_, layout):

        def task(token: int) -> int:
            until = Until(time.monotonic() + 3.0)
            return sum(each.records for each in replica.flow.lane(layout, 0, until, token=token))

        assert task(1) == 5
        near.proxy.upstream = far.cluster.nodes[0].ports.client
        near.proxy.cut()
        try:
            with pytest.raises(NeedsOperator) as caught:
                task(2)
            assert caught.value.code == "FOREIGN_CLUSTER"
            planner = EndCheck(replica.name, layout.run)
            planner.open(*open_clusters(replica.flow.watch.flow))
            with pytest.raises(NeedsOperator) as caught:
                planner.ends()
            planner.close()
            assert caught.value.code == "FOREIGN_CLUSTER"
            for way_out in (
                ["reseed", replica.name, f"{topic}:0"],
                ["skip-to", replica.name, f"{topic}:0", "5"],
            ):
                code, document = replica.command(capsys, "partition", *way_out)
                assert (code, document["error"]["code"]) == (3, "FOREIGN_CLUSTER")
        finally:
            near.proxy.upstream = near.cluster.nodes[0].ports.client
            near.proxy.cut()
        assert replica.stop_of(topic) == {}
        replica.source.idempotent(topic, 0, replica.source.records(5))
        assert task(3) == 5
    replica.assert_same(topic)


def test_what_is_created_or_noted_goes_to_the_cluster_that_is_meant(
    replica: Replica, lines: tuple[Line, Line]
) -> None:
    """Only new connections lead elsewhere, as after a change of names: those of the flow itself stay."""
    topic, near, far = replica.topic(), *lines
    client = {k: v for k, v in far.cluster.client.items() if k.startswith("bootstrap")}
    with LiveCluster(ClientConfig("west", client)) as target:
        target.cluster_id()
        far.proxy.upstream = near.cluster.nodes[0].ports.client
        writer = RecordWriter(target, TopicPartition(topic, 0))
        try:
            library = Admin(target)
            for change in (
                lambda: library.create_topics([TopicSpec(f"{topic}.made", 1)]),
                lambda: library.grow_topic(topic, 2),
                lambda: library.topic_configs([topic]),
                lambda: library.alter_configs({topic: {"retention.ms": "1"}}),
                lambda: writer.write([(b"key", b"value")]),
                lambda: AclAdmin(target).create([Acl("LITERAL", topic, "User:x", "*", "READ", "ALLOW")]),
                lambda: write_in_transaction(target, topic, topic, [Entry(0, b"key", b"x")], lambda: None),
            ):
                with pytest.raises(NeedsOperator) as caught:
                    change()
                assert caught.value.code == "FOREIGN_CLUSTER"
        finally:
            writer.close()
            far.proxy.upstream = far.cluster.nodes[0].ports.client
            far.proxy.cut()
    topics = AdminClient(near.cluster.client).list_topics(timeout=_TIMEOUT_S).topics
    assert (f"{topic}.made" in topics, len(topics[topic].partitions)) == (False, 1)
    assert topic_config(near.cluster.client, topic)["retention.ms"] == "-1"
    assert replica.source_records(topic) == {}


@pytest.mark.soak
def test_a_frozen_broker_of_three_is_left_for_the_new_leaders(
    start_cluster: ClusterFactory,
    target_cluster: SharedCluster,
    tmp_path: Path,
    unique_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel still takes connections for it; nobody answers on them. The others lead what it has led."""
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_MS", _PATIENCE_MS)
    source = start_cluster("frozen", brokers=3, heap_mb=320)
    with Replica(tmp_path, unique_name, source.client, target_cluster.client) as replica:
        topic = f"{unique_name}.a"
        client = AdminClient(source.client)
        new = NewTopic(topic, 3, 3, config={"retention.ms": "-1"})
        client.create_topics([new])[topic].result(_TIMEOUT_S)
        with (
            BusyProducer(source.client, topic, 3, seed=3) as busy,
            replica.running() as live,
        ):
            first = source.nodes[0]

            def position() -> int:
                return sum(p["position"] or 0 for p in replica.flow.status()["partitions"])

            wait_until(lambda: position() > 0, _TIMEOUT_S, "the copy has begun")
            first.pause()
            try:
                # Beyond what was in flight: every partition has to go on.
                before = {p["partition"]: p["position"] for p in replica.flow.status()["partitions"]}

                def all_on() -> bool:
                    now = {p["partition"]: p["position"] or 0 for p in replica.flow.status()["partitions"]}
                    return all(now.get(n, 0) > (at or 0) for n, at in before.items()) or not live.alive

                wait_until(all_on, 3 * _TIMEOUT_S, "every partition goes on", poll_s=0.5)
                assert live.alive
            finally:
                first.resume()
        replica.copy()
        replica.assert_same(topic)
        assert sum(len(replica.target_records(topic, p)) for p in range(3)) >= busy.committed > 0
