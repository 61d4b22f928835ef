"""How long the next transaction waits for the one before to be closed."""

from __future__ import annotations

import pytest

from onceover.kafka.produce.closing import Closing


class Target:
    """Holds a first Produce for 20 ms that comes before the markers are written, ``marks_s`` after EndTxn."""

    def __init__(self, marks_s: float, round_trip_s: float = 0.001) -> None:
        self.now_s = 50.0
        self.closing = Closing(lambda: self.now_s)
        self.marks_s, self.round_trip_s, self.held = marks_s, round_trip_s, 0

    def transactions(self, count: int) -> float:
        """Return how long each takes to begin, from the answer to EndTxn to that of the first Produce."""
        begun_s, self.held = self.now_s, 0
        for _ in range(count):
            ended_s = self.now_s - self.round_trip_s / 2
            self.closing.ended()
            self.now_s += self.closing.left_s
            asked_s = self.now_s
            while (arrives_s := self.now_s + self.round_trip_s / 2) < ended_s + self.marks_s:
                self.now_s += 0.020
                self.held += 1
            self.now_s = arrives_s + self.round_trip_s / 2
            self.closing.began(self.now_s - asked_s, self.round_trip_s)
        return (self.now_s - begun_s) / count


@pytest.mark.parametrize("marks_ms", [0.5, 2.0, 5.0, 9.0])
def test_a_transaction_begins_when_the_one_before_is_closed(marks_ms: float) -> None:
    """Not 20 ms later, and hardly later; one in a hundred at most finds out that it is too early."""
    target = Target(marks_ms / 1000)
    target.transactions(600)
    assert target.transactions(1000) < marks_ms / 1000 + 0.002
    assert target.held <= 10


def test_from_far_away_nothing_is_waited_for() -> None:
    """The markers are written while the request is on its way."""
    target = Target(0.005, round_trip_s=0.1)
    target.transactions(600)
    assert target.closing.pause_s == 0.0


def test_a_coordinator_that_takes_longer_than_it_may_costs_no_more_than_before() -> None:
    """A pause of half the hold, at most."""
    target = Target(0.1)
    target.transactions(50)
    assert target.closing.pause_s == pytest.approx(0.010)
    assert target.transactions(10) < 0.1 + 0.022
