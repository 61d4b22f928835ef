"""What runs beside a test ends with it, and what failed in it fails the test."""

from __future__ import annotations

import pytest
from tests.support.session.background import Background
from tests.support.session.wait import wait_until


class Counting(Background):
    """Counts its steps; fails at one of them if it is told to."""

    def __init__(self, fails_at: int = 0) -> None:
        super().__init__("counting", 0.001)
        self.steps, self._fails_at = 0, fails_at

    def step(self) -> None:
        self.steps += 1
        if self.steps == self._fails_at:
            raise LookupError("as told")


def test_it_goes_on_until_the_block_is_left() -> None:
    """And no longer."""
    with Counting() as counting:
        wait_until(lambda: counting.steps > 3, 10.0, "it counts")
    ended = counting.steps
    assert counting.ending.is_set()
    counting.end()
    assert counting.steps == ended


def test_what_failed_is_raised_where_the_block_is_left() -> None:
    """It ended at once."""
    counting = Counting(fails_at=2)
    with pytest.raises(LookupError, match="as told"), counting:
        counting._thread.join(10.0)
    assert counting.steps == 2


def test_what_was_never_started_ends_at_once() -> None:
    """A round that fails before its clients were started cleans up all the same."""
    Counting().end()
