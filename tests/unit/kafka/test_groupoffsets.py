"""Offsets of many groups: few requests, an answer or an error for each, and nobody waits for a neighbour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.errors import Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.codes import KafkaCode
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.groups.offsets import GROUPS_AT_ONCE, Asked, fetch_committed
from onceover.model import TopicPartition

TP = TopicPartition("orders", 0)
COORDINATOR_MOVED, NOT_AUTHORIZED, PENDING = 16, 30, 88
MANY = 5000


class Brokers(LiveCluster):
    """Brokers 0, 1 and 2, each the coordinator of every third group ``group-<n>``; ``n`` is its offset.

    Attributes:
        down: brokers that do not answer.
        codes: error codes of the next answers about a group.
        pending: how often a group is answered as pending, before it is not.
        requests: how many requests there were, by kind.
    """

    def __init__(self) -> None:
        super().__init__(cast(Any, SimpleNamespace(alias="east", properties={})))
        self.down: set[int] = set()
        self.codes: dict[str, list[int]] = {}
        self.pending: dict[str, int] = {}
        self.requests: Counter[str] = Counter()

    def control(self, node: int | None = None) -> Any:
        if node in self.down:
            self.requests["refused"] += 1
            raise Retriable(f"broker {node} does not answer")
        return node

    def find(self, _: Any, keys: Collection[str], key_type: int) -> dict[str, tuple[int, int]]:
        assert key_type == calls.GROUP
        self.requests["FindCoordinator"] += 1
        return {key: (0, number(key) % 3) for key in keys}

    def fetch(self, node: int, asked: Asked, *, stable: bool) -> dict[str, Any]:
        assert stable
        self.requests["OffsetFetch"] += 1
        return {group: self._answer(node, group, tps) for group, tps in asked.items()}

    def _answer(self, node: int, group: str, tps: Collection[TopicPartition] | None) -> tuple[int, Any]:
        assert number(group) % 3 == node
        if self.codes.get(group):
            return self.codes[group].pop(0), {}
        left = self.pending.get(group, 0)
        self.pending[group] = max(0, left - 1)
        code = PENDING if left else 0
        return 0, {tp: CommittedOffset(code, number(group), -1, "") for tp in tps or [TP]}


def number(group: str) -> int:
    return int(group.rpartition("-")[2])


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(calls, "find_coordinators", made.find)
    monkeypatch.setattr(calls, "offset_fetch", made.fetch)
    monkeypatch.setattr("onceover.backoff.time.sleep", lambda _: None)
    return made


def ask(brokers: Brokers, count: int, retry_s: float = 0.0) -> tuple[Mapping[str, int], dict[str, Exception]]:
    each = fetch_committed(brokers, {f"group-{n}": None for n in range(count)}, retry_s, retry_s)
    found = {group: named.committed[TP].offset for group, named in each.found.items() if not named.pending}
    return found, dict(each.failed)


def test_thousands_of_groups_take_dozens_of_requests(brokers: Brokers) -> None:
    found, failed = ask(brokers, MANY)
    assert (found, failed) == ({f"group-{n}": n for n in range(MANY)}, {})
    assert brokers.requests == {"FindCoordinator": 5, "OffsetFetch": 3 * -(-MANY // 3 // GROUPS_AT_ONCE)}


def test_who_coordinates_a_group_is_asked_once(brokers: Brokers) -> None:
    ask(brokers, 9)
    ask(brokers, 9)
    assert brokers.requests == {"FindCoordinator": 1, "OffsetFetch": 6}


def test_a_coordinator_that_is_away_is_tried_once_for_all_of_its_groups(brokers: Brokers) -> None:
    brokers.down = {1}
    found, failed = ask(brokers, MANY)
    assert {number(group) % 3 for group in found} == {0, 2}
    assert {number(group) % 3 for group in failed} == {1}
    assert len(found) + len(failed) == MANY
    # The first time, and once more behind all others.
    assert brokers.requests["refused"] == 2


def test_pending_groups_are_asked_again_together_behind_all_others(brokers: Brokers) -> None:
    """A hundred open transactions wait as long as one."""
    brokers.pending = {f"group-{n}": 3 for n in range(0, 300, 3)}
    found, failed = ask(brokers, 600, retry_s=30.0)
    assert (len(found), failed) == (600, {})
    assert brokers.requests["OffsetFetch"] == 3 + 3


def test_what_stays_pending_says_so_and_takes_nothing_from_the_others(brokers: Brokers) -> None:
    """Partition by partition for who can use that; where all of a group is wanted, the group is not known."""
    brokers.pending = {"group-4": 1000}
    each = fetch_committed(brokers, {f"group-{n}": None for n in range(9)}, 0.0, 0.0)
    assert {group: named.pending for group, named in each.found.items() if named.pending} == {"group-4": {TP}}
    whole = GroupAdmin(brokers, retry_s=0.0).each_committed([f"group-{n}" for n in range(9)])
    assert len(whole.found) == 8
    assert [(group, error.code) for group, error in whole.failed.items()] == [
        ("group-4", KafkaCode.PENDING_OFFSETS)
    ]


def test_a_coordinator_that_moved_is_looked_for_again(brokers: Brokers) -> None:
    brokers.codes = {"group-3": [COORDINATOR_MOVED]}
    assert ask(brokers, 9, retry_s=30.0)[1] == {}
    assert brokers.requests["FindCoordinator"] == 2


def test_a_group_that_may_not_be_asked_for_is_an_error_of_its_own(brokers: Brokers) -> None:
    brokers.codes = {"group-3": [NOT_AUTHORIZED]}
    found, failed = ask(brokers, 9, retry_s=30.0)
    assert len(found) == 8
    assert isinstance(failed["group-3"], UsageError)


def test_partitions_that_are_named_are_asked_for(brokers: Brokers) -> None:
    other = TopicPartition("orders", 7)
    found = fetch_committed(brokers, {"group-1": [other], "group-2": None}, 0.0, 0.0).whole()
    assert [list(found[group].committed) for group in ("group-1", "group-2")] == [[other], [TP]]
