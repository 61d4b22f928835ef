"""Leader epochs are asked for beside a transaction, and never hold it up."""

from __future__ import annotations

import socket
from uuid import UUID

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.logs.endepochs import EndEpochs
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.kafka.test_lag import Clock

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> FakeCluster:
    """Partition 0 led by broker 1, partition 1 by broker 2; both in leader epoch 5."""
    made = FakeCluster("west")
    for log in made.add_topic("t", UUID(int=1), (9, 9), leaders={0: 1, 1: 2}).logs:
        log.epochs = [(5, 0)]
    return made


@pytest.fixture
def ends(cluster: FakeCluster) -> EndEpochs:
    return EndEpochs(cluster)


def told(ends: EndEpochs, *targets: TopicPartition) -> dict[TopicPartition, int]:
    ends.prepare(targets)
    ends.ask(targets)
    return ends.answers()


def test_every_leader_is_asked_at_once_and_found_once(cluster: FakeCluster, ends: EndEpochs) -> None:
    """A connection to each, kept; who leads what is looked up the first time."""
    assert told(ends, A, B) == {A: 5, B: 5}
    assert told(ends, A, B) == {A: 5, B: 5}
    assert told(ends) == {}
    assert (len(cluster.connections), cluster.log.count("Metadata")) == (2, 1)
    ends.close()
    assert all(connection.closed for connection in cluster.connections)


@pytest.mark.parametrize("answer", [6, -1], ids=["another one leads it", "no epoch"])
def test_who_does_not_say_is_left_out_and_looked_up_again(
    cluster: FakeCluster, ends: EndEpochs, answer: int
) -> None:
    log = cluster.all_topics["t"].logs[0]
    if answer > 0:
        cluster.faults[A] = answer
    else:
        log.epochs = [(answer, 0)]
    assert told(ends, A, B) == {B: 5}
    cluster.faults.clear()
    log.epochs = [(5, 0)]
    assert told(ends, A, B) == {A: 5, B: 5}
    assert cluster.log.count("Metadata") == 2


def test_a_silent_broker_holds_transactions_up_once_in_a_while(
    cluster: FakeCluster, ends: EndEpochs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a second; then nobody is asked for some time, and what it answers late is not read."""
    now_s = [100.0]
    monkeypatch.setattr("onceover.kafka.logs.endepochs.time.monotonic", lambda: now_s[0])
    cluster.silent.add(1)
    assert told(ends, A) == {}
    assert cluster.connections[0].closed
    cluster.silent.clear()
    assert told(ends, A) == {} and len(cluster.connections) == 1
    now_s[0] += 29
    assert told(ends, A) == {} and len(cluster.connections) == 1
    now_s[0] += 2
    assert told(ends, A) == {A: 5}


def test_a_cluster_that_is_away_fails_nothing(cluster: FakeCluster, ends: EndEpochs) -> None:
    """The transaction itself will find out."""
    cluster.down.update({1, 2})
    assert told(ends, A) == {}


def test_who_asks_waits_for_no_connection(cluster: FakeCluster, ends: EndEpochs) -> None:
    """A transaction is open: what was not prepared is not known."""
    ends.ask([A])
    assert (ends.answers(), cluster.log.count("Metadata"), cluster.connections) == ({}, 0, [])
    ends.prepare([A, B])
    cluster.connections[0].hung_up = cluster.connections[1].hung_up = True
    ends.ask([A, B])
    assert (ends.answers(), len(cluster.connections)) == ({}, 2)


def test_who_has_hung_up_meanwhile_is_reached_again_between_transactions(
    cluster: FakeCluster, ends: EndEpochs
) -> None:
    """Brokers close what is idle for ten minutes; also those that the next transaction may write to later."""
    ends.prepare([A, B])
    for connection in cluster.connections:
        connection.hung_up = True
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
