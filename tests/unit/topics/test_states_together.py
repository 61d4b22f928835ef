"""Reading the states of many flows at once: one connection, and nobody in the way of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

import pytest

from onceover.errors import Retriable
from onceover.kafka.logs import between
from onceover.kafka.logs.fetcher import Position
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.state import log as statelog
from onceover.state import names
from onceover.state.log import OTHERS_ROOM, LogCapacity, StateLog, catch_up_together
from onceover.topics import otherflows
from onceover.topics.otherflows import OtherFlows
from onceover.wire.hotpath import FetchedPartition
from tests.unit.copy.batches import answer
from tests.unit.state.test_log import state
from tests.unit.topics.test_otherflows import FakeState, where_states_end

Answers = Sequence[dict[str, FetchedPartition] | Exception]


def info(topic: str, leader: int = 1) -> TopicInfo:
    return TopicInfo(topic, UUID(int=7), {0: PartitionInfo(leader, 0)}, False)


class Together:
    """Stands in for the Fetcher: gives scripted answers, and remembers from where it was asked."""

    script: ClassVar[Answers] = ()
    asked: ClassVar[list[dict[str, int]]]
    closed: ClassVar[int]

    def __init__(self, _cluster: object, **_: object) -> None:
        self.positions: dict[TopicPartition, Position] = {}
        self._answers = list(Together.script)

    def assign(self, tp: TopicPartition, position: Position) -> None:
        self.positions[tp] = position

    def remove(self, tp: TopicPartition) -> None:
        self.positions.pop(tp, None)

    def request(self, **_: object) -> None:
        Together.asked.append({tp.topic: place.offset for tp, place in self.positions.items()})

    def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
        found = self._answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return [(TopicPartition(topic, 0), each) for topic, each in found.items()]

    def close(self) -> None:
        Together.closed += 1


@pytest.fixture(autouse=True)
def fetcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between, "Fetcher", Together)
    monkeypatch.setattr(Together, "asked", [], raising=False)
    monkeypatch.setattr(Together, "closed", 0, raising=False)


def read(
    script: Answers,
    ends: dict[str, int],
    leaders: dict[str, int] | None = None,
    room: LogCapacity = OTHERS_ROOM,
) -> dict[str, StateLog]:
    """Read logs together up to their ends; return those that were, by topic."""
    Together.script = script
    cluster = where_states_end()
    logs = {topic: StateLog(cluster, topic, 0, room=room) for topic in ends}
    places = {logs[topic]: (info(topic, (leaders or {}).get(topic, 1)), end) for topic, end in ends.items()}
    done = catch_up_together(cluster, places)
    assert Together.closed == 1
    return {topic: each for topic, each in logs.items() if each in done}


def test_each_is_read_to_its_own_end_and_then_left_out() -> None:
    """A longer one needs more answers; an empty one needs none."""
    script = [
        {"a": answer([state(0, x=1)]), "b": answer([state(0, x=2)])},
        {"b": answer([state(1, x=None, y=3)])},
    ]
    done = read(script, {"a": 1, "b": 3, "empty": 0})
    assert {topic: each.values for topic, each in done.items()} == {"a": {"x": 1}, "b": {"y": 3}, "empty": {}}
    assert Together.asked == [{"a": 0, "b": 0}, {"b": 1}]


def test_what_is_in_the_way_of_one_is_left_to_its_own_reading() -> None:
    """An error, more than may be kept, no leader: each that one's trouble."""
    script = [
        {"a": answer([state(0, x=1)]), "moved": answer(error=6), "large": answer([state(0, x=[1] * 9)])}
    ]
    done = read(script, {"a": 1, "moved": 1, "large": 1, "shy": 1}, {"shy": -1}, LogCapacity(10, 10))
    assert list(done) == ["a"]
    assert Together.asked == [{"a": 0, "moved": 0, "large": 0}]


def test_a_log_without_a_batch_before_its_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction has left none: nothing that is there was not read."""
    script = [{"a": answer([state(0, x=1)], lso=3)}, {"a": answer(lso=3)}]
    assert {topic: each.values for topic, each in read(script, {"a": 3}).items()} == {"a": {"x": 1}}


def test_a_broker_that_goes_away_takes_nothing_from_what_was_read() -> None:
    """The rest is read one by one, which tells what is the matter."""
    assert list(read([{"a": answer([state(0, x=1)])}, Retriable("away")], {"a": 1, "b": 1})) == ["a"]


def test_nobody_waits_for_ever_for_a_log_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker answers, without records."""
    monkeypatch.setattr(statelog, "_NOT_NOW_S", 0.0)
    assert read([{"a": answer()}], {"a": 1}) == {}


def test_flows_are_read_together_and_only_where_something_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is read alone as long as nothing is in the way."""
    together: list[dict[str, int]] = []

    def catch_up(_: object, logs: dict[FakeState, tuple[TopicInfo, int]]) -> set[FakeState]:
        together.append({topic.name: end for topic, end in logs.values()})
        for log, (topic, _end) in logs.items():
            log.values = {topic.name: {}}  # pyrefly: ignore[read-only]
        return set(logs)

    monkeypatch.setattr(otherflows, "StateLog", FakeState)
    monkeypatch.setattr(otherflows, "catch_up_together", catch_up)
    monkeypatch.setattr(FakeState, "reads", [])
    one, two = names.state_topic("one"), names.state_topic("two")
    cluster, topics = where_states_end(one, two), {name: info(name) for name in (one, two)}
    others = OtherFlows(cluster)
    for _ in range(2):
        assert [flow.name for flow in others.read(topics)] == ["one", "two"]
    cluster.all_topics[two].logs[0].end = 6
    assert [flow.name for flow in others.read(topics)] == ["one", "two"]
    assert together == [{one: 5, two: 5}, {two: 6}]
    assert FakeState.reads == [] and others.unreadable == {}
    others.close()
