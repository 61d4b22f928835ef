"""A log is read from one offset to another: where that ends, what is in its way, who is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from onceover.backoff import Deadline, StallLimit
from onceover.errors import NeedsOperator, NotNow, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.codes import KafkaCode
from onceover.kafka.logs.between import (
    Interval,
    IntervalPart,
    IntervalReader,
    batches_between,
    led_topics,
    read_topic,
    records_between,
    stable_end,
)
from onceover.kafka.logs.reading import OffsetGone, TopicGone
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
_NOT_LEADER = 6


class Looks(StallLimit):
    """Has passed once it was asked so often, since somebody got on, whether it has."""

    def __init__(self, most: int) -> None:
        super().__init__(60.0)
        self._most = self._left = most

    @property
    def passed(self) -> bool:
        self._left -= 1
        return self._left < 0

    def got_on(self) -> None:
        self._left = self._most


@dataclass
class CrowdedOut(FakeLog):
    """A log of which the first answers hold nothing: its broker has filled them with another one."""

    times: int = 0

    def fetch(
        self, offset: int, isolation: int = calls.READ_COMMITTED
    ) -> tuple[int, bytes, list[tuple[int, int]]]:
        self.times -= 1
        return super().fetch(offset, isolation) if self.times < 0 else (0, b"", [])


@dataclass
class OneByOne(FakeLog):
    """A log of which each answer holds a single batch; ``then`` is called behind each."""

    then: Callable[[], object] = field(default=lambda: None)

    def fetch(
        self, offset: int, isolation: int = calls.READ_COMMITTED
    ) -> tuple[int, bytes, list[tuple[int, int]]]:
        whole = self.batches
        self.batches = [each for each in whole if each.last >= offset][:1]
        found = super().fetch(offset, isolation)
        self.batches = whole
        self.then()
        return found


@pytest.fixture
def cluster() -> FakeCluster:
    """Two partitions without records."""
    made = FakeCluster("west")
    made.make_topic("orders", 2)
    return made


def log_of(cluster: FakeCluster, tp: TopicPartition = TP) -> FakeLog:
    return cluster.all_topics[tp.topic].logs[tp.partition]


def replaced(cluster: FakeCluster, log: FakeLog, tp: TopicPartition = TP) -> None:
    cluster.all_topics[tp.topic].logs[tp.partition] = log


def append(log: FakeLog, *values: str, producer: int = -1) -> None:
    """Append one batch."""
    log.append([Content(value.encode(), value.encode(), (), 1) for value in values], producer)


def read(
    cluster: FakeCluster, start: int, end: int, limit: Deadline | None = None, isolation: int = 1
) -> list[tuple[int, str]]:
    found = records_between(cluster, TP, start, end, limit or Looks(9), isolation=isolation)
    return [(record.offset, (record.value or b"").decode()) for record in found]


def side_by_side(
    cluster: FakeCluster,
    intervals: dict[TopicPartition, Interval],
    *,
    limit: Deadline | None = None,
    tolerates: tuple[type[OnceoverError], ...] = (),
    compacted: bool = False,
) -> list[IntervalPart]:
    topics = cluster.topics(["orders"])
    cluster.log.clear()
    reader = IntervalReader(
        cluster, topics, intervals, limit or Looks(9), tolerates=tolerates, compacted=compacted
    )
    return list(reader.parts())


def offsets(parts: Sequence[IntervalPart], tp: TopicPartition) -> list[int]:
    """Return where the batches of a partition begin that a consumer meets."""
    return [b.header.base_offset for part in parts if part.tp == tp for b in part.batches if b.batch]


def test_records_are_those_of_the_interval_and_no_others(cluster: FakeCluster) -> None:
    """Batches begin before it and end behind it."""
    append(log_of(cluster), "a", "b", "c")
    append(log_of(cluster), "d", "e", "f")
    assert read(cluster, 1, 5) == [(1, "b"), (2, "c"), (3, "d"), (4, "e")]
    assert [each.header.base_offset for each in batches_between(cluster, TP, 1, 3)] == [0]


@pytest.mark.parametrize(("start", "end"), [(0, 0), (3, 3), (5, 2)])
def test_nothing_is_asked_about_an_empty_interval(cluster: FakeCluster, start: int, end: int) -> None:
    """Also where there is no such topic any more."""
    cluster.all_topics.clear()
    assert read(cluster, start, end) == []
    assert list(IntervalReader(cluster, {}, {TP: Interval(start, end)}, Looks(0)).parts()) == []
    assert led_topics(cluster, [], Looks(0)) == {}
    assert cluster.log == []


def test_aborted_records_are_met_by_those_alone_who_want_all(cluster: FakeCluster) -> None:
    """Their batches come without bytes otherwise, and so do markers."""
    log = log_of(cluster)
    append(log, "a", producer=7)
    log.decide(7, commit=False)
    append(log, "b", producer=7)
    log.decide(7, commit=True)
    assert read(cluster, 0, 4) == [(2, "b")]
    met = [(each.header.base_offset, each.batch is None) for each in batches_between(cluster, TP, 0, 4)]
    assert met == [(0, True), (1, True), (2, False), (3, True)]
    assert read(cluster, 0, 4, isolation=calls.READ_UNCOMMITTED) == [(0, "a"), (2, "b")]


def test_an_interval_whose_end_was_compacted_away_comes_to_its_end(cluster: FakeCluster) -> None:
    """No batch is left there, and an open transaction behind it is not given yet: nothing else will come."""
    log = log_of(cluster)
    append(log, "a")
    append(log, "b", producer=7)
    log.decide(7, commit=False)
    append(log, "c", producer=8)
    log.batches = [log.batches[0], log.batches[-1]]
    assert stable_end(cluster, TP) == 3
    (first, last) = side_by_side(cluster, {TP: Interval(0, 3)}, limit=Looks(2), compacted=True)
    assert (offsets([first], TP), first.next_offset) == ([0], 1)
    assert (last.batches, last.next_offset, last.error) == ([], 3, None)


def test_an_empty_answer_is_no_end_where_nothing_was_compacted(cluster: FakeCluster) -> None:
    """So answers a broker that still looks for records in remote storage."""
    replaced(cluster, CrowdedOut(times=2))
    append(log_of(cluster), "a", "b")
    assert read(cluster, 0, 2) == [(0, "a"), (1, "b")]
    replaced(cluster, CrowdedOut(times=9))
    append(log_of(cluster), "a", "b")
    with pytest.raises(Retriable, match="cannot be read to offset 2"):
        read(cluster, 0, 2, Looks(3))


def test_what_stands_behind_the_end_is_left_to_who_goes_on_from_there(cluster: FakeCluster) -> None:
    """It was written behind the question for the end, and comes with the answer all the same."""
    append(log_of(cluster), "a", "b")
    append(log_of(cluster), "c")
    (part,) = side_by_side(cluster, {TP: Interval(0, 2)})
    assert (offsets([part], TP), part.next_offset) == ([0], 2)
    # A batch that reaches over the end was given, all of it.
    (part,) = side_by_side(cluster, {TP: Interval(0, 1)})
    assert (offsets([part], TP), part.next_offset) == ([0], 2)


def test_damage_behind_the_end_is_nobodys_who_reads_up_to_it(cluster: FakeCluster) -> None:
    """It came with the same answer."""
    log = log_of(cluster)
    append(log, "a")
    append(log, "b")
    log.batches[1].damaged = True
    assert read(cluster, 0, 1) == [(0, "a")]
    with pytest.raises(NeedsOperator):
        read(cluster, 0, 2)


def test_who_is_crowded_out_of_an_answer_has_not_come_to_its_end(cluster: FakeCluster) -> None:
    """A broker fills its answer with one partition and gives nothing of the next, whatever it has."""
    append(log_of(cluster), "a")
    other = CrowdedOut(times=1)
    replaced(cluster, other, OTHER)
    append(other, "x", "y")
    parts = side_by_side(cluster, {TP: Interval(0, 1), OTHER: Interval(0, 2)})
    assert offsets(parts, TP) == offsets(parts, OTHER) == [0]


def test_an_end_that_does_not_come_is_told(cluster: FakeCluster) -> None:
    """Never taken for the end; and whose fault it is, where somebody's transaction is open."""
    log = log_of(cluster)
    append(log, "a", "b")
    append(log, "c", producer=7)
    with pytest.raises(Retriable, match="orders:0 on west cannot be read to offset 3: a transaction is open"):
        read(cluster, 0, 3)
    with pytest.raises(Retriable, match="to offset 9: it took too long") as told:
        read(cluster, 0, 9, isolation=calls.READ_UNCOMMITTED)
    assert told.value.seen == "read up to 3"
    assert read(cluster, 0, 3, isolation=calls.READ_UNCOMMITTED)[-1] == (2, "c")


