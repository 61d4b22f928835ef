"""What stands behind the cut on the source: counted where it can be, known or named where not."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceover.backoff import Deadline
from onceover.drills.leaving.watch import SourceWatch, came_behind, written_behind
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.model import TopicPartition
from onceover.state.records.enrolment import Enrolment, Promoted
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content

EAST, WEST, ANOTHER = (UUID(int=n) for n in (1, 2, 3))
P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)
RECORD = Content(b"k", b"v", (), 1)
CUTS = {P0: 10, P1: 10}
MANY = 30_000


def enrolment(topic_id: UUID = EAST) -> Enrolment:
    promoted = Promoted(2, "d1", {0: 11, 1: 11}, {0: 10, 1: 10})
    return Enrolment("a", "a", topic_id, WEST, {0: 0, 1: 0}, 5, active=False, promoted=promoted)


def source(*ends: int) -> tuple[FakeCluster, list[FakeLog]]:
    cluster = FakeCluster("east")
    cluster.add_topic("a", EAST, list(ends))
    logs = [cluster.log_of(TopicPartition("a", number)) for number in range(len(ends))]
    return cluster, [log for log in logs if log is not None]


def test_records_are_counted_and_markers_are_not() -> None:
    """A transaction that was open when the fence came may end late."""
    east, (log, other) = source(10, 10)
    log.append([RECORD] * 3)
    other.decide(7, commit=False)
    behind = written_behind(east, [enrolment()], {}, Deadline(5.0))
    assert (behind.written, behind.unknown, behind.total) == ({P0: 3}, set(), 3)


def test_what_is_gone_again_was_written_all_the_same() -> None:
    """By short retention, or by an application that purges what it has read: nobody reads it any more."""
    east, (log, _) = source(10, 10)
    log.append([RECORD] * 3)
    log.append([RECORD] * 4)
    log.expire(13)
    assert written_behind(east, [enrolment()], {}, Deadline(5.0)).written == {P0: 7}
    log.expire(log.end)
    assert written_behind(east, [enrolment()], {}, Deadline(5.0)).written == {P0: 7}


def test_a_partition_that_cannot_be_read_takes_nothing_from_the_others() -> None:
    """It is asked behind the point of no return, where everything else is to be done all the same."""
    east, (log, other) = source(10, 10)
    log.append([RECORD] * 3)
    other.append([RECORD])
    east.away[P1] = Retriable("nobody leads it")
    behind = written_behind(east, [enrolment()], {}, Deadline(5.0))
    assert (behind.written, set(behind.unread), behind.unknown) == ({P0: 3}, {P1}, {"a"})
    assert behind.total is None


def test_a_batch_that_is_damaged_takes_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    east, (log, other) = source(10, 10)
    log.append([RECORD] * 3)
    other.append([RECORD])

    def damaged(_: object, tp: TopicPartition, *args: object, **more: object) -> list[int]:
        if tp == P1:
            raise NeedsOperator("a batch is damaged")
        return [1, 2, 3]

    monkeypatch.setattr("onceover.drills.leaving.watch.records_between", damaged)
    behind = written_behind(east, [enrolment()], {}, Deadline(5.0))
    assert (behind.written, set(behind.unread)) == ({P0: 3}, {P1})
    with pytest.raises(NeedsOperator, match="damaged"):
        SourceWatch(east, ["a"], lambda _: None).check(CUTS, Deadline(5.0))


def test_more_than_can_be_read_in_time_counts_by_its_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes around the fence for hours writes faster than anybody counts."""

    def read(*_: object, **__: object) -> None:
        raise AssertionError("it is read")

    monkeypatch.setattr("onceover.drills.leaving.watch.records_between", read)
    east, _ = source(10, 10 + MANY)
    assert written_behind(east, [enrolment()], {}, Deadline(5.0)).written == {P1: MANY}


def test_of_a_topic_that_was_made_anew_all_is_behind_the_cut() -> None:
    """Whatever the one of before held."""
    east, (log, _) = source(0, 0)
    log.append([RECORD] * 2)
    behind = written_behind(east, [enrolment(ANOTHER)], {}, Deadline(5.0))
    assert (behind.written, behind.lost) == ({P0: 2}, ["a"])


@pytest.mark.parametrize("error", [Retriable("east is away"), NeedsOperator("no right")])
def test_a_source_that_is_away_as_a_whole_is_said(error: OnceoverError) -> None:
    east, _ = source(10, 10)
    east.unanswered["a"] = error
    with pytest.raises(type(error)):
        written_behind(east, [enrolment()], {}, Deadline(0.1))


def test_nothing_is_asked_where_nothing_has_come() -> None:
    east, _ = source(10, 10)
    assert came_behind(east, CUTS, CUTS, Deadline(5.0)).found == {}
    assert east.asked() == []
