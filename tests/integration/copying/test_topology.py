"""Several brokers, leaders and coordinators that move, brokers that die and come back, quotas and limits."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.protocol.admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from onceover.kafka.link.channel import Address
from onceover.kafka.link.connection import DEFAULT_CLIENT_ID, Connection
from onceover.wire.hotpath import FetchResponse, decode_fetch
from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.node import KafkaNode
from tests.support.brokers.busy import BusyProducer
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.commands.replicate import Replicate
from tests.support.flows.repeats import count_repeats
from tests.support.flows.replica import Live, Replica
from tests.support.raw.adversary import KEEP_FOREVER, Traffic
from tests.support.raw.rawkafka import RawConnection
from tests.support.session.wait import wait_until
from tests.support.worlds.contentaudit import audit

_TIMEOUT_S = 60.0
_HEAP_MB = 320
# States of a transaction that its coordinator has still to do something about.
_UNENDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


def create_replicated(
    cluster: KafkaCluster, topic: str, partitions: int, replicas: int, **config: str
) -> None:
    """Create a topic with so many replicas of each partition."""
    new = NewTopic(topic, partitions, replicas, config={**KEEP_FOREVER, **config})
    admin = AdminClient(cluster.client)
    admin.create_topics([new])[topic].result(_TIMEOUT_S)
    wait_until(lambda: len(leaders(cluster, topic)) == partitions, _TIMEOUT_S, f"{topic} has leaders")


def leaders(cluster: KafkaCluster, topic: str) -> dict[int, int]:
    """Return the leading broker of each partition that has one."""
    found = AdminClient(cluster.client).list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    return {number: p.leader for number, p in found.partitions.items() if p.leader >= 0}


def in_sync(cluster: KafkaCluster, topic: str, number: int = 0) -> set[int]:
    """Return the brokers that hold all of a partition."""
    found = AdminClient(cluster.client).list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    return set(found.partitions[number].isrs)


def all_in_sync(cluster: KafkaCluster, topic: str, number: int) -> bool:
    """Tell whether every broker holds all of a partition."""
    return in_sync(cluster, topic, number) == {node.node_id for node in cluster.nodes}


def move_leaders_back(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    """Elect the preferred leaders: leaders move while their old brokers go on running."""
    nodes = {node.node_id for node in cluster.nodes}
    for number in range(partitions):
        wait_until(partial(all_in_sync, cluster, topic, number), _TIMEOUT_S, "all replicas are in sync")
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    admin = AdminClient(cluster.client)
    admin.elect_leaders(ElectionType.PREFERRED, wanted).result(_TIMEOUT_S)
    wait_until(lambda: set(leaders(cluster, topic).values()) == nodes, _TIMEOUT_S, "leaders are spread again")


def progress(replica: Replica) -> int:
    """Return the sum of all positions."""
    return sum(p["position"] or 0 for p in replica.flow.status()["partitions"])


def nothing_open(replica: Replica) -> bool:
    """Tell whether no source transaction hides records."""
    return not any(p["open_offsets"] for p in replica.flow.status()["partitions"])


def end_hanging(cluster: KafkaCluster, topics: Mapping[str, int], ended: Container[int]) -> None:
    """Do what ``kafka-transactions.sh abort`` does (KIP-664), for the only broker of ``cluster``.

    A single broker that is killed between an answer and its markers can leave a transaction open that its
    coordinator has forgotten: readers would wait behind it for ever, with any replicator. What the
    coordinator knows of, it ends by itself. It forgets commits too (measured: 10 of 394 that were
    answered within 0.1 s of the kill): an abort would undo what the producer was told, so that those of
    ``ended`` (ids of producers whose commit was answered) get the marker that was meant.
    """
    host, port = cluster.bootstrap.split(":")
    connection = Connection(Address(host, int(port)), {})
    try:
        wait_until(
            partial(_coordinator_has_ended_all, connection), _TIMEOUT_S, "the coordinator ends what it has"
        )
        wanted = [(topic, list(range(count))) for topic, count in topics.items()]
        markers = connection.call(
            DescribeProducersRequest(version=0, topics=wanted),
            DescribeProducersResponse,
            lambda answer: [
                (p.producer_id, p.producer_epoch, p.producer_id in ended, [(t.name, [n.partition_index])], 0)
                for t in answer.topics
                for n in t.partitions
                for p in n.active_producers
                if p.current_txn_start_offset >= 0
            ],
        )
        if markers:
            request = WriteTxnMarkersRequest(version=1, markers=markers)
            connection.call(request, WriteTxnMarkersResponse, lambda answer: answer.markers)
    finally:
        connection.close()


def _coordinator_has_ended_all(connection: Connection) -> bool:
    """Tell whether no transaction is open, or decided and without its markers."""
    request = ListTransactionsRequest(version=0, state_filters=list(_UNENDED), producer_id_filters=[])
    return connection.call(
        request, ListTransactionsResponse, lambda answer: (answer.error_code, answer.transaction_states)
    ) == (0, [])


def await_progress(replica: Replica, live: Live) -> None:
    """Wait until the flow, which goes on being fed, has copied something more."""
    before = progress(replica)

    def moved() -> bool:
        return progress(replica) > before or not live.alive

    wait_until(moved, _TIMEOUT_S, "the copy goes on", poll_s=0.2)
    assert live.alive


@pytest.mark.soak
def test_three_brokers_on_both_sides(start_cluster: ClusterFactory, tmp_path: Path, unique_name: str) -> None:
    """Leaders on all brokers; each side loses one at the same time and gets it back; leaders move twice."""

    def start(name: str) -> Any:
        return lambda: start_cluster(name, brokers=3, heap_mb=_HEAP_MB)

    source, target = start_all([start("three-source"), start("three-target")])
    with Replica(tmp_path, unique_name, source.client, target.client) as replica:
        replica.configure(state={"replication_factor": 3})
        topic, partitions = f"{unique_name}.a", 6
        create_replicated(source, topic, partitions, 3)
        assert len(set(leaders(source, topic).values())) == 3
        with BusyProducer(source.client, topic, partitions, seed=1) as busy, replica.running() as live:
            await_progress(replica, live)
            assert set(leaders(target, topic).values()) == {1, 2, 3}
            lost = [cluster.nodes[0] for cluster in (source, target)]
            for node in lost:
                node.kill()
            await_progress(replica, live)
            for node in lost:
                node.launch()
            for node in lost:
                node.await_ready(_TIMEOUT_S)
            for cluster in (source, target):
                move_leaders_back(cluster, topic, partitions)
            await_progress(replica, live)
        replica.copy()
        replica.assert_same(topic)
        assert sum(len(replica.target_records(topic, p)) for p in range(partitions)) >= busy.committed > 0


@pytest.fixture(scope="module")
def fragile(session_home: Path) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Two single brokers that may be killed and throttled."""
    factory = ClusterFactory(session_home)
    try:
        first, second = start_all([lambda: factory("fragile-source"), lambda: factory("fragile-target")])
        yield first, second
    finally:
        factory.close()


