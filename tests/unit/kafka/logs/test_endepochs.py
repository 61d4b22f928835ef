"""Leader epochs are asked for beside a transaction, and never hold it up."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import ListOffsetsRequest

from onceover.config.clients.resolve import ClientConfig
from onceover.errors import Retriable
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.each import Each
from onceover.kafka.logs.endepochs import EndEpochs
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from tests.unit.kafka.test_lag import Clock

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeConnection:
    """Answers for each partition what the cluster says."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.closed = False
        self.usable = True
        self._cluster = cluster
        self._asked: list[list[TopicPartition]] = []

    def send(self, request: Any, _response: Any) -> None:
        sent = ListOffsetsRequest.decode(request.encode(), version=6)
        assert {p.timestamp for t in sent.topics for p in t.partitions} == {-1}
        self._asked.append(
            [TopicPartition(t.name, p.partition_index) for t in sent.topics for p in t.partitions]
        )

    def readable(self, timeout_s: float) -> bool:
        assert timeout_s <= 1.0
        return not self._cluster.silent

    def receive(self) -> Any:
        answers = [(tp, *self._cluster.epochs.get(tp, (0, 5))) for tp in self._asked.pop(0)]
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=tp.topic,
                    partitions=[
                        SimpleNamespace(
                            partition_index=tp.partition, error_code=code, offset=9, leader_epoch=epoch
                        )
                    ],
                )
                for tp, code, epoch in answers
            ]
        )

    def close(self) -> None:
        self.closed = True


class FakeCluster:
    """Partition 0 led by node 1, partition 1 by node 2."""

    alias = "west"

    def __init__(self) -> None:
        self.epochs: dict[TopicPartition, tuple[int, int]] = {}
        self.silent = False
        self.away: Retriable | None = None
        self.looked_up = 0
        self.connections: list[FakeConnection] = []
        self.patience_s: list[float] = []

    @contextmanager
    def hasty(self, patience_s: float) -> Iterator[FakeCluster]:
        self.patience_s.append(patience_s)
        yield self

    def each_topic(self, names: Sequence[str]) -> Each[str, TopicInfo]:
        self.looked_up += 1
        leaders = {0: PartitionInfo(1, 0), 1: PartitionInfo(2, 0)}
        return Each({name: TopicInfo(name, UUID(int=1), leaders, False) for name in names})

    def open(self, node: int) -> FakeConnection:
        if self.away is not None:
            raise self.away
        self.connections.append(FakeConnection(self))
        return self.connections[-1]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def ends(cluster: FakeCluster) -> EndEpochs:
    return EndEpochs(cluster)  # type: ignore[arg-type]


def told(ends: EndEpochs, *targets: TopicPartition) -> dict[TopicPartition, int]:
    ends.prepare(targets)
    ends.ask(targets)
    return ends.answers()


def test_every_leader_is_asked_at_once_and_found_once(cluster: FakeCluster, ends: EndEpochs) -> None:
    """A connection to each, kept; who leads what is looked up the first time."""
    assert told(ends, A, B) == {A: 5, B: 5}
    assert told(ends, A, B) == {A: 5, B: 5}
    assert told(ends) == {}
    assert (len(cluster.connections), cluster.looked_up) == (2, 1)
    ends.close()
    assert all(connection.closed for connection in cluster.connections)


@pytest.mark.parametrize("answer", [(6, 5), (0, -1)], ids=["another one leads it", "no epoch"])
def test_who_does_not_say_is_left_out_and_looked_up_again(
    cluster: FakeCluster, ends: EndEpochs, answer: tuple[int, int]
) -> None:
    cluster.epochs = {A: answer}
    assert told(ends, A, B) == {B: 5}
    cluster.epochs = {}
    assert told(ends, A, B) == {A: 5, B: 5}
    assert cluster.looked_up == 2


def test_a_silent_broker_holds_transactions_up_once_in_a_while(
    cluster: FakeCluster, ends: EndEpochs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a second; then nobody is asked for some time, and what it answers late is not read."""
    now_s = [100.0]
    monkeypatch.setattr("onceover.kafka.logs.endepochs.time.monotonic", lambda: now_s[0])
    cluster.silent = True
    assert told(ends, A) == {}
    assert cluster.connections[0].closed
    cluster.silent = False
    assert told(ends, A) == {} and len(cluster.connections) == 1
    now_s[0] += 29
    assert told(ends, A) == {} and len(cluster.connections) == 1
    now_s[0] += 2
    assert told(ends, A) == {A: 5}


def test_a_cluster_that_is_away_fails_nothing(cluster: FakeCluster, ends: EndEpochs) -> None:
    """The transaction itself will find out."""
    cluster.away = Retriable("connection refused")
    assert told(ends, A) == {}


def test_who_asks_waits_for_no_connection(cluster: FakeCluster, ends: EndEpochs) -> None:
    """A transaction is open: what was not prepared is not known."""
    ends.ask([A])
    assert (ends.answers(), cluster.looked_up, cluster.connections) == ({}, 0, [])
    ends.prepare([A, B])
    cluster.connections[0].usable = cluster.connections[1].usable = False
    ends.ask([A, B])
    assert (ends.answers(), len(cluster.connections)) == ({}, 2)


def test_who_has_hung_up_meanwhile_is_reached_again_between_transactions(
    cluster: FakeCluster, ends: EndEpochs
) -> None:
    """Brokers close what is idle for ten minutes; also those that the next transaction may write to later."""
    ends.prepare([A, B])
    for connection in cluster.connections:
        connection.usable = False
    ends.prepare([A])
    ends.ask([A, B])
    assert ends.answers() == {A: 5, B: 5}
    assert [connection.closed for connection in cluster.connections] == [True, True, False, False]


def test_brokers_that_are_away_take_a_second_of_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those whose listeners have no room for another connection; none of it inside a transaction."""
    clock = Clock()
    monkeypatch.setattr(socket, "create_connection", clock.connect)
    for name in ("onceover.kafka.link.connection.time", "onceover.kafka.logs.endepochs.time"):
        monkeypatch.setattr(name, clock)
    servers = {"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2"}
    made = EndEpochs(LiveCluster(ClientConfig("west", servers)))
    for _ in range(300):
        made.prepare([A])
        waited_s = clock.waited_s
        made.ask([A])
        assert made.answers() == {} and clock.waited_s == waited_s
        clock.now_s += 1.0
    assert clock.tried >= 2
    assert clock.waited_s < 20.0
