"""The group that shows the flow to lag tools costs the copy next to nothing, whoever is away."""

from __future__ import annotations

import socket
from uuid import UUID

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.groups import lag as module
from onceover.kafka.groups.lag import LagReporter
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeChannel, FakeCluster

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    """Goes on while somebody waits for a connection."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.waited_s = 0.0
        self.tried = 0

    def monotonic(self) -> float:
        return self.now_s

    def connect(self, _address: object, timeout: float) -> socket.socket:
        self.tried += 1
        self.waited_s += timeout
        self.now_s += timeout
        raise TimeoutError("nobody is there")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(socket, "create_connection", found.connect)
    for name in ("onceover.kafka.link.connection.time", "onceover.kafka.groups.lag.time"):
        monkeypatch.setattr(name, found)
    return found


def reporter() -> LagReporter:
    """Return one whose group is on a cluster of two brokers that are away."""
    servers = "127.0.0.1:1,127.0.0.1:2"
    return LagReporter(LiveCluster(ClientConfig("east", {"bootstrap.servers": servers})), "onceover-lag.f")


def test_brokers_that_are_away_take_a_second_of_every_half_minute(clock: Clock) -> None:
    """Ten of every forty before: each attempt waited as long as the copy's own."""
    made = reporter()
    for offset in range(300):
        made.report({TP: offset})
        clock.now_s += 1.0
    assert clock.tried >= 2
    assert clock.waited_s < 20.0


GROUP = "onceover-lag.f"
COORDINATOR_MOVED, NOT_AUTHORIZED, UNKNOWN_TOPIC = 16, 30, 3


@pytest.fixture
def source() -> FakeCluster:
    """A source that is there, with a topic of two partitions."""
    made = FakeCluster("east")
    made.add_topic("t", UUID(int=1), ends=(100, 100))
    return made


def shown(source: FakeCluster) -> dict[int, int]:
    """Return the positions that lag tools see, by partition."""
    return {tp.partition: at.offset for tp, at in source.groups.get(GROUP, {}).items()}


def hang_up(source: FakeCluster) -> None:
    """Close the last connection, as brokers do with those that are idle or whose session is over."""
    source.connections[-1].hung_up = True


def test_what_comes_after_a_hang_up_is_shown(source: FakeCluster, clock: Clock) -> None:
    """It is noticed before a position is written to a connection that leads nowhere."""
    made = LagReporter(source, GROUP)
    made.report({TP: 1}, now=True)
    hang_up(source)
    clock.now_s += 60.0
    made.report({TP: 2})
    made.close()
    assert shown(source) == {0: 2}


def test_what_was_sent_and_never_answered_is_sent_again(source: FakeCluster, clock: Clock) -> None:
    """At the end of the task, too, when there is nothing else; what is newer by then stands."""
    made = LagReporter(source, GROUP)
    made.report({TP: 1, OTHER: 5})
    hang_up(source)
    clock.now_s += 60.0
    made.report({TP: 2})
    hang_up(source)
    clock.now_s += 60.0
    made.close()
    assert shown(source) == {0: 2, 1: 5}


def test_the_last_positions_wait_for_the_answer_before_them(
    source: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a source that is far away it may still be on its way."""
    monkeypatch.setattr(FakeChannel, "readable", lambda channel, timeout_s: timeout_s > 0)
    made = LagReporter(source, GROUP)
    made.report({TP: 1})
    clock.now_s += 60.0
    made.report({TP: 2}, now=True)
    assert shown(source) == {0: 2}


def test_a_coordinator_that_has_moved_is_looked_for_and_told(source: FakeCluster, clock: Clock) -> None:
    """It takes the request, and refuses what is in it."""
    source.codes[f"OffsetCommit {GROUP}"].append(COORDINATOR_MOVED)
    made = LagReporter(source, GROUP)
    made.report({TP: 1}, now=True)
    assert shown(source) == {}
    clock.now_s += 60.0
    made.report({})
    made.close()
    assert shown(source) == {0: 1} and len(source.connections) == 2


def test_a_topic_that_is_gone_takes_nothing_from_the_others(source: FakeCluster, clock: Clock) -> None:
    """Its position is not sent again and again."""
    made = LagReporter(source, GROUP)
    made.report({TP: 1, TopicPartition("gone", 0): 7}, now=True)
    for offset in (2, 3):
        clock.now_s += 60.0
        made.report({TP: offset}, now=True)
    assert shown(source) == {0: 3} and len(source.connections) == 1


def test_a_missing_right_is_said(source: FakeCluster, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """READ on the group, which whoever finds its coordinator may lack."""
    source.codes[f"OffsetCommit {GROUP}"].extend([NOT_AUTHORIZED] * 3)
    made = LagReporter(source, GROUP)
    for offset in range(3):
        made.report({TP: offset}, now=True)
        clock.now_s += 60.0
    assert "positions are not shown on east: east refuses offset commit" in caplog.text


def test_a_reset_does_not_wait_for_it_once_more(clock: Clock) -> None:
    """With a source in trouble there is one every second."""
    made = reporter()
    made.report({TP: 1})
    tried = clock.tried
    assert tried and clock.waited_s <= module._PATIENCE_S
    made.close()
    assert clock.tried == tried