@pytest.fixture
def replica(
    fragile: tuple[KafkaCluster, KafkaCluster], tmp_path: Path, unique_name: str
) -> Iterator[Replica]:
    with Replica(tmp_path, unique_name, fragile[0].client, fragile[1].client) as replica:
        yield replica


def test_brokers_are_killed_and_come_back_during_a_copy(
    replica: Replica, fragile: tuple[KafkaCluster, KafkaCluster]
) -> None:
    """First the source's only broker, then the target's: the same lanes go on, and both sides are equal."""
    topics = {replica.topic("a", partitions=2): 2, replica.topic("b"): 1}
    with (
        Traffic(replica.source.bootstrap, topics, seed=21, timeout_ms=4000) as traffic,
        replica.running() as live,
    ):
        await_progress(replica, live)
        for cluster in fragile:
            cluster.nodes[0].kill()
            cluster.nodes[0].start()
            await_progress(replica, live)
    end_hanging(fragile[0], topics, traffic.committers)
    wait_until(lambda: nothing_open(replica), _TIMEOUT_S, "transactions that lost their producer are aborted")
    replica.copy()
    replica.assert_same()
    on_target = [replica.target_records(topic, p) for topic, count in topics.items() for p in range(count)]
    # Sends whose answer was lost may be there as well.
    assert sum(map(len, on_target)) >= traffic.total > 0


