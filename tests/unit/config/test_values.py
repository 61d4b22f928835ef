"""What single values of a flow file mean beyond their form."""

from __future__ import annotations

from datetime import UTC, datetime

from onceover.config import values


def test_next_time_of_a_schedule() -> None:
    """As Airflow reads it; none for one that waits for no time."""
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert [values.next_time(each, now) for each in (None, "@once", "@continuous")] == [None] * 3
    assert values.next_time("@quarterly", now) == datetime(2026, 4, 1, tzinfo=UTC)
    assert values.next_time("@weekly", now) == datetime(2026, 2, 1, tzinfo=UTC)
    assert values.next_time("0 3 * * *", now) == datetime(2026, 2, 1, 3, tzinfo=UTC)
