"""What single values of a flow file mean beyond their form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from onceover.config import values


def test_next_time_of_a_schedule() -> None:
    """As Airflow reads it; none for one that waits for no time."""
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert [values.next_time(each, now) for each in (None, "@once", "@continuous")] == [None] * 3
    assert values.next_time("@quarterly", now) == datetime(2026, 4, 1, tzinfo=UTC)
    assert values.next_time("@weekly", now) == datetime(2026, 2, 1, tzinfo=UTC)
    assert values.next_time("0 3 * * *", now) == datetime(2026, 2, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "hours"),
    [
        ("@hourly", 1),
        ("0 3 * * *", 24),
        ("*/5 8-18 * * 1-5", 61 + 5 / 60),
        ("* * * * 1-5", 48 + 1 / 60),
        ("0 0 1 * *", 31 * 24),
        ("0 0 29 2 *", 1461 * 24),
        ("0 * 1-20 * *", 11 * 24 + 1),
        ("0 0 31 * *", 61 * 24),
        ("@once", None),
        ("@continuous", None),
        (None, None),
    ],
)
def test_longest_wait_of_a_schedule(schedule: str | None, hours: float | None) -> None:
    """Nights and weekends are in it, and months of every length."""
    waits = values.longest_wait(schedule)
    assert waits == (None if hours is None else timedelta(hours=hours))