def test_who_gets_on_has_all_of_the_time_again_unless_the_whole_has_an_end(cluster: FakeCluster) -> None:
    """A stall limit is for intervals of any length, a deadline for all that is read."""
    replaced(cluster, OneByOne())
    for value in "abcdef":
        append(log_of(cluster), value)
    assert len(read(cluster, 0, 6, Looks(1))) == 6
    with pytest.raises(Retriable, match="cannot be read to offset 6"):
        read(cluster, 0, 6, Deadline(0.0))


def test_what_the_caller_does_meanwhile_takes_nothing_from_the_limit(cluster: FakeCluster) -> None:
    """Only a reader that gets on is on time: it is asked behind what the caller has done."""
    replaced(cluster, OneByOne())
    append(log_of(cluster), "a")
    append(log_of(cluster), "b")
    limit = Looks(1)
    for _ in records_between(cluster, TP, 0, 2, limit):
        limit._left = 0


def test_a_leader_that_moves_ends_the_read_and_the_next_one_goes_on(cluster: FakeCluster) -> None:
    """What was given until then stays given."""
    log = OneByOne(then=lambda: cluster.all_topics["orders"].leaders.update({0: 1}))
    replaced(cluster, log)
    cluster.nodes = {0, 1}
    append(log, "a")
    append(log, "b")
    found = records_between(cluster, TP, 0, 2, Looks(9))
    assert next(found).offset == 0
    with pytest.raises(NotNow, match="error 6"):
        next(found)
    assert read(cluster, 1, 2) == [(1, "b")]
    assert [each.node for each in cluster.connections] == [0, 1]


