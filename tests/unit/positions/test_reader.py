"""Reading the topic of the offset map: what stands there, what cannot be read, when it is another log."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, Retriable
from onceover.kafka import calls
from onceover.kafka.logs import between
from onceover.kafka.logs.between import Interval
from onceover.positions.reader import Chunk, MapChanged, MapTopic, Point
from onceover.state import names
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content

TOPIC = names.map_topic("f")


@pytest.fixture
def cluster() -> FakeCluster:
    """A map whose first partition holds two records that nobody can read; the other ones are empty."""
    made = FakeCluster("west")
    log = made.make_topic(TOPIC, 2).logs[0]
    for _ in range(2):
        written(log)
        log.decide(7, commit=True)
    return made


def written(log: FakeLog) -> None:
    log.append([Content(b"?", b"?", (), 1)] * 2, 7)


def map_topic(cluster: FakeCluster) -> MapTopic:
    found = MapTopic.find(cluster, "f")
    assert found is not None
    return found


def read(topic: MapTopic, start: int, end: int, *, skip: bool = True, settle_s: float = 0.05) -> list[Chunk]:
    return list(topic.read({0: Point(start), 1: Point(0)}, {0: end, 1: 0}, skip=skip, settle_s=settle_s))


def test_what_cannot_be_read_is_given_apart_or_told(cluster: FakeCluster) -> None:
    """From the point on: a batch may begin before it."""
    topic = map_topic(cluster)
    (chunk,) = read(topic, 1, 6)
    assert ([each.offset for each in chunk.unread], chunk.entries, chunk.next_offset) == ([1, 3, 4], [], 6)
    with pytest.raises(NeedsOperator):
        read(topic, 1, 6, skip=False)


def test_what_is_written_while_a_map_is_read_is_met_by_the_next_look(cluster: FakeCluster) -> None:
    """Its ends are asked for before it is read, one partition after the other: usual on a running flow."""
    topic, log = map_topic(cluster), cluster.all_topics[TOPIC].logs[0]
    written(log)
    log.decide(7, commit=True)
    (chunk,) = read(topic, 0, 6)
    assert ([each.offset for each in chunk.unread], chunk.next_offset) == ([0, 1, 3, 4], 6)
    (chunk,) = read(topic, chunk.next_offset, 9)
    assert ([each.offset for each in chunk.unread], chunk.next_offset) == ([6, 7], 9)


def test_another_log_is_told_of_the_partition_that_has_it(cluster: FakeCluster) -> None:
    """What was to be read next has expired, or the topic was made anew."""
    topic = map_topic(cluster)
    cluster.all_topics[TOPIC].logs[0].expire(3)
    with pytest.raises(MapChanged, match="partition 0"):
        read(topic, 1, 6)
    assert [chunk.next_offset for chunk in read(topic, 3, 6)] == [6]
    cluster.all_topics[TOPIC].id = UUID(int=99)
    with pytest.raises(MapChanged, match="partition 0"):
        read(topic, 3, 6)


def test_the_epoch_before_a_point_is_compared(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker tells whether the log is the one that was read (KIP-320)."""
    asked: dict[int, Interval] = {}

    class Reader(between.IntervalReader):
        def __init__(self, *arguments: object, **more: object) -> None:
            asked.update({tp.partition: interval for tp, interval in arguments[2].items()})  # pyrefly: ignore[missing-attribute]
            super().__init__(*arguments, **more)  # pyrefly: ignore[bad-argument-type]

    monkeypatch.setattr("onceover.positions.reader.IntervalReader", Reader)
    list(map_topic(cluster).read({0: Point(3, 5), 1: Point(0)}, {0: 6, 1: 0}, skip=True))
    assert asked == {0: Interval(3, 6, 5), 1: Interval(0, 0, calls.NO_EPOCH)}


def test_an_open_transaction_is_waited_for_and_told(cluster: FakeCluster) -> None:
    """Answers with nothing in them come meanwhile."""
    written(cluster.all_topics[TOPIC].logs[0])
    chunks = map_topic(cluster).read({0: Point(6)}, {0: 8}, settle_s=60.0)
    assert next(chunks) == Chunk(0, [], 6, calls.NO_EPOCH, [])
    cluster.all_topics[TOPIC].logs[0].decide(7, commit=False)
    assert next(chunks).next_offset == 8
    assert list(chunks) == []
    written(cluster.all_topics[TOPIC].logs[0])
    with pytest.raises(Retriable, match="a transaction is open"):
        read(map_topic(cluster), 6, 11)
