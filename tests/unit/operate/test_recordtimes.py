"""When the oldest missing record was written, and the newest commit: as far as brokers tell."""

from __future__ import annotations

import struct

import crc32c
import pytest

from onceover.errors import Retriable
from onceover.kafka import calls
from onceover.kafka.logs.between import Interval
from onceover.model import TopicPartition
from onceover.operate import recordtimes
from onceover.operate.recordtimes import last_commit_ms, oldest_timestamps
from onceover.state import names
from onceover.wire.batches.batch import DELETE_HORIZON, LOG_APPEND_TIME
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content
from tests.unit.kafka.logs.test_between import CrowdedOut, OneByOne

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster("west")
    made.make_topic("orders", 2)
    return made


def written(log: FakeLog, *times_ms: int, producer: int = -1) -> None:
    """Append a batch for each time."""
    for time_ms in times_ms:
        log.append([Content(b"k", b"v", (), time_ms)], producer)


def oldest(
    cluster: FakeCluster, intervals: dict[TopicPartition, Interval], isolation: int = calls.READ_COMMITTED
) -> dict[TopicPartition, int | None]:
    return oldest_timestamps(cluster, cluster.topics(["orders"]), intervals, isolation)


def test_the_first_record_of_each_tells(cluster: FakeCluster) -> None:
    """Not what was aborted, not what lies before; open ones for those alone who want them."""
    first, other = cluster.all_topics["orders"].logs
    written(first, 1)
    written(first, 2, producer=7)
    first.decide(7, commit=False)
    written(first, 3, 4)
    cluster.all_topics["orders"].logs[0] = first = OneByOne(**vars(first))
    written(other, 5, producer=7)
    assert oldest(cluster, {A: Interval(1, 5)}) == {A: 3}
    # Read, and there is none, is another thing than not known.
    assert oldest(cluster, {A: Interval(1, 3)}) == {A: None}
    intervals = {A: Interval(1, 5), B: Interval(0, 1)}
    assert oldest(cluster, intervals, calls.READ_UNCOMMITTED) == {A: 2, B: 5}


def test_who_gets_nothing_beside_others_is_asked_again(cluster: FakeCluster) -> None:
    """A broker fills its answer with one partition, however many are behind."""
    cluster.all_topics["orders"].logs[1] = CrowdedOut(times=1)
    for log in cluster.all_topics["orders"].logs:
        written(log, 6)
    assert oldest(cluster, {A: Interval(0, 1), B: Interval(0, 1)}) == {A: 6, B: 6}


def test_nobody_waits_for_what_one_partition_does_not_answer(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what has expired nor what does not come keeps the others from being told; a broker does."""
    monkeypatch.setattr(recordtimes, "_LOOK_S", 0.05)
    first, other = cluster.all_topics["orders"].logs
    written(first, 1, 2)
    written(other, 3)
    first.expire(1)
    assert oldest(cluster, {A: Interval(0, 2), B: Interval(0, 1)}) == {B: 3}
    assert oldest(cluster, {A: Interval(2, 9), B: Interval(0, 1)}) == {B: 3}
    cluster.down = {0}
    with pytest.raises(Retriable):
        oldest(cluster, {B: Interval(0, 1)})


@pytest.mark.parametrize("bit", [LOG_APPEND_TIME, DELETE_HORIZON])
def test_a_header_that_holds_another_time_is_not_taken_for_a_records(cluster: FakeCluster, bit: int) -> None:
    """The producer's clock, which no reader sees; or when tombstones may go, which is tomorrow."""
    log = cluster.all_topics["orders"].logs[0]
    written(log, 5000)
    raw = bytearray(log.batches[0].encode())
    struct.pack_into(">h", raw, 21, bit)
    struct.pack_into(">q", raw, 27, 99_000)
    struct.pack_into(">I", raw, 17, crc32c.crc32c(bytes(raw[21:])))
    log.batches[0].raw = bytes(raw)
    assert oldest(cluster, {A: Interval(0, 1)}) == {A: 5000}


def merged(log: FakeLog, *times_ms: int, producer: int = 9) -> None:
    """Append what upkeep does: merged records, then tombstones for their parts, with old times."""
    for value in (b"v", None):
        for time_ms in times_ms:
            log.append([Content(b"k", value, (), time_ms)], producer)
    log.decide(producer, commit=True)


def test_what_upkeep_merges_and_what_was_aborted_hides_no_commit(cluster: FakeCluster) -> None:
    """It has old times and comes last; and what fails again and again has not always failed."""
    logs = cluster.make_topic(names.map_topic("f"), 2).logs
    written(logs[0], 10_000, producer=7)
    logs[0].decide(7, commit=True)
    for _ in range(30):
        written(logs[0], 20_000, producer=7)
        logs[0].decide(7, commit=False)
    assert last_commit_ms(cluster, "f") == 10_000
    merged(logs[0], *[1000] * 60)
    assert last_commit_ms(cluster, "f") == 10_000
    # What is merged may come in another answer than what tells of it.
    whole = logs[0]
    logs[0] = OneByOne(**vars(whole))
    merged(logs[0], *[1000] * 30, producer=11)
    assert last_commit_ms(cluster, "f") == 10_000
    # Where nothing else is left, what was merged is what is known.
    merged(logs[1], 30_000)
    assert last_commit_ms(cluster, "f") == 10_000
    logs[0].expire(logs[0].end)
    assert last_commit_ms(cluster, "f") == 30_000


def test_the_newest_record_of_the_map_tells_of_the_last_commit(cluster: FakeCluster) -> None:
    """Of all its partitions; without a map, or with an empty one, there is none."""
    assert last_commit_ms(cluster, "f") is None
    logs = cluster.make_topic(names.map_topic("f"), 3).logs
    assert last_commit_ms(cluster, "f") is None
    for number, log in enumerate(logs[:2]):
        for _ in range(40):
            written(log, 100 + number, producer=7)
            log.decide(7, commit=True)
    written(logs[1], 999, producer=7)
    assert last_commit_ms(cluster, "f") == 101