def test_a_partition_without_a_leader_is_waited_for(cluster: FakeCluster) -> None:
    """A topic that was made a moment ago has none yet, and nobody knows it at first."""
    append(log_of(cluster), "a")
    topic = cluster.all_topics.pop("orders")
    topic.leaders[0] = -1

    def heard(request: str, _: str) -> None:
        """It is known at the second look, and led at the fifth."""
        looks = cluster.log.count(request)
        if looks >= 2:
            cluster.all_topics["orders"] = topic
        if looks >= 5:
            topic.leaders[0] = 0

    cluster.heard = heard
    cluster.tries = 2
    with pytest.raises(NotNow, match="orders:0 has no leader on west") as told:
        read(cluster, 0, 1)
    assert told.value.code == KafkaCode.NO_LEADER
    assert read(cluster, 0, 1) == [(0, "a")]
    cluster.heard = lambda *_: None
    del cluster.all_topics["orders"]
    with pytest.raises(TopicGone, match="orders:0 does not exist on west") as gone:
        read(cluster, 0, 1)
    assert gone.value.code == KafkaCode.MISSING


def test_who_says_what_the_topics_are_waits_for_nobody(cluster: FakeCluster) -> None:
    """Nor takes records of a namesake for those that are meant."""
    append(log_of(cluster), "a")
    topics = cluster.topics(["orders"])
    cluster.log.clear()
    assert [record.offset for record in records_between(cluster, TP, 0, 1, topics=topics)] == [0]
    cluster.all_topics["orders"].id = UUID(int=99)
    with pytest.raises(TopicGone):
        list(records_between(cluster, TP, 0, 1, topics=topics))
    cluster.all_topics["orders"].leaders[0] = -1
    with pytest.raises(NotNow, match="no leader"):
        list(
            batches_between(cluster, TP, 0, 1, topics={"orders": cluster.all_topics["orders"].info("orders")})
        )
    assert "Metadata" not in cluster.log


def test_an_offset_that_has_expired_is_told(cluster: FakeCluster) -> None:
    """Nothing is read in place of it; a reader of several can do without one, if it says so."""
    append(log_of(cluster), "a", "b")
    append(log_of(cluster), "c", "d")
    append(log_of(cluster, OTHER), "x")
    log_of(cluster).expire(2)
    with pytest.raises(OffsetGone, match="offset 1 of orders:0 is not in the log of west now"):
        read(cluster, 1, 4)
    intervals = {TP: Interval(1, 4), OTHER: Interval(0, 1)}
    with pytest.raises(OffsetGone):
        side_by_side(cluster, intervals)
    parts = side_by_side(cluster, intervals, tolerates=(OffsetGone,))
    assert [(part.tp, type(part.error)) for part in parts] == [(TP, OffsetGone), (OTHER, type(None))]
    with pytest.raises(OffsetGone):
        side_by_side(cluster, intervals, tolerates=(TopicGone,))


