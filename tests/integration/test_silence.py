"""Answers that never come: hosts that die without a FIN, and processes that are frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.config.clients import ClientConfig
from onceover.embed.kafka import KafkaCluster, start_all
from onceover.kafka import admin, calls, connection
from onceover.kafka.cluster import Cluster
from onceover.kafka.connection import ConnectionLost
from tests.support.busy import BusyProducer
from tests.support.clusters import ClusterFactory, SharedCluster
from tests.support.proxy import Proxy, Temper
from tests.support.replica import Live, Replica
from tests.support.wait import wait_until

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
    monkeypatch.setattr(admin, "_TIMEOUT_S", _PATIENCE_MS / 1000)
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


@pytest.mark.parametrize("side", ["source", "target"])
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
    with Cluster(config) as cluster:
        anybody = cluster.control()
        (node,) = (broker.node_id for broker in calls.metadata(anybody, []).brokers)
        by_name = cluster.control(node)
        assert by_name is not anybody
        line.proxy.treat(Temper.SWALLOW)
        with pytest.raises(ConnectionLost):
            calls.metadata(anybody, [])
        assert by_name.closed
        assert calls.metadata(cluster.control(node), []).brokers


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
    monkeypatch.setattr(admin, "_TIMEOUT_S", _PATIENCE_MS / 1000)
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
