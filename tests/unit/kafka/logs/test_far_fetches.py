"""Several requests under way to a distant broker: each record is taken once, and nobody waits for nobody."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceover.backoff import Patience
from onceover.kafka import calls
from onceover.kafka.logs import fetcher as module
from onceover.kafka.logs.fetcher import FAR_WAYS, Fetcher, Position
from onceover.model import TopicPartition
from tests.unit.kafka.logs.fetchwire import answer, partition_answer, request_in

MOST = 12
TOPIC = UUID(int=1)


class Clock:
    """Goes on while an answer is waited for."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Logs:
    """A broker that answers in order, from logs of so many offsets, each of a byte.

    Attributes:
        ends: of each partition's log; ``told`` up to where it says that there is something.
        largest: partitions whose batches are of so many offsets: the first of an answer comes whole.
        asked: the partitions of each request under way, with the offsets asked for.
    """

    alias = "east"
    client_id = "onceover"
    patience = Patience()
    owed_s = 40.0

    def __init__(self, ends: dict[int, int], largest: dict[int, int] | None = None) -> None:
        self.ends = ends
        self.largest = largest or {}
        self.usable = True
        self.opened = 0
        self.allowed_s = 0.0
        self.sent: list[set[int]] = []
        self.told = dict(ends)
        self.asked: deque[dict[int, int]] = deque()
        self.most_bytes: deque[int] = deque()
        self.throttle_ms = 0
        self._decoders: deque[Callable[[memoryview], Any]] = deque()

    def open(self, _node: int) -> Logs:
        assert not self.asked
        self.opened += 1
        self.usable = True
        return self

    @property
    def in_flight(self) -> int:
        return len(self.asked)

    def next_correlation_id(self) -> int:
        return 1

    def send_frame(
        self,
        buffers: list[bytes],
        _id: int,
        decoder: Callable[[memoryview], Any],
        *,
        held_s: float,
        max_answer_bytes: int,
    ) -> None:
        assert self.usable
        request = request_in(buffers)
        partitions = [one for topic in request.topics for one in topic.partitions]
        self.asked.append({one.partition: one.fetch_offset for one in partitions})
        self.sent.append(set(self.asked[-1]))
        self.most_bytes.append(request.max_bytes)
        self._decoders.append(decoder)

    def receive(self) -> Any:
        asked, left = self.asked.popleft(), self.most_bytes.popleft()
        partitions: list[Any] = []
        for number, offset in asked.items():
            size = max(0, min(left, self.ends[number] - offset))
            whole = self.largest.get(number, 0)
            if size and whole > size:
                # Only the first that has anything gives more than is left.
                size = whole if not any(len(one.records) for one in partitions) else 0
            left = max(0, left - size)
            partitions.append(partition_answer(number, bytes(size), self.told[number]))
        return self._decoders.popleft()(answer([(TOPIC, partitions)], self.throttle_ms))

    def trim(self, _bytes: int) -> None:
        """Nothing is kept."""

    def expire(self) -> None:
        """Nothing is owed."""

    def allow(self, seconds: float) -> None:
        """So much longer is waited for what is under way."""
        self.allowed_s += seconds

    def close(self) -> None:
        self.asked.clear()


