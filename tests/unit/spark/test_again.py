"""How often in a row a copy is started again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from onceover.spark.launch import again
from onceover.spark.launch.again import RESTARTS, WELL_AFTER_S, Restarts, was_well


def test_a_few_times_in_a_row_and_slower_each_time() -> None:
    """Somebody has to hear of what dies again and again."""
    restarts = Restarts("forever")
    assert [restarts.pause_s(1.0) for _ in range(RESTARTS + 2)] == [0.0, 2.0, 8.0, None, None]


def test_a_run_that_was_well_begins_a_new_story() -> None:
    """A machine that kills something once a day is no crash."""
    restarts = Restarts("caught-up")
    assert [restarts.pause_s(WELL_AFTER_S) for _ in range(10)] == [0.0] * 10
    assert restarts.made == 10


@pytest.mark.parametrize(("until", "most"), [("10m", 3), ("forever", 0)])
def test_never_for_a_run_of_a_certain_length_or_where_nobody_wants_it(until: str, most: int) -> None:
    """The caller decides."""
    assert Restarts(until, most).pause_s(1.0) is None


def test_ten_minutes_are_well() -> None:
    """As docs/airflow.md says, of restarts and of tries."""
    assert [was_well(ran_s) for ran_s in (599.9, 600.0)] == [False, True]


def test_what_counts_is_how_long_the_last_run_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of them: who tries again behind this asks whether that one was well, and so does this."""
    lasts_s = [1.0, 700.0, 2.0, 3.0, 4.0, 5.0]
    now_s = [0.0]

    def once() -> SimpleNamespace:
        now_s[0] += lasts_s.pop(0)
        return SimpleNamespace(killed=bool(lasts_s))

    monkeypatch.setattr(again, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    restarts, waited = Restarts("forever"), list[float]()
    restarts.to_its_end(once, lambda _, pause_s: waited.append(pause_s))
    # The run that was well begins a new count, and is the first of it.
    assert waited == [0.0, 0.0, 2.0, 8.0]
    assert (lasts_s, restarts.ran_s) == ([5.0], 4.0)