def test_a_reader_can_go_on_elsewhere_and_leave(cluster: FakeCluster) -> None:
    """Behind what has expired, over what nobody wants, and at once where nothing more is wanted."""
    replaced(cluster, OneByOne())
    for value in "abcdef":
        append(log_of(cluster), value)
    log_of(cluster).expire(2)
    topics = cluster.topics(["orders"])
    reader = IntervalReader(cluster, topics, {TP: Interval(0, 6)}, Looks(9), tolerates=(OffsetGone,))
    met: list[int] = []
    for part in reader.parts():
        met += [each.header.base_offset for each in part.batches]
        if part.error is not None:
            reader.go_on(TP, 2)
        elif part.next_offset == 3:
            reader.go_on(TP, 4)
        elif part.next_offset == 5:
            reader.leave(TP)
    assert met == [2, 4]


def test_what_has_come_of_a_partition_that_is_left_is_not_given(cluster: FakeCluster) -> None:
    """It was in the same answer."""
    append(log_of(cluster), "a")
    append(log_of(cluster, OTHER), "x")
    intervals = {TP: Interval(0, 1), OTHER: Interval(0, 1)}
    reader, met = IntervalReader(cluster, cluster.topics(["orders"]), intervals, Looks(9)), []
    for part in reader.parts():
        met.append(part.tp)
        reader.leave(OTHER)
    assert met == [TP]


def test_nobody_compares_epochs_over_what_was_passed_over(cluster: FakeCluster) -> None:
    """The log may have come to another one there: it would be taken for another log."""
    append(log_of(cluster), "a", "b", producer=7)
    reader = IntervalReader(cluster, cluster.topics(["orders"]), {TP: Interval(0, 2, epoch=3)}, Looks(9))
    parts = reader.parts()
    assert next(parts).epoch == 3
    reader.go_on(TP, 1)
    assert next(parts).epoch == calls.NO_EPOCH


def test_who_is_late_keeps_nobody_from_being_read(cluster: FakeCluster) -> None:
    """Each that is not through is named, where the caller can do without."""
    append(log_of(cluster), "a")
    append(log_of(cluster, OTHER), "x", producer=7)
    intervals = {TP: Interval(0, 1), OTHER: Interval(0, 1)}
    *parts, last = side_by_side(cluster, intervals, limit=Looks(3), tolerates=(Retriable,))
    assert offsets(parts, TP) == [0]
    assert all(part.error is None for part in parts)
    assert (last.tp, type(last.error)) == (OTHER, Retriable)


def test_what_comes_before_damage_is_given(cluster: FakeCluster) -> None:
    """And the damage raised, also by a reader that can do without what has expired."""
    log = log_of(cluster)
    append(log, "a")
    append(log, "b", producer=7)
    log.decide(7, commit=False)
    log.batches[1].damaged = True
    topics = cluster.topics(["orders"])
    parts = IntervalReader(cluster, topics, {TP: Interval(0, 2)}, Looks(9), tolerates=(OffsetGone,)).parts()
    assert offsets([next(parts)], TP) == [0]
    with pytest.raises(NeedsOperator):
        next(parts)


def test_connections_are_closed_by_whoever_reads_all_and_by_whoever_does_not(cluster: FakeCluster) -> None:
    """Nothing stays behind of a read."""
    append(log_of(cluster), "a", "b")
    read(cluster, 0, 2)
    with closing(records_between(cluster, TP, 0, 2)) as found:
        assert next(found).offset == 0
    log_of(cluster).expire(1)
    with pytest.raises(OffsetGone):
        read(cluster, 0, 2)
    assert len(cluster.connections) == 3
    assert all(each.closed for each in cluster.connections)


def test_a_broker_that_goes_away_is_told_by_every_reader(cluster: FakeCluster) -> None:
    """It is nobody's own trouble: what tolerates errors of a partition does not pass over that."""
    append(log_of(cluster), "a")
    cluster.down = {0}
    with pytest.raises(Retriable, match="broker 0 of west does not answer"):
        side_by_side(cluster, {TP: Interval(0, 1)}, tolerates=(OnceoverError,))


def test_a_small_topic_is_read_as_it_was_when_that_began(cluster: FakeCluster) -> None:
    """Partition by partition; one that is not there has no records."""
    append(log_of(cluster), "a")
    append(log_of(cluster, OTHER), "x")
    found = read_topic(cluster, "orders")
    assert next(found)[0] == TP
    append(log_of(cluster, OTHER), "y")
    assert [(tp, record.offset) for tp, record in found] == [(OTHER, 0)]
    assert list(read_topic(cluster, "none")) == []


def test_the_epoch_that_was_read_is_told_with_each_part(cluster: FakeCluster) -> None:
    """Whoever goes on later compares it with the log's (KIP-320)."""
    append(log_of(cluster), "a")
    (part,) = side_by_side(cluster, {TP: Interval(0, 1, epoch=0)})
    assert part.batches[0].header.leader_epoch == part.epoch
