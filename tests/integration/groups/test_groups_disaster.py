"""Failover with the source gone, wholly or in part: what does not need it goes on, nothing waits for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.groups import view as groupview
from onceover.kafka.groups.admin import OFFSETS_TOPIC
from onceover.kafka.link import connection
from onceover_lab.embed.kafka import KafkaCluster
from onceover_lab.embed.ports import LOOPBACK
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.brokers.proxy import Proxy, Temper
from tests.support.flows.flows import write_flow
from tests.support.flows.groups import commit_all, committed_all, offset_of
from tests.support.flows.replica import Replica
from tests.support.session.wait import wait_until

DONE, OPERATOR, TEMPORARY = 0, 3, 5
_TIMEOUT_S = 60.0
_PARTITIONS = 6
_PATIENCE_S = 2.0
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for people, only sooner."""
    monkeypatch.setattr(groupview, "_SOURCE_PATIENCE_S", _PATIENCE_S)


def run(replica: Replica, capsys: Capture, action: str, path: Path) -> tuple[int, dict[str, Any]]:
    """Run the command for the test's own groups."""
    mine = ["--group", f"{replica.name}-.*"]
    return replica.command(capsys, "groups", action, str(path), *mine)


@contextmanager
def http() -> Iterator[int]:
    """Something else than a broker that listens on the port."""
    with socket.create_server((LOOPBACK, 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(1 << 16)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def elsewhere(kind: str, target: SharedCluster) -> Iterator[str]:
    """Yield an address at which the source is not to be had."""
    with ExitStack() as stack:
        if kind == "nobody":
            with socket.create_server((LOOPBACK, 0)) as listener:
                port = listener.getsockname()[1]
            yield f"{LOOPBACK}:{port}"
        elif kind in ("swallows", "another cluster"):
            proxy = stack.enter_context(Proxy(int(target.bootstrap.split(",")[0].rpartition(":")[2])))
            if kind == "swallows":
                proxy.treat(Temper.SWALLOW, later=Temper.SWALLOW)
            yield f"{LOOPBACK}:{proxy.port}"
        elif kind == "no broker":
            yield f"{LOOPBACK}:{stack.enter_context(http())}"
        else:
            yield "nowhere.invalid:9092"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        pytest.param("nobody", TEMPORARY, marks=pytest.mark.soak),
        ("swallows", TEMPORARY),
        pytest.param("no such name", TEMPORARY, marks=pytest.mark.soak),
        ("no broker", OPERATOR),
        ("another cluster", OPERATOR),
    ],
)
def test_with_the_source_gone_the_plan_says_where_groups_stand(
    replica: Replica, capsys: Capture, target_cluster: SharedCluster, tmp_path: Path, kind: str, code: int
) -> None:
    """A host that is gone or silent, and addresses that lead to something else."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    name = f"{replica.name}-reader"
    commit_all(replica.source_client, topic, {name: {0: 7}})
    assert run(replica, capsys, "apply", replica.flow.path)[0] == DONE
    folder = tmp_path / "gone"
    folder.mkdir()
    with elsewhere(kind, target_cluster) as address:
        gone = {**replica.source_client, "bootstrap.servers": address}
        path = write_flow(folder, replica.name, gone, replica.target_client, [f"{replica.name}[.].*"])
        for action in ("plan", "apply"):
            seen, document = run(replica, capsys, action, path)
            assert seen == code, document
            assert {r["code"] for r in document["refused"]} == {"UNKNOWN"}
            assert "read again what they have read on east since" in document["refused"][0]["message"]
            (row,) = document["positions"]
            assert (row["current"], row["code"]) == (7, "UNKNOWN")
            assert "it stands where a look put it" in row["reason"]
            assert "for offset 7" in row["reason"]
    assert offset_of(replica.target_client, name, topic) == 7


@contextmanager
def behind_proxies(start: ClusterFactory) -> Iterator[tuple[KafkaCluster, list[Proxy]]]:
    """Yield a cluster of three brokers, each behind a proxy of its own."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy()) for _ in range(3)]
        cluster = start("disaster", brokers=3, heap_mb=320, advertised=[proxy.port for proxy in proxies])
        for proxy, node in zip(proxies, cluster.nodes, strict=True):
            proxy.upstream = node.ports.client
        yield cluster, proxies