@pytest.mark.soak
def test_the_targets_broker_is_killed_during_a_copy_at_least_once(
    replica: Replica, fragile: tuple[KafkaCluster, KafkaCluster]
) -> None:
    """What was in flight has an unknown outcome: it is sent again, and nothing else is there twice."""
    replica.configure(delivery="at_least_once")
    topics = {replica.topic("a", partitions=2): 2, replica.topic("b"): 1}
    with Traffic(replica.source.bootstrap, topics, seed=22) as traffic, replica.running() as live:
        await_progress(replica, live)
        fragile[1].nodes[0].kill()
        fragile[1].nodes[0].start()
        await_progress(replica, live)
    replica.copy()
    repeats = count_repeats(replica.source_client, replica.target_client, list(topics))
    # Each lane repeats at most what it had sent behind its last commit, and there was one kill.
    assert repeats < traffic.total / 2
    replica.copy()
    assert count_repeats(replica.source_client, replica.target_client, list(topics)) == repeats


def set_quota(bootstrap: str, key: str, bytes_per_second: float | None) -> None:
    """Limit our client id on a broker, or lift the limit."""
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        version=1,
        entries=[
            entry(
                version=1,
                entity=[entry.EntityData(version=1, entity_type="client-id", entity_name=DEFAULT_CLIENT_ID)],
                ops=[
                    entry.OpData(
                        version=1, key=key, value=bytes_per_second or 0.0, remove=bytes_per_second is None
                    )
                ],
            )
        ],
        validate_only=False,
    )
    with RawConnection(bootstrap) as connection:
        assert [e.error_code for e in connection.call(request).entries] == [0]


