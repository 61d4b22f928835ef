"""How much is on its way to a target that is near, far, slow, or further away than a moment ago."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.kafka.produce.inflight import FEW_REQUESTS, Departure, InFlight

_MB = 1 << 20


class Line:
    """A target that answers one request after the other: so fast, so far away.

    Time passes where somebody waits, and while a request is made (``makes_s``): a second takes none.
    """

    def __init__(
        self, most_bytes: int, round_trip_s: float, bytes_per_s: float, makes_s: float = 0.0
    ) -> None:
        self.now_s = 100.0
        self.in_flight, self.room_bytes = InFlight(lambda: self.now_s), most_bytes
        self.round_trip_s, self.bytes_per_s, self.makes_s = round_trip_s, bytes_per_s, makes_s
        self.most_requests = self.most_bytes = self.done_bytes = 0
        self._free_s = 0.0
        self._answers: deque[tuple[float, Departure]] = deque()

    def send(self, size_bytes: int) -> None:
        """Send a request as soon as there is room, after all answers that have come."""
        self.now_s += self.makes_s
        while self._answers and self._answers[0][0] <= self.now_s:
            self.hear()
        while self.in_flight.full(self.room_bytes):
            self.hear()
        departure = self.in_flight.sent(size_bytes)
        self._free_s = max(self._free_s, self.now_s + self.round_trip_s / 2) + size_bytes / self.bytes_per_s
        self._answers.append((self._free_s + self.round_trip_s / 2, departure))
        self.most_requests = max(self.most_requests, len(self._answers))
        self.most_bytes = max(self.most_bytes, sum(d.size_bytes for _, d in self._answers))

    def hear(self) -> None:
        """Wait for the oldest answer."""
        at_s, departure = self._answers.popleft()
        self.now_s = max(self.now_s, at_s)
        self.done_bytes += departure.size_bytes
        self.in_flight.answered(departure)

    def drain(self) -> None:
        while self._answers:
            self.hear()

    def rate(self, size_bytes: int, transactions: int, requests: int) -> float:
        """Copy transactions, the first request of each awaited, and return bytes per second."""
        began_s, began_bytes = self.now_s, self.done_bytes
        for _ in range(transactions):
            self.send(size_bytes)
            self.drain()
            for _ in range(requests):
                self.send(size_bytes)
            self.drain()
        return (self.done_bytes - began_bytes) / (self.now_s - began_s)


@pytest.mark.parametrize(
    ("size_bytes", "bytes_per_s", "makes_s"),
    [(200_000, 200e6, 0.0), (48_000, 1e9, 0.000_5), (20_000, 1e9, 0.000_2), (48_000, 100e6, 0.000_1)],
)
def test_near_a_few_requests_are_enough(size_bytes: int, bytes_per_s: float, makes_s: float) -> None:
    """More would only hold memory, and hear too late that a quota is exceeded. Also where it is us who are
    slow: our own pauses are no distance."""
    line = Line(16 * _MB, 0.001, bytes_per_s, makes_s)
    line.rate(size_bytes, 10, 200)
    assert line.most_requests <= 3 * FEW_REQUESTS


def test_near_a_few_are_enough_where_nothing_is_awaited_for_long() -> None:
    """At least once: what waits behind others in the broker tells of them, not of the distance."""
    line = Line(16 * _MB, 0.001, 100e6)
    line.rate(200_000, 1, 30_000)
    assert line.now_s > 150.0 and line.most_requests <= 3 * FEW_REQUESTS


@pytest.mark.parametrize("round_trip_ms", [20, 100, 250])
@pytest.mark.parametrize("size_bytes", [48_000, 1_000_000])
def test_far_away_the_line_is_filled(round_trip_ms: int, size_bytes: int) -> None:
    """Whatever the size of a request: what it takes is found out within the first transactions."""
    line = Line(16 * _MB, round_trip_ms / 1000, 50e6)
    line.rate(size_bytes, 2, 100_000_000 // size_bytes)
    assert line.rate(size_bytes, 5, 200_000_000 // size_bytes) > 0.8 * 50e6


def test_memory_is_the_limit() -> None:
    """A line that could take a gigabyte a second is given what may be held."""
    line = Line(4 * _MB, 0.25, 1e9)
    line.rate(100_000, 5, 500)
    assert 3 * _MB <= line.most_bytes <= 4 * _MB + 100_000


def test_a_way_that_becomes_longer_is_noticed() -> None:
    """The shortest answer of an hour ago says nothing about now."""
    line = Line(16 * _MB, 0.001, 50e6)
    line.rate(100_000, 20, 500)
    line.round_trip_s = 0.1
    line.rate(100_000, 30, 500)
    assert line.rate(100_000, 3, 2_000) > 0.7 * 50e6


def test_a_pause_of_ours_makes_the_target_no_slower() -> None:
    """Nothing was asked of it meanwhile."""
    line = Line(16 * _MB, 0.1, 50e6)
    line.rate(100_000, 3, 1_000)
    before = line.in_flight.size_bytes
    line.now_s += 15.0
    line.rate(100_000, 1, 200)
    assert line.in_flight.size_bytes >= before // 2


@given(
    st.lists(st.one_of(st.integers(0, 3 * _MB), st.none()), max_size=200),
    st.integers(0, 8 * _MB),
    st.floats(0, 1),
    st.floats(1e3, 1e10),
)
def test_never_more_than_memory_allows_or_a_few_requests(
    steps: list[int | None], most_bytes: int, round_trip_s: float, bytes_per_s: float
) -> None:
    """However answers come: before each request there is room for one of a few, or for bytes."""
    line = Line(most_bytes, round_trip_s, bytes_per_s)
    for size_bytes in steps:
        if size_bytes is not None:
            line.send(size_bytes)
            unanswered = sorted(d.size_bytes for _, d in line._answers)
            assert len(unanswered) <= FEW_REQUESTS or sum(unanswered) - size_bytes < most_bytes
        elif line._answers:
            line.hear()
    line.drain()
    assert not line.in_flight.requests and not line.in_flight.full(most_bytes)