@pytest.mark.soak
def test_what_a_dead_broker_of_the_source_led_takes_nothing_from_failover(
    start_cluster: ClusterFactory,
    target_cluster: SharedCluster,
    tmp_path: Path,
    unique_name: str,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its partitions have no other replica. First its host is silent; then the others know that it is dead,
    and coordinate its groups."""
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_MS", 3000)
    with (
        behind_proxies(start_cluster) as (source, proxies),
        Replica(tmp_path, unique_name, source.client, target_cluster.client) as replica,
    ):
        topic = f"{unique_name}.a"
        leaders = {p: source.nodes[p % 3].node_id for p in range(_PARTITIONS)}
        make(source, topic, leaders)
        feed(source, topic, leaders)
        replica.copy()
        groups = [f"{unique_name}-{number}" for number in range(12)]
        commit_all(source.client, topic, {group: dict.fromkeys(leaders, 4) for group in groups})
        proxies[2].treat(Temper.SWALLOW, later=Temper.SWALLOW)
        code, document = run(replica, capsys, "apply", replica.flow.path)
        assert code == TEMPORARY
        assert "2 partitions" in document["lag_unknown"]
        lags = {p["partition"] for p in document["positions"] if p["lag"] is None and p["committed"] == 4}
        assert lags == {2, 5}
        # What the silent one coordinates, nobody else knows of. Of all others each partition is in place.
        known = {p["group"] for p in document["positions"]}
        assert known
        whole = {p: (4, "") for p in leaders}
        there = committed_all(target_cluster.client, topic, groups)
        assert there == {group: whole if group in known else {} for group in groups}
        source.nodes[2].kill()
        proxies[2].refusing = True
        proxies[2].cut()

        def moved() -> bool:
            code, document = run(replica, capsys, "apply", replica.flow.path)
            return code == DONE and "2 partitions" in document["lag_unknown"]

        wait_until(moved, _TIMEOUT_S, "the others know that it is dead")
        assert committed_all(target_cluster.client, topic, groups) == dict.fromkeys(groups, whole)


@pytest.mark.soak
def test_groups_that_only_a_dead_broker_has_kept_are_told_of_until_it_is_back(
    start_cluster: ClusterFactory,
    target_cluster: SharedCluster,
    tmp_path: Path,
    unique_name: str,
    capsys: Capture,
) -> None:
    """The others have given it up, and answer for all that they know of: nobody of these groups."""
    source = start_cluster("disaster", brokers=3, heap_mb=320)
    client = AdminClient(source.client)
    # As many as these brokers are told that there are.
    make(source, OFFSETS_TOPIC, {p: source.nodes[p % 3].node_id for p in range(4)})
    with Replica(tmp_path, unique_name, source.client, target_cluster.client) as replica:
        topic = f"{unique_name}.a"
        make(source, topic, {0: source.nodes[0].node_id})
        feed(source, topic, [0])
        replica.copy()
        groups = [f"{unique_name}-{number}" for number in range(12)]
        commit_all(source.client, topic, {group: {0: 4} for group in groups})
        source.nodes[2].kill()
        wait_until(
            lambda: len(client.list_topics(timeout=_TIMEOUT_S).brokers) == 2, _TIMEOUT_S, "it is given up"
        )
        code, document = run(replica, capsys, "apply", replica.flow.path)
        known = {p["group"] for p in document["positions"]}
        assert code == TEMPORARY and 0 < len(known) < len(groups)
        (refused,) = document["refused"]
        assert refused["code"] == "UNKNOWN"
        assert f"1 of 4 partitions of {OFFSETS_TOPIC} have no leader on east" in refused["message"]
        there = {group: {0: (4, "")} if group in known else {} for group in groups}
        assert committed_all(target_cluster.client, topic, groups) == there
        source.nodes[2].start()

        def moved() -> bool:
            return run(replica, capsys, "apply", replica.flow.path)[0] == DONE

        wait_until(moved, _TIMEOUT_S, "it is back")
        whole = {group: {0: (4, "")} for group in groups}
        assert committed_all(target_cluster.client, topic, groups) == whole


def make(cluster: KafkaCluster, topic: str, leaders: dict[int, int]) -> None:
    """Create a topic whose partitions have one replica each, where it is said."""
    client = AdminClient(cluster.client)
    assignment = [[leaders[p]] for p in sorted(leaders)]
    new = NewTopic(topic, len(leaders), replica_assignment=assignment, config={"retention.ms": "-1"})
    client.create_topics([new])[topic].result(_TIMEOUT_S)


def feed(cluster: KafkaCluster, topic: str, partitions: Iterable[int]) -> None:
    """Write ten records to each partition, whoever leads it."""
    producer = Producer(cluster.client)
    for partition in partitions:
        for number in range(10):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(_TIMEOUT_S) == 0
