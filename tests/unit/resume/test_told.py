"""What a coordinator tells before it has read its log to the end is not committed again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from onceover.copy.identity import LaneIdentity
from onceover.copy.sessionstart import SessionStart
from onceover.errors import MustReset, UsageError
from onceover.kafka.calls import CommittedOffset, OffsetToCommit
from onceover.model import TopicPartition
from onceover.resume.told import CoordinatorRest, ToldProgress
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.copy.loop import FakeProducer
from tests.unit.stops.test_aside import Clock

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
COPY_A, COPY_B, GONE = (TopicPartition("copy", 0), TopicPartition("copy", 1), TopicPartition("left", 0))
ENROLLED = {tp: Enrolment("t", "copy", UUID(int=1), UUID(int=2), {0: 0, 1: 0}, 1) for tp in (A, B)}


def at(offset: int, metadata: str = "{}") -> CommittedOffset:
    return CommittedOffset(0, offset, 3, metadata)


PROGRESS = names.progress_group("f")


@pytest.fixture
def target() -> FakeCluster:
    found = FakeCluster()
    found.groups[PROGRESS] = {COPY_A: at(5), COPY_B: at(7)}
    return found


def told(target: FakeCluster) -> ToldProgress:
    """Return what has been told of both partitions."""
    found = ToldProgress("f", target)
    found.read(target, ENROLLED)
    return found


def test_what_is_told_twice_is_believed(target: FakeCluster) -> None:
    """The first time stable; the second time our own transaction is pending."""
    told(target).confirm()
    assert target.log == ["OffsetFetch", "OffsetFetch of before"]


@pytest.mark.parametrize(
    "later",
    [{COPY_A: at(50), COPY_B: at(7)}, {COPY_A: at(5, "other"), COPY_B: at(7)}, {COPY_B: at(7)}],
    ids=["has moved", "has other metadata", "has gone"],
)
def test_a_coordinator_that_has_told_something_else_before_is_not_believed(
    target: FakeCluster, later: dict[TopicPartition, CommittedOffset]
) -> None:
    """The lane begins anew, and nothing is committed."""
    asked = told(target)
    target.groups[PROGRESS] = later
    with pytest.raises(
        MustReset, match=r"progress of copy:0 was told as 5 with {} beside it and is (50|5 with other|none)"
    ):
        asked.confirm()


def test_progress_that_appears_was_there_all_the_time(target: FakeCluster) -> None:
    """Told as none, a partition would have been stopped for it."""
    known, target.groups[PROGRESS] = target.groups[PROGRESS], {COPY_A: at(5)}
    asked = told(target)
    target.groups[PROGRESS] = known
    with pytest.raises(MustReset, match="copy:1 was told as none and is 7"):
        asked.confirm()


def test_what_is_not_answered_about_one_partition_says_nothing(target: FakeCluster) -> None:
    """A right that is missing takes nothing from the others, whenever it goes missing."""
    denied = UsageError("error 29")
    target.untold = {COPY_B: denied}
    del target.groups[PROGRESS][COPY_B]
    told(target).confirm()
    target.untold, target.groups[PROGRESS] = {}, {COPY_A: at(5), COPY_B: at(7)}
    asked = told(target)
    target.untold = {COPY_B: denied}
    target.groups[PROGRESS] = {COPY_A: at(5)}
    asked.confirm()


def test_what_is_only_committed_again_is_asked_for_as_well(target: FakeCluster) -> None:
    """Progress of a topic that has left the flow would be put back."""
    target.groups[PROGRESS][GONE] = at(9)
    asked = told(target)
    asked.keep({GONE: OffsetToCommit(8, 3, "{}")})
    with pytest.raises(MustReset, match=r"left:0 was told as 8 .* and is 9 "):
        asked.confirm()


@pytest.mark.parametrize("first", [at(7), None], ids=["another one", "none"])
def test_what_is_committed_again_is_what_was_judged(
    target: FakeCluster, first: CommittedOffset | None
) -> None:
    """A stopped partition is read twice: the older answer would be written, and the newer one confirmed."""
    target.groups[PROGRESS] = {COPY_A: at(5)} if first is None else {COPY_A: at(5), COPY_B: first}
    asked = told(target)
    asked.keep({COPY_A: OffsetToCommit(5, 3, "{}")})
    before = "none" if first is None else "7 with {} beside it"
    with pytest.raises(MustReset, match=f"progress of copy:1 was told as {before} and is 2 with {{}} beside"):
        asked.keep({COPY_B: OffsetToCommit(2, 3, "{}")})


def test_what_was_confirmed_may_move(target: FakeCluster) -> None:
    """By the lane itself, from then on; another look asks about what it has read."""
    asked = told(target)
    asked.confirm()
    target.groups[PROGRESS][COPY_A] = at(6)
    asked.confirm()
    target.groups[PROGRESS][COPY_B] = at(8)
    asked.read(target, {B: ENROLLED[B]})
    target.groups[PROGRESS][COPY_A] = at(9)
    asked.confirm()


def test_a_write_that_leaves_nothing_shows_that_the_log_was_read() -> None:
    """Aborted, and beside a partition that nobody copies."""
    producer = FakeProducer()
    ToldProgress("f", FakeCluster()).settle(producer)
    assert producer.log == ["offsets", "abort"] and not producer.committed


def test_a_coordinator_that_refuses_is_left_alone_for_as_long_as_it_reads() -> None:
    """What it took to answer again, and half of it more; once, and never for longer than half a minute."""
    clock = Clock()
    rest = CoordinatorRest(clock)
    assert rest.owed_s() == 0
    rest.refused()
    clock.now_s += 4
    assert (rest.owed_s(), rest.owed_s()) == (6, 0)
    rest.refused()
    clock.now_s += 3600
    assert rest.owed_s() == 30


def test_the_first_write_that_is_refused_is_noted() -> None:
    """By whichever kind of write, and only then."""
    rest = CoordinatorRest()
    me = LaneIdentity("f", 1, "run", 0, 1, (0, 0))
    anything: Any = None
    start = SessionStart(me, anything, anything, rest)
    with start.writing_first():
        pass
    assert rest.owed_s() == 0
    with pytest.raises(MustReset), start.writing_first():
        raise MustReset("not ready")
    assert rest.owed_s() > 0
