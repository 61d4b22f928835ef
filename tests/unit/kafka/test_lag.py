"""The group that shows the flow to lag tools costs the copy next to nothing, whoever is away."""

from __future__ import annotations

import socket

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.groups import lag as module
from onceover.kafka.groups.lag import LagReporter
from onceover.model import TopicPartition

TP = TopicPartition("t", 0)


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


def test_a_reset_does_not_wait_for_it_once_more(clock: Clock) -> None:
    """With a source in trouble there is one every second."""
    made = reporter()
    made.report({TP: 1})
    tried = clock.tried
    assert tried and clock.waited_s <= module._PATIENCE_S
    made.close()
    assert clock.tried == tried
