"""Offsets of many groups: few requests, an answer or an error for each, and nobody waits for a neighbour."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from onceover.errors import UsageError
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.groups.offsets import GROUPS_AT_ONCE, fetch_committed
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster, LiveOverFake

TP = TopicPartition("orders", 0)
COORDINATOR_MOVED, NOT_AUTHORIZED, PENDING = 16, 30, 88
MANY = 5000


def number(group: str) -> int:
    return int(group.rpartition("-")[2])


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Brokers 0, 1 and 2, each the coordinator of every third group ``group-<n>``; ``n`` is its offset."""
    monkeypatch.setattr("onceover.backoff.time.sleep", lambda _: None)
    made = FakeCluster("east")
    made.nodes = {0, 1, 2}
    for n in range(MANY):
        made.groups[f"group-{n}"] = {TP: CommittedOffset(0, n, -1, "")}
        made.coordinates(f"group-{n}", n % 3)
    return made


def ask(cluster: Cluster, count: int, retry_s: float = 0.0) -> tuple[Mapping[str, int], dict[str, Exception]]:
    each = fetch_committed(cluster, {f"group-{n}": None for n in range(count)}, retry_s, retry_s)
    found = {group: named.committed[TP].offset for group, named in each.found.items() if not named.pending}
    return found, dict(each.failed)


def requests(brokers: FakeCluster) -> dict[str, int]:
    """Return how often it was asked for coordinators, and for what they keep."""
    return {kind: brokers.log.count(kind) for kind in ("FindCoordinator", "OffsetFetch")}


def test_thousands_of_groups_take_dozens_of_requests(brokers: FakeCluster) -> None:
    found, failed = ask(LiveOverFake(brokers), MANY)
    assert (found, failed) == ({f"group-{n}": n for n in range(MANY)}, {})
    assert requests(brokers) == {"FindCoordinator": 5, "OffsetFetch": 3 * -(-MANY // 3 // GROUPS_AT_ONCE)}


def test_who_coordinates_a_group_is_asked_once(brokers: FakeCluster) -> None:
    cluster = LiveOverFake(brokers)
    for _ in range(2):
        ask(cluster, 9)
    assert requests(brokers) == {"FindCoordinator": 1, "OffsetFetch": 6}


def test_a_coordinator_that_is_away_is_tried_once_for_all_of_its_groups(brokers: FakeCluster) -> None:
    brokers.down.add(1)
    found, failed = ask(LiveOverFake(brokers), MANY)
    assert {number(group) % 3 for group in found} == {0, 2}
    assert {number(group) % 3 for group in failed} == {1}
    assert len(found) + len(failed) == MANY
    # The first time, and once more behind all others.
    assert brokers.log.count("no connection/1") == 2


def test_pending_groups_are_asked_again_together_behind_all_others(brokers: FakeCluster) -> None:
    """A hundred open transactions wait as long as one."""
    brokers.undecided = {f"group-{n}": 3 for n in range(0, 300, 3)}
    found, failed = ask(LiveOverFake(brokers), 600, retry_s=30.0)
    assert (len(found), failed) == (600, {})
    assert brokers.log.count("OffsetFetch") == 3 + 3


def test_what_stays_pending_says_so_and_takes_nothing_from_the_others(brokers: FakeCluster) -> None:
    """Partition by partition for who can use that; where all of a group is wanted, the group is not known."""
    brokers.undecided = {"group-4": 1000}
    each = fetch_committed(LiveOverFake(brokers), {f"group-{n}": None for n in range(9)}, 0.0, 0.0)
    assert {group: named.pending for group, named in each.found.items() if named.pending} == {"group-4": {TP}}
    whole = GroupAdmin(LiveOverFake(brokers), retry_s=0.0).each_committed([f"group-{n}" for n in range(9)])
    assert len(whole.found) == 8
    assert [(group, error.code) for group, error in whole.failed.items()] == [
        ("group-4", KafkaCode.PENDING_OFFSETS)
    ]


def test_a_coordinator_that_moved_is_looked_for_again(brokers: FakeCluster) -> None:
    brokers.codes["OffsetFetch group-3"].append(COORDINATOR_MOVED)
    assert ask(LiveOverFake(brokers), 9, retry_s=30.0)[1] == {}
    assert brokers.log.count("FindCoordinator") == 2


def test_a_group_that_may_not_be_asked_for_is_an_error_of_its_own(brokers: FakeCluster) -> None:
    brokers.codes["OffsetFetch group-3"].append(NOT_AUTHORIZED)
    found, failed = ask(LiveOverFake(brokers), 9, retry_s=30.0)
    assert len(found) == 8
    assert isinstance(failed["group-3"], UsageError)


def test_who_is_to_be_written_to_is_asked_for_again_behind_those_that_were_waited_for(
    brokers: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds have passed: what was told at first may be somebody's former position."""
    brokers.undecided = {"group-4": 3}
    waits = iter([7])

    def wait(_: float) -> None:
        for offset in waits:
            brokers.groups["group-1"][TP] = CommittedOffset(0, offset, -1, "")

    monkeypatch.setattr("onceover.backoff.time.sleep", wait)
    found = fetch_committed(LiveOverFake(brokers), {f"group-{n}": [TP] for n in (1, 4)}, 0.0, 30.0).whole()
    at = {group: named.committed[TP].offset for group, named in found.items()}
    assert at == {"group-1": 7, "group-4": 4}


def test_partitions_that_are_named_are_asked_for(brokers: FakeCluster) -> None:
    other = TopicPartition("orders", 7)
    brokers.groups["group-1"][other] = CommittedOffset(0, 1, -1, "")
    found = fetch_committed(LiveOverFake(brokers), {"group-1": [other], "group-2": None}, 0.0, 0.0).whole()
    assert [list(found[group].committed) for group in ("group-1", "group-2")] == [[other], [TP]]
