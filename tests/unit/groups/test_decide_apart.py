"""What one group, partition or topic lacks takes nothing from the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.errors import UsageError
from onceover.groups.apply import AppliedGroups, GroupSync
from onceover.groups.decide import Allowed, Decision, Direction, GroupAction, PartitionFacts
from onceover.groups.plan import GroupSteps, Row
from onceover.groups.view import EnrolledPair, GroupReader
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.each import Each
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.groups.offsets import GroupOffsets
from onceover.model import TopicPartition
from onceover.state.records.enrolment import Enrolment
from onceover.txn.classify import Action, Api
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.topics.topicworld import source_id, target_id

TP = TopicPartition("orders", 0)


class Busy(LiveCluster):
    """A group of two partitions, each committed by a task of its own: in turns, one is always pending."""

    def __init__(self) -> None:
        super().__init__(cast(Any, SimpleNamespace(alias="east", properties={})))
        self.asked = 0

    def control(self, node: int | None = None) -> Any:
        return node

    def fetch(self, _: Any, asked: Any, *, stable: bool) -> Any:
        self.asked += 1
        two = [TP, TP._replace(partition=1)]
        pending = two[self.asked % 2]
        answer = {
            tp: CommittedOffset(88 if tp == pending else 0, -1 if tp == pending else 7, -1, "") for tp in two
        }
        return dict.fromkeys(asked, (0, answer))


def test_a_group_that_commits_in_transactions_all_the_time_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition was told at one of the tries; who is to write there has to be told at the last one."""
    busy = Busy()
    monkeypatch.setattr(calls, "find_coordinators", lambda _, keys, __: dict.fromkeys(keys, (0, 0)))
    monkeypatch.setattr(calls, "offset_fetch", busy.fetch)
    each = GroupAdmin(busy, retry_s=0.3).each_committed(["a"])
    assert not each.failed and set(each.found["a"]) == {TP, TP._replace(partition=1)}
    asked = {"a": [TP, TP._replace(partition=1)]}
    assert GroupAdmin(busy, retry_s=0.0).each_named(asked, 0.0).found["a"].pending


def test_what_may_not_be_confirmed_on_the_giving_side_holds_up_nothing_else() -> None:
    one, two = TP, TP._replace(partition=1)
    forward = Row(
        "a",
        PartitionFacts(giving=one, receiving=one, committed=9, current=5),
        Decision(GroupAction.MOVE, "", 9),
    )
    gone = Row(
        "a",
        PartitionFacts(giving=two, receiving=two, committed=None, current=5),
        Decision(GroupAction.DELETE, ""),
    )
    written: list[Any] = []

    class Side:
        def each_named(self, asked: Any, _: float) -> Any:
            at = {tp: CommittedOffset(0, 5, -1, "") for tp in (one, two)}
            return Each({group: GroupOffsets(at, frozenset()) for group in asked}, {})

        def each_commit_once(self, offsets: Any, _: Any) -> Any:
            written.extend(offsets)
            return {}

        def settle(self, _: Any) -> Any:
            return {}

    class Barred(Side):
        def settle(self, _: Any) -> Any:
            return {"a": UsageError("not authorized", code="NOT_AUTHORIZED")}

    reader = SimpleNamespace(receiving=Side(), settler=Side(), giving=Side(), giving_settler=Barred())
    sync = GroupSync(cast(Any, reader), Allowed(follow_deletions=True), cast(Any, None), 1)
    journal = cast(Any, SimpleNamespace(done=lambda *_: None))
    sync._write([GroupSteps("a", (forward, gone), (), 0.0)], AppliedGroups(cast(Any, None)), journal)
    assert written == ["a"]


def test_a_source_topic_that_may_not_be_described_costs_its_own_groups_something_only() -> None:
    """Deleted together with its ACL, it is answered 29 and not 3; the memory still names it."""

    def enrolled(name: str) -> EnrolledPair:
        e = Enrolment(name, name, source_id(name), target_id(name), {0: 0}, 1)
        return EnrolledPair(TopicPartition(name, 0), TopicPartition(name, 0), e)

    source, target = FakeCluster("east"), FakeCluster("west")
    for name in ("good", "old"):
        source.add_topic(name, source_id(name))
        target.add_topic(name, target_id(name))
    source.unanswered["old"] = failure("east", Api.METADATA, Action.UNAUTHORIZED, 29, "old")
    reader = GroupReader.__new__(GroupReader)
    reader.direction = Direction.FAILOVER
    reader._source, reader._target = source, target
    reader._histories = cast(Any, SimpleNamespace(parted=lambda *_: {}))
    problems = reader._problems({TopicPartition(n, 0): enrolled(n) for n in ("good", "old")}, {})
    assert set(problems) == {TopicPartition("old", 0)}
