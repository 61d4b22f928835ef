"""Heartbeats: one says that the flow runs, the other one only what has been copied."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from onceover.engine import mirrorrounds
from onceover.engine.enrolment import Enrolment
from onceover.engine.leader import now_ms
from onceover.engine.mirror import MirrorSettings
from onceover.engine.mirrorrounds import HeartbeatRound
from onceover.errors import NeedsOperator
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition

RUNNING, COPYING = "heartbeats", "east.heartbeats"
KEY = b"\x00\x04east\x00\x04west"
INTERVAL_S = 1000.0
SETTINGS = MirrorSettings(False, False, True, 60.0, INTERVAL_S, str.isalpha)
T = TypeVar("T")


class FakeTopic:
    """What is written to a topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.times: list[int] = []

    def write(self, records: Mapping[bytes, bytes]) -> None:
        ((key, value),) = records.items()
        assert key == KEY
        self.times.append(int.from_bytes(value[2:], "big"))


class FakeView:
    """A flow with topics of one partition, ten records each on the source."""

    def __init__(self, *topics: str) -> None:
        self.known = {topic: enrolment(topic) for topic in topics}
        self.positions: dict[str, int] = {}
        self.source = SimpleNamespace(alias="east", retry=self.retry, list_offsets=self.list_offsets)
        self.target = SimpleNamespace(alias="west")

    def retry(self, attempt: Callable[[], T]) -> T:
        return attempt()

    def list_offsets(self, partitions: Iterable[TopicPartition], _: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    def enrolments(self) -> dict[str, Enrolment]:
        return self.known

    def progress(self) -> dict[TopicPartition, CommittedOffset]:
        return {TopicPartition(t, 0): CommittedOffset(0, o, 0, "") for t, o in self.positions.items()}


def enrolment(topic: str, *, active: bool = True) -> Enrolment:
    return Enrolment(topic, topic, uuid.uuid4(), uuid.uuid4(), {0: 0}, 0, active)


def heartbeats(view: Any) -> HeartbeatRound:
    return HeartbeatRound(view, 1)


class Case:
    """A round over fakes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *topics: str) -> None:
        self.view = FakeView(*topics)
        self.topics: dict[str, FakeTopic] = {}
        monkeypatch.setattr(mirrorrounds, "MirrorTopic", self.topic)
        self.round = heartbeats(self.view)

    def topic(self, _cluster: object, name: str, _factor: int) -> FakeTopic:
        return self.topics.setdefault(name, FakeTopic(name))

    def run(self) -> float:
        return self.round.run(SETTINGS)


def test_a_heartbeat_is_replicated_when_all_that_was_there_before_it_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And is looked for often until then."""
    case, begun_ms = Case(monkeypatch, "a", "b"), now_ms()
    case.view.positions = {"a": 10, "b": 9}
    assert case.run() == INTERVAL_S / 10
    assert (len(case.topics[RUNNING].times), case.topics[COPYING].times) == (1, [])
    case.view.positions["b"] = 10
    assert case.run() > INTERVAL_S / 10
    assert len(case.topics[RUNNING].times) == 1
    (at_ms,) = case.topics[COPYING].times
    assert begun_ms <= at_ms <= now_ms()


def test_a_topic_without_progress_holds_the_heartbeat_and_one_that_left_the_flow_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, "a", "b")
    case.view.positions = {"a": 10}
    case.run()
    assert case.topics[COPYING].times == []
    case.view.known["b"] = enrolment("b", active=False)
    case.run()
    assert len(case.topics[COPYING].times) == 1


def test_a_flow_that_copied_all_replicates_its_heartbeat_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, "a")
    case.view.positions = {"a": 12}
    assert case.run() > INTERVAL_S / 10
    assert len(case.topics[COPYING].times) == 1


def test_heartbeats_are_not_put_among_what_the_flow_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, "a", COPYING)
    with pytest.raises(NeedsOperator, match=f"{COPYING} is one that the flow copies to"):
        case.run()
    assert case.topics[RUNNING].times == []