def test_quotas_of_the_brokers_slow_the_copy_and_break_nothing(
    replica: Replica, fragile: tuple[KafkaCluster, KafkaCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers hold answers back (KIP-219): the copy waits, within its time-outs, and commits as ever."""
    throttled: list[int] = []

    def watched(frame: memoryview) -> FetchResponse:
        answer = decode_fetch(frame)
        throttled.append(answer.throttle_ms)
        return answer

    monkeypatch.setattr("onceover.kafka.logs.fetcher.decode_fetch", watched)
    topic = replica.topic(partitions=2)
    for _ in range(8):
        for partition in (0, 1):
            replica.source.batch_of_size(topic, partition, 100_000)
    addresses = replica.source.bootstrap, replica.target.bootstrap
    keys = "consumer_byte_rate", "producer_byte_rate"
    for address, key in zip(addresses, keys, strict=True):
        set_quota(address, key, 150_000)
    try:
        replica.copy()
    finally:
        for address, key in zip(addresses, keys, strict=True):
            set_quota(address, key, None)
    assert max(throttled) > 0
    replica.assert_same()


@pytest.mark.soak
def test_a_quota_that_wants_a_longer_pause_than_a_transaction_may_last_is_kept_to_and_told(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data is in, and its broker listens no more: before, every attempt was thrown away in the end."""
    monkeypatch.setattr("onceover.copy.lane.LANE_TIMEOUT_MS", 3_000)
    monkeypatch.setattr("onceover.copy.quota._OVER_S", 1.0)
    replica.configure(lanes=1)
    topic = replica.topic(partitions=3)
    for partition in range(3):
        replica.source.batch_of_size(topic, partition, 540_000)
    target = replica.target.bootstrap

    def notes() -> list[tuple[str, str]]:
        return [(note["object"], note["code"]) for note in replica.flow.status()["notes"]]

    set_quota(target, "producer_byte_rate", 100_000)
    try:
        with replica.running():
            wait_until(lambda: notes() == [("lane 0", "TARGET_QUOTA")], 60.0, "the note")
            replica.source.plain(topic, 0, replica.source.records(5))
            wait_until(lambda: len(replica.target_records(topic, 0)) == 6, 60.0, "what came meanwhile")
            set_quota(target, "producer_byte_rate", None)
            wait_until(lambda: notes() == [], 60.0, "the end of the note")
    finally:
        set_quota(target, "producer_byte_rate", None)
    replica.assert_same()


def test_the_flows_bandwidth_limit_is_kept(replica: Replica) -> None:
    """bytes_per_second over all lanes: at most a second's credit and one fetch more than the rate allows."""
    per_second, batch_bytes, batches = 256 << 10, 60_000, 20
    replica.configure(
        lanes=1, limits={"bytes_per_second": f"{per_second >> 10}KiB", "memory_per_lane": "8MiB"}
    )
    topic = replica.topic()
    for _ in range(batches):
        replica.source.batch_of_size(topic, 0, batch_bytes)
    receipts = replica.copy().receipts
    seconds = (max(r.commit_ms for r in receipts) - min(r.begin_ms for r in receipts)) / 1000
    one_fetch_bytes = 256 << 10
    assert seconds >= (batches * batch_bytes - per_second - 2 * one_fetch_bytes) / per_second
    replica.assert_same()


@pytest.mark.soak
def test_every_partition_gets_its_turn_beside_the_backlogs_of_others(replica: Replica) -> None:
    """Four shares fill an answer, and one partition has batches larger than any share: all begin first."""
    replica.configure(lanes=1, limits={"memory_per_lane": "8MiB"}, transaction={"max_bytes": "1MiB"})
    topic = replica.topic(partitions=10)
    for partition in range(10):
        size, count = (900_000, 3) if partition == 9 else (120_000, 12)
        for _ in range(count):
            replica.source.batch_of_size(topic, partition, size)
    ends = {p: len(replica.source_records(topic, p)) for p in range(10)}
    receipts = [r for r in replica.copy().receipts if r.source.topic == topic and r.records]
    begun = [p for p in dict.fromkeys(r.source.partition for r in receipts)]
    done = next(n for n, r in enumerate(receipts) if r.source_end == ends[r.source.partition])
    assert {r.source.partition for r in receipts[:done]} == set(begun) == set(range(10))
    replica.assert_same()


@pytest.mark.soak
def test_partition_without_a_leader_is_said_when_all_others_are_copied(
    start_cluster: ClusterFactory, tmp_path: Path, unique_name: str, target_cluster: SharedCluster
) -> None:
    """A run up to "caught up", as people start it: exit code 5 and the partition's name, but only at its end.

    The next run, with the broker back, copies what is left.
    """
    source = start_cluster("leaderless", brokers=3, heap_mb=_HEAP_MB)
    topic = f"{unique_name}.a"
    create_replicated(source, topic, 3, 1)
    with Replica(tmp_path, unique_name, source.client, target_cluster.client) as replica:
        replica.copy()
        for number in range(3):
            write(source, topic, b"later", 10, number)
        (lost,) = [node for node in source.nodes if node.node_id == leaders(source, topic)[1]]
        lost.kill()
        wait_until(lambda: leaders(source, topic).keys() == {0, 2}, _TIMEOUT_S, "nobody leads it")

        run = Replicate(replica.flow.path, tmp_path, "--until", "caught-up")
        assert run.wait(240.0) == 5, run.text()
        error = run.document()["error"]
        assert error["code"] == "NO_LEADER"
        assert f"{topic}:1" in error["message"] and f"{topic}:0" not in error["message"]
        assert [len(replica.target_records(topic, number)) for number in range(3)] == [10, 0, 10]

        lost.start()
        wait_until(lambda: len(leaders(source, topic)) == 3, _TIMEOUT_S, "it leads again")
        assert Replicate(replica.flow.path, tmp_path, "--until", "caught-up").wait(240.0) == 0
        replica.assert_same(topic)


def _grown(replica: Replica, topic: str) -> bool:
    """Tell whether the status says of a topic's fourth partition that it waits for a leader."""
    rows = [p for p in replica.flow.status()["partitions"] if (p["topic"], p["partition"]) == (topic, 3)]
    return any(row["state"] == "not_enrolled" and "NO_LEADER" in str(row) for row in rows)


@pytest.mark.soak
def test_beside_a_partition_without_a_leader_growth_waits_and_an_audit_compares_the_rest(
    start_cluster: ClusterFactory, tmp_path: Path, unique_name: str, target_cluster: SharedCluster
) -> None:
    """A running flow goes on with everything else, and takes the new one in when its broker is back."""
    source = start_cluster("leaderless", brokers=3, heap_mb=_HEAP_MB)
    topic, other = f"{unique_name}.a", f"{unique_name}.b"
    create_replicated(source, topic, 3, 1)
    create_replicated(source, other, 1, 3)
    with Replica(tmp_path, unique_name, source.client, target_cluster.client) as replica:
        for number in range(3):
            write(source, topic, b"first", 10, number)
        write(source, other, b"first", 10)
        replica.copy()
        (lost,) = [node for node in source.nodes if node.node_id == leaders(source, topic)[1]]
        lost.kill()
        wait_until(lambda: leaders(source, topic).keys() == {0, 2}, _TIMEOUT_S, "nobody leads it")

        admin = AdminClient(source.client)
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(_TIMEOUT_S)
        with replica.running():
            write(source, other, b"later", 10)
            wait_until(lambda: len(replica.target_records(other)) == 20, _TIMEOUT_S, "the other is copied")
            wait_until(lambda: _grown(replica, topic), _TIMEOUT_S, "the new partition is said to wait")
        content = audit(replica.flow.watch.flow)
        unseen = {(str(gap.reason), gap.source) for part in content.partitions for gap in part.unverifiable}
        assert ("NO_LEADER", (topic, 1)) in {(reason, tuple(tp)) for reason, tp in unseen}
        assert not [finding for part in content.partitions for finding in part.findings]

        lost.start()
        wait_until(lambda: len(leaders(source, topic)) == 4, _TIMEOUT_S, "all are led again")
        write(source, topic, b"grown", 10, 3)
        replica.copy()
        replica.assert_same(topic)


@pytest.mark.soak
def test_an_unclean_election_is_noticed(
    start_cluster: ClusterFactory, tmp_path: Path, unique_name: str, target_cluster: SharedCluster
) -> None:
    """A replica that missed records becomes leader: what was copied is no longer in the source's history."""
    source = start_cluster("unclean", brokers=3, heap_mb=_HEAP_MB)
    topic = f"{unique_name}.a"
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    create_replicated(source, topic, 1, 2, **unclean)
    with Replica(tmp_path, unique_name, source.client, target_cluster.client) as replica:
        write(source, topic, b"before", 10)
        first, second = replicas_of(source, topic)
        second.kill()
        wait_until(lambda: len(in_sync(source, topic)) == 1, _TIMEOUT_S, "a replica is out of sync")
        write(source, topic, b"lost", 10)
        assert replica.copy().records == 20
        first.kill()
        second.start()
        wait_until(lambda: leaders(source, topic).get(0) == second.node_id, _TIMEOUT_S, "it leads")
        write(source, topic, b"after", 30)
        assert replica.copy().records == 0
        stop = replica.stop_of(topic)
    assert stop["code"] == "SOURCE_DIVERGED"
    assert "offset 20" in stop["expected"] and "offset 10" in stop["seen"]


@pytest.mark.soak
def test_an_unclean_election_on_the_target_is_noticed_although_the_log_is_long_again(
    start_cluster: ClusterFactory, tmp_path: Path, unique_name: str, source_cluster: SharedCluster
) -> None:
    """A replica that missed copied records becomes leader; what others write hides that they are gone."""
    target = start_cluster("unclean", brokers=3, heap_mb=_HEAP_MB)
    topic = f"{unique_name}.a"
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    create_replicated(target, topic, 1, 2, **unclean)
    with Replica(tmp_path, unique_name, source_cluster.client, target.client) as replica:
        replica.configure(topics={"sync_configs": False})
        assert replica.topic() == topic
        replica.source.plain(topic, 0, replica.source.records(10))
        assert replica.copy().records == 10
        first, second = replicas_of(target, topic)
        second.kill()
        wait_until(lambda: len(in_sync(target, topic)) == 1, _TIMEOUT_S, "a replica is out of sync")
        replica.source.plain(topic, 0, replica.source.records(10))
        assert replica.copy().records == 10
        first.kill()
        second.start()
        wait_until(lambda: leaders(target, topic).get(0) == second.node_id, _TIMEOUT_S, "it leads")
        write(target, topic, b"others", 30)
        replica.source.plain(topic, 0, replica.source.records(5))
        assert replica.copy().records == 0
        stop = replica.stop_of(topic)
    assert stop["code"] == "TARGET_SHORTENED"
    assert "in leader epoch" in stop["expected"] and "history ends at offset" in stop["seen"]


def replicas_of(cluster: KafkaCluster, topic: str) -> tuple[KafkaNode, KafkaNode]:
    """Return the node that leads the only partition, and the other one that has it."""
    nodes = {node.node_id: node for node in cluster.nodes}
    leader = leaders(cluster, topic)[0]
    (other,) = in_sync(cluster, topic) - {leader}
    return nodes[leader], nodes[other]


def write(cluster: KafkaCluster, topic: str, value: bytes, count: int, partition: int = 0) -> None:
    """Write records one by one."""
    producer = Producer({**cluster.client, "acks": "all", "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, value + b"-%d" % number, partition=partition)
    assert producer.flush(_TIMEOUT_S) == 0
