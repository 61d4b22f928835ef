"""Which positions of groups stand on the old source alone."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

from onceover.drills.orphans.positions import PositionOnlyHere, PositionReader, PositionsOnlyHere
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.groups import calls as groupcalls
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog, FakeTopic

A0, A1, B0 = (TopicPartition(topic, number) for topic, number in (("a", 0), ("a", 1), ("b", 0)))
EAST_A0 = TopicPartition("east.a", 0)
COPIES = {A0: EAST_A0, A1: TopicPartition("east.a", 1)}
_GROUP_AUTHORIZATION_FAILED = 30
_MAX_CPU_S = 2.5


def topic(partitions: int) -> FakeTopic:
    return FakeTopic(uuid4(), [FakeLog() for _ in range(partitions)])


def at(*places: tuple[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
    return {tp: CommittedOffset(0, offset, -1, "") for tp, offset in places}


def read(
    monkeypatch: pytest.MonkeyPatch, source: FakeCluster, target: FakeCluster, *, all_listed: bool = True
) -> PositionsOnlyHere:
    monkeypatch.setattr(groupcalls, "lists_all_groups", lambda _: all_listed)
    return PositionReader(source, target).read(COPIES)


@pytest.fixture
def source() -> FakeCluster:
    return FakeCluster("east", {"a": topic(2), "b": topic(1)})


@pytest.fixture
def target() -> FakeCluster:
    return FakeCluster("west", {"east.a": topic(2)})


def test_a_position_without_one_in_the_copy_stands_alone(
    monkeypatch: pytest.MonkeyPatch, source: FakeCluster, target: FakeCluster
) -> None:
    """By partition; in other topics, and of Onceover's own groups, it is none."""
    source.groups |= {
        "both": at((A0, 7)),
        "half": at((A0, 7), (A1, 3)),
        "none": at((A1, 3), (B0, 1)),
        "elsewhere": at((B0, 1)),
        "onceover-lag.f": at((A0, 9)),
    }
    target.groups |= {"both": at((EAST_A0, 2)), "half": at((EAST_A0, 2)), "none": at((B0, 1))}
    found = read(monkeypatch, source, target)
    half, none = PositionOnlyHere("half", "a", ((1, 3),)), PositionOnlyHere("none", "a", ((1, 3),))
    assert found == PositionsOnlyHere({"a": [half, none]})


def test_a_group_that_cannot_be_asked_may_have_one(
    monkeypatch: pytest.MonkeyPatch, source: FakeCluster, target: FakeCluster
) -> None:
    """On either side, with what is missing."""
    source.groups |= {"here": at((A0, 7)), "there": at((A0, 7))}
    target.groups |= {"here": at((EAST_A0, 2)), "there": at((EAST_A0, 2))}
    for cluster, group in ((source, "here"), (target, "there")):
        cluster.codes[f"OffsetFetch {group}"].append(_GROUP_AUTHORIZATION_FAILED)
    found = read(monkeypatch, source, target)
    assert [(each.group, each.at) for each in found.found["a"]] == [("here", ()), ("there", ())]
    assert all("is not known" in each.where for each in found.found["a"])


def test_who_may_not_list_every_group_knows_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch, source: FakeCluster, target: FakeCluster
) -> None:
    (error,) = read(monkeypatch, source, target, all_listed=False).unheard
    assert "DESCRIBE on the cluster east, and on its topic __consumer_offsets" in (error.resolve or "")


def test_groups_that_nobody_coordinates_may_have_one_in_every_topic(
    monkeypatch: pytest.MonkeyPatch, source: FakeCluster, target: FakeCluster
) -> None:
    source.add_topic("__consumer_offsets", uuid4(), [0, 0])
    source.all_topics["__consumer_offsets"].leaders[1] = -1
    (error,) = read(monkeypatch, source, target).unheard
    assert "1 of 2 partitions of __consumer_offsets have no leader on east" in error.message


def test_a_group_in_ten_thousand_topics_is_walked_through_once(
    monkeypatch: pytest.MonkeyPatch, source: FakeCluster, target: FakeCluster
) -> None:
    """Not once for each topic; then it would take a hundred million looks at a position."""
    tps = [TopicPartition(f"t{number}", 0) for number in range(10_000)]
    source.groups["many"] = at(*((tp, 7) for tp in tps))
    monkeypatch.setattr(groupcalls, "lists_all_groups", lambda _: True)
    begun = time.process_time()
    found = PositionReader(source, target).read({tp: tp for tp in tps})
    assert time.process_time() - begun < _MAX_CPU_S
    assert found.found["t9999"] == [PositionOnlyHere("many", "t9999", ((0, 7),))]