class Reading:
    """Who reads these logs, and checks that what comes follows what was there."""

    def __init__(self, logs: Logs, ways: int = FAR_WAYS) -> None:
        self.logs = logs
        self.fetcher = Fetcher(
            logs,  # pyrefly: ignore[bad-argument-type]
            isolation=calls.READ_COMMITTED,
            max_bytes=MOST,
            partition_max_bytes=1,
            ways=ways,
        )
        # What of the requests under way is for nobody any more.
        self.dropped: list[tuple[dict[int, int], int]] = []
        for number in logs.ends:
            self.fetcher.assign(partition(number), Position(TOPIC, 0, 1, 0))

    def drop(self, number: int) -> None:
        """Note that a partition is read from elsewhere: it may be asked for beside what is under way."""
        self.dropped += [(asked, number) for asked in self.logs.asked if number in asked]

    def ask(self, max_bytes: int | None = None) -> None:
        """Ask; nobody is asked for twice at a time, and each answer is bounded."""
        self.fetcher.request(max_wait_ms=1, min_bytes=1, max_bytes=max_bytes)
        everybody = [
            number
            for asked in self.logs.asked
            for number in asked
            if not any(asked is one and number == which for one, which in self.dropped)
        ]
        assert len(everybody) == len(set(everybody))
        assert self.logs.in_flight <= FAR_WAYS
        assert all(size <= MOST for size in self.logs.most_bytes)

    def take(self) -> set[int]:
        """Take one answer; return whose it is. What comes begins where its partition is read on."""
        asked = dict(self.logs.asked[0]) if self.logs.asked else {}
        found = self.fetcher.poll(0.0)
        for tp, fetched in found:
            position = self.fetcher.positions[tp]
            assert asked[tp.partition] == position.offset
            position.offset += len(fetched.records)
        return {tp.partition for tp, _ in found}

    @property
    def offsets(self) -> dict[int, int]:
        return {tp.partition: position.offset for tp, position in self.fetcher.positions.items()}


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


@contextmanager
def waiting(seconds: float) -> Iterator[None]:
    """Let each answer be waited for so long."""
    clock = Clock()

    def wait(connections: list[Logs], _timeout_s: float) -> list[Logs]:
        clock.now_s += seconds
        return [one for one in connections if one.in_flight]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        patch.setattr(module, "wait_readable", wait)
        yield


def far(ends: dict[int, int], largest: dict[int, int] | None = None) -> Reading:
    """Return who has waited for a few answers already, though there was more to read."""
    reading = Reading(Logs(ends, largest))
    for _ in range(4):
        reading.ask()
        assert reading.logs.in_flight == 1
        reading.take()
    return reading


def test_a_distant_broker_has_a_request_for_each_backlog_under_way() -> None:
    with waiting(0.1):
        reading = far(dict.fromkeys(range(3), 1000))
        reading.ask()
        assert [set(asked) for asked in reading.logs.asked] == [{1}, {2}, {0}]
        assert reading.take() == {1}
        reading.ask()
        assert [set(asked) for asked in reading.logs.asked] == [{2}, {0}, {1}]


def test_one_next_door_has_one_request() -> None:
    with waiting(0.001):
        reading = far(dict.fromkeys(range(3), 1000))
        reading.ask()
        assert [set(asked) for asked in reading.logs.asked] == [{0, 1, 2}]


def test_those_who_read_little_have_one_request_as_far_away_as_the_broker_is() -> None:
    with waiting(0.1):
        reading = Reading(Logs(dict.fromkeys(range(3), 1000)), ways=1)
        for _ in range(4):
            reading.ask()
            assert reading.logs.in_flight == 1
            reading.take()


def test_who_has_nothing_comes_along_with_a_backlog() -> None:
    """A request of its own would be kept by the broker until something comes, and the others behind it."""
    with waiting(0.1):
        reading = far({0: 1000, 1: 1000, 2: 0, 3: 0})
        reading.ask()
        assert [set(asked) for asked in reading.logs.asked] == [{0, 2, 3}, {1}]
        reading.take()
        reading.ask()
        assert [set(asked) for asked in reading.logs.asked] == [{1}, {0, 2, 3}]


def test_with_all_of_it_read_one_request_waits_for_everybody() -> None:
    with waiting(0.1):
        reading = far({0: 40, 1: 40})
        while reading.offsets != {0: 40, 1: 40}:
            reading.ask()
            reading.take()
        while reading.logs.in_flight:
            reading.take()
        reading.ask()
        assert [set(asked) for asked in reading.logs.asked] == [{0, 1}]


