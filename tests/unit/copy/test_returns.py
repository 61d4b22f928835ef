"""Finding records that go round in a ring, and nothing else."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence

import pytest

from onceover.copy.returns import Returns
from onceover.model import TopicPartition
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.visibility import Visible
from tests.support.raw.rawkafka import Codec, RawRecord, build_batch

TP = TopicPartition("t", 0)
_ENOUGH = 3000


class Clock:
    """Stands still while somebody looks, unless ``ticks_s`` says otherwise."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ticks_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.ticks_s
        return self.now_s


class Log:
    """The source's log as it is read: batches with growing offsets."""

    def __init__(self) -> None:
        self.records: list[RawRecord] = []

    def append(self, records: Sequence[RawRecord], codec: Codec = Codec.NONE) -> Visible:
        """Return a batch of records as it lies in the log now."""
        batch = bytearray(build_batch(records, codec=codec))
        struct.pack_into(">q", batch, 0, len(self.records))
        self.records += records
        return Visible(parse_header(batch), memoryview(batch))


def record(number: int, timestamp_ms: int | None = None) -> RawRecord:
    """Return a record unlike any other, unless time and number are the same."""
    return RawRecord(b"k", b"v%d" % number, ((b"h", None),), number if timestamp_ms is None else timestamp_ms)


def feed(
    found: Returns, clock: Clock, answers: Iterable[Sequence[Visible]], pause_s: float = 1.0
) -> tuple[int, ...]:
    """Look at answers until something is found; return what."""
    for answer in answers:
        clock.now_s += pause_s
        if offsets := found.look(TP, answer):
            return offsets
    return ()


def rounds(log: Log, size: int, rng: random.Random, *, again: bool, fresh: bool) -> Iterable[list[Visible]]:
    """Yield what a ring makes of records: all of them again and again.

    Args:
        again: batches are made anew each time.
        fresh: a new record joins them at each step.
    """
    inside = [[record(number) for number in range(at, at + 5)] for at in range(0, size, 5)]
    next_number = size
    while len(log.records) < _ENOUGH:
        if again:
            flat = [one for batch in inside for one in batch]
            inside = []
            while flat:
                cut = rng.randint(1, 9)
                inside.append(flat[:cut])
                flat = flat[cut:]
        for batch in list(inside):
            yield [log.append(batch, Codec.GZIP)]
            if fresh and rng.random() < 0.05:
                inside.append([record(next_number)])
                next_number += 1


@pytest.mark.parametrize("size", [5, 40, 200])
@pytest.mark.parametrize("again", [False, True], ids=["same batches", "new batches"])
@pytest.mark.parametrize("fresh", [False, True], ids=["closed", "growing"])
def test_ring_is_found_after_a_few_rounds(size: int, again: bool, fresh: bool) -> None:
    """Whatever copies the other way makes of the batches, and however long the way is; and it is proven."""
    clock, log = Clock(), Log()
    offsets = feed(
        Returns(clock, clock), clock, rounds(log, size, random.Random(7), again=again, fresh=fresh)
    )
    assert len(offsets) == 4
    assert list(offsets) == sorted(set(offsets))
    assert len({log.records[offset] for offset in offsets}) == 1


def test_records_without_repetition_are_left_alone() -> None:
    """In the order of their times or not."""
    clock, log, rng = Clock(), Log(), random.Random(3)
    jumbled = (
        [log.append([record(n, rng.randrange(50)) for n in range(at, at + 3)])] for at in range(0, 2000, 3)
    )
    assert feed(Returns(clock, clock), clock, jumbled) == ()


def test_two_repetitions_are_no_ring() -> None:
    """A copier that was interrupted twice, or somebody who put everything back twice."""
    clock, log = Clock(), Log()
    found = Returns(clock, clock)
    for _ in range(3):
        whole = ([log.append([record(number)])] for number in range(300))
        assert feed(found, clock, whole) == ()


def test_writer_that_repeats_itself_for_seconds_is_no_ring() -> None:
    """Retries and crash loops repeat the same records many times, but not for long."""
    clock, log = Clock(), Log()
    loop = ([log.append([record(number % 7)])] for number in range(400))
    assert feed(Returns(clock, clock), clock, loop, pause_s=0.01) == ()


