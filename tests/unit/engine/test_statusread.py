"""Reading of one cluster as much as answers: a silent broker takes nothing from the others."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from onceover.engine import names, statusread
from onceover.engine.statusread import FlowFacts, PartitionReader
from onceover.errors import Retriable
from onceover.kafka import calls
from onceover.kafka.cluster import PartitionInfo, TopicInfo
from onceover.model import TopicPartition

_LEADER_MOVED = 6


def topic(*leaders: int) -> TopicInfo:
    """Return a topic whose partitions are led by these brokers."""
    return TopicInfo("t", UUID(int=1), {n: PartitionInfo(node, 0) for n, node in enumerate(leaders)}, False)


class Brokers:
    """A cluster whose brokers answer 100 times their number, but the silent ones."""

    alias = "west"

    def __init__(self, *silent: int, later: TopicInfo | None = None) -> None:
        self.silent, self.later = silent, later
        self.asked: list[int] = []

    def control(self, node: int) -> int:
        self.asked.append(node)
        if node in self.silent:
            raise Retriable(f"broker {node} is silent")
        return node

    def topics(self, _: object) -> dict[str, TopicInfo]:
        return {} if self.later is None else {"t": self.later}


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker leads what has its number; it says so of the others."""

    def list_offsets(node: int, some: list[TopicPartition], *_: object) -> dict[TopicPartition, Any]:
        return {tp: (0 if node != 9 else _LEADER_MOVED, node * 100, 0) for tp in some}

    monkeypatch.setattr(calls, "list_offsets", list_offsets)
    monkeypatch.setattr(statusread, "_PAUSE_S", 0.0)


def read(brokers: Brokers, info: TopicInfo) -> tuple[dict[int, int], PartitionReader]:
    reader = PartitionReader(brokers, {"t": info})  # type: ignore[arg-type]
    found = reader.offsets([TopicPartition("t", p) for p in info.partitions], calls.LATEST)
    return {tp.partition: offset for tp, offset in found.items()}, reader


def test_silent_broker_takes_nothing_from_the_others_and_is_asked_once() -> None:
    """Its partitions are missing, with the reason; waiting again would cost as much again."""
    brokers = Brokers(2)

    found, reader = read(brokers, topic(1, 2, 3))
    again = reader.offsets([TopicPartition("t", 1)], calls.EARLIEST)

    assert (found, again) == ({0: 100, 2: 300}, {})
    assert "broker 2 is silent" in str(reader.error)
    assert brokers.asked.count(2) == 1


def test_leader_that_has_moved_is_looked_up() -> None:
    """Broker 9 says that it no longer leads: the metadata of a moment later names the one that does."""
    found, reader = read(Brokers(later=topic(1, 3)), topic(1, 9))

    assert (found, reader.error) == ({0: 100, 1: 300}, None)


def test_partition_without_a_leader_is_said() -> None:
    """Its broker is dead and the cluster knows it."""
    found, reader = read(Brokers(later=topic(1, -1)), topic(1, -1))

    assert found == {0: 100}
    assert "no leader on west" in str(reader.error)


def test_state_values_of_a_wrong_shape_are_problems_and_the_others_count() -> None:
    """Whatever another writer left there."""
    facts = FlowFacts()
    facts.read(
        {names.LAYOUT: [], "topic/t": {"v": 1}, names.DISCOVERED: {"v": 1}},
        {names.HEARTBEAT: 5, names.REFUSED: {"refused": [{"object": "a"}]}, "verified/t/0": None, "else": 1},
    )

    assert len(facts.problems) == 5
    assert {p["code"] for p in facts.problems} == {"STATE_UNREADABLE"}
    assert (facts.layout, facts.known, facts.discovered) == (None, {}, True)