def test_what_is_only_told_to_be_there_is_not_waited_for() -> None:
    """Compaction may have left nothing up to the end that a broker tells."""
    with waiting(0.1):
        reading = far({0: 5000, 1: 5000, 2: 10})
        reading.logs.told[2] = 500
        for _ in range(200):
            reading.ask()
            reading.take()
        assert reading.offsets[2] == 10
        assert sum(asked <= {2} for asked in reading.logs.sent) <= 1
        reading.logs.ends[2] = reading.logs.told[2] = 510
        for _ in range(200):
            reading.ask()
            reading.take()
        assert reading.offsets[2] == 510


def test_a_limit_and_a_quota_of_the_source_leave_one_request() -> None:
    with waiting(0.1):
        reading = far(dict.fromkeys(range(3), 1000))
        reading.ask(max_bytes=6)
        assert [set(asked) for asked in reading.logs.asked] == [{0, 1, 2}]
        reading.logs.throttle_ms = 60_000
        reading.take()
        reading.ask()
        assert [set(asked) for asked in reading.logs.asked] == [{0, 1, 2}]


def test_who_waits_once_in_a_while_for_one_next_door_has_one_request() -> None:
    """A busy machine lets anybody wait for a moment, or for two of them in a row."""
    reading = Reading(Logs(dict.fromkeys(range(3), 1000)))
    for seconds in (0.001, 0.1, 0.1, 0.001, 0.1, 0.1, 0.001, 0.1):
        with waiting(seconds):
            reading.ask()
            assert reading.logs.in_flight == 1
            reading.take()
    reading.ask()
    assert reading.logs.in_flight == 1


def test_a_large_batch_comes_first_some_time_beside_one_that_always_has_a_little() -> None:
    """A broker gives what is above its share only to the first that has anything."""
    with waiting(0.1):
        reading = far({0: 3000, 1: 3000, 2: 3000, 3: 0}, largest={2: 30})
        for _ in range(60):
            reading.logs.ends[3] += 1
            reading.logs.told[3] += 1
            reading.ask()
            reading.take()
        assert reading.offsets[2] >= 150


def test_a_session_that_ends_is_renewed_though_there_is_always_more() -> None:
    """Nothing more is sent on its connection; what is under way there is taken first."""
    with waiting(0.1):
        reading = far(dict.fromkeys(range(3), 5000))
        for _ in range(3):
            reading.ask()
            assert reading.logs.in_flight == 3
            reading.logs.usable = False
            for _ in range(4):
                reading.ask()
                reading.take()
        assert reading.logs.opened == 4


def test_what_is_under_way_is_waited_for_longer_by_a_brokers_quota() -> None:
    with waiting(0.1):
        reading = far(dict.fromkeys(range(3), 1000))
        reading.ask()
        reading.logs.throttle_ms = 60_000
        reading.take()
        assert reading.logs.allowed_s == 60.0


STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "take", "take", "rewind", "remove", "grow"]), st.integers(0, 3)),
    max_size=60,
)


@given(STEPS)
# What was under way for a partition that is read again is dropped, and not waited for.
@example([*[("ask", 0), ("take", 0)] * 4, ("ask", 0), ("rewind", 0)])
def test_everything_is_read_once_and_in_order_whatever_happens(
    steps: list[tuple[str, int]],
) -> None:
    """``Reading.take`` tells an answer that does not follow what was read before it."""
    with waiting(0.1):
        reading = Reading(Logs({0: 60, 1: 90, 2: 0, 3: 25}))
        for what, number in steps:
            tp, position = partition(number), reading.fetcher.positions[partition(number)]
            if what == "ask":
                reading.ask()
            elif what == "take":
                reading.take()
            elif what == "rewind":
                reading.drop(number)
                reading.fetcher.rewind(tp, position.offset // 2, 0)
            elif what == "remove":
                reading.drop(number)
                reading.fetcher.remove(tp)
                reading.fetcher.assign(tp, Position(TOPIC, position.offset // 2, 1, 0))
            else:
                reading.logs.ends[number] += 30
                reading.logs.told[number] = reading.logs.ends[number]
        for _ in range(400):
            reading.ask()
            reading.take()
        assert reading.offsets == reading.logs.ends