def test_many_records_of_the_same_time_and_contents_are_no_ring() -> None:
    """Such as a signal without contents at the full second, read for a long time."""
    clock, log = Clock(), Log()
    same = ([log.append([record(1, timestamp_ms=number // 100)])] for number in range(1000))
    assert feed(Returns(clock, clock), clock, same) == ()


def test_record_that_is_read_again_at_its_own_offset_does_not_count() -> None:
    """A transaction was aborted, or the lane began again, and again."""
    clock, log = Clock(), Log()
    found = Returns(clock, clock)
    batches = [[log.append([record(number)])] for number in range(20)]
    for _ in range(9):
        assert feed(found, clock, batches) == ()


def unlike(number: int, time: int, changed: str | None) -> RawRecord:
    """Return a record that is the same at all times but for one thing."""
    now, one = b"%d" % time, record(number, timestamp_ms=number * 1000)
    others = {
        "key": one._replace(key=now),
        "value": one._replace(value=now),
        "headers": one._replace(headers=((b"h", now),)),
        "timestamp": one._replace(timestamp_ms=one.timestamp_ms - time),
    }
    return one if changed is None else others[changed]


@pytest.mark.parametrize("changed", [None, "key", "value", "headers", "timestamp"])
def test_one_that_differs_in_anything_is_another_record(changed: str | None) -> None:
    """Key, value, headers and time; the same without any difference is found."""
    clock, log = Clock(), Log()
    answers = ([log.append([unlike(number, time, changed) for number in range(5)])] for time in range(200))
    assert bool(feed(Returns(clock, clock), clock, answers)) is (changed is None)


def test_what_cannot_be_looked_into_is_left_to_the_copy() -> None:
    """Damage, a record that is too large, and offsets without records."""
    clock, log = Clock(), Log()
    found = Returns(clock, clock)
    header, batch = log.append([record(1), record(2)], Codec.GZIP)
    broken = bytearray(batch or b"")
    broken[70:80] = b"x" * 10
    damaged, skipped = Visible(header, memoryview(broken)), Visible(header, None)
    large = log.append([record(3)._replace(value=bytes(1 << 22))], Codec.GZIP)
    assert feed(found, clock, [[damaged], [skipped], [large], []] * 50) == ()


def test_looking_takes_a_small_share_of_the_time() -> None:
    """However the records lie: after each look there is a rest of 200 times as long."""
    clock, log = Clock(), Log()
    found = Returns(clock, clock)
    clock.ticks_s = 0.001
    began_s = clock.now_s
    found.look(TP, [log.append([record(1)])])
    looked_s, clock.ticks_s = clock.now_s - began_s, 0.0
    looked = []
    for number in range(2, 1000):
        clock.now_s += looked_s
        before = found._next_s
        found.look(TP, [log.append([record(number)])])
        looked.append(found._next_s != before)
    assert 90 <= looked.index(True) <= 210


def test_every_partition_of_a_lane_is_looked_at_in_turn() -> None:
    """Also where one look has used up the time for the rest of every answer; who is quiet holds up nobody."""
    clock = Clock()
    found = Returns(clock, clock)
    tps = [TP._replace(partition=number) for number in range(4)]
    logs = {tp: Log() for tp in tps}
    looked: list[int] = []
    for number in range(60):
        clock.now_s += 1.0
        for tp in tps[:3] if number > 1 else tps:
            clock.ticks_s, before = 0.002, found._next_s
            found.look(tp, [logs[tp].append([record(number)])])
            clock.ticks_s = 0.0
            if found._next_s != before:
                looked.append(tp.partition)
        assert found.look(tps[3], []) == ()
    turns = [looked.count(number) for number in range(3)]
    assert min(turns) >= 15
    assert max(turns) - min(turns) <= 2


def test_person_who_says_that_they_are_real_is_believed() -> None:
    """For the partition that was stopped, and only after it was."""
    clock, log = Clock(), Log()
    found = Returns(clock, clock)
    found.asked(TP)
    ring = rounds(log, 5, random.Random(7), again=False, fresh=False)
    assert feed(found, clock, ring)
    found.asked(TP)
    assert feed(found, clock, ring) == ()
    other = TP._replace(partition=1)
    again = rounds(Log(), 5, random.Random(7), again=False, fresh=False)
    seen = []
    for answer in again:
        clock.now_s += 1.0
        seen.append(found.look(other, answer))
    assert any(seen)
