"""What single values of a flow file mean beyond their form."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest
from croniter import croniter

from onceover.config import values
from onceover.config.faults import Invalid


def test_next_time_of_a_schedule() -> None:
    """As Airflow reads it; none for one that waits for no time."""
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert [values.next_time(each, "nightly", now) for each in (None, "@once", "@continuous")] == [None] * 3
    assert values.next_time("0 3 * * *", "nightly", now) == datetime(2026, 2, 1, 3, tzinfo=UTC)
    quarterly, weekly, daily = (
        values.next_time(each, "nightly", now) for each in ("@quarterly", "@weekly", "@daily")
    )
    assert quarterly is not None and weekly is not None and daily is not None
    assert (quarterly.date(), weekly.date()) == (date(2026, 4, 1), date(2026, 2, 1))
    assert quarterly.time() == weekly.time() == daily.time()


def test_what_names_no_time_is_spread_by_the_flows_name() -> None:
    """The same for a flow each time; of a hundred flows no ten begin within the same half hour."""
    times = [values.spread("@daily", f"flow-{number}") for number in range(100)]
    assert times == [values.spread("@daily", f"flow-{number}") for number in range(100)]
    halves = Counter((int(hour), int(minute) // 30) for minute, hour, *_ in map(str.split, times))
    assert max(halves.values()) < 10
    assert len(halves) > 30
    for kept in ("@once", "@continuous", "0 3 * * *", "*/5 * * * *"):
        assert values.spread(kept, "nightly") == kept


@pytest.mark.parametrize("preset", ["@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"])
def test_a_spread_schedule_comes_as_often_as_it_says(preset: str) -> None:
    """Whatever the name: a year has as many of it."""
    often = {"@hourly": 8760, "@daily": 365, "@weekly": 52, "@monthly": 12, "@quarterly": 4, "@yearly": 1}
    cron = values.schedule(values.spread(preset, "orders"))
    begin = datetime(2026, 1, 1, 12, tzinfo=UTC)
    times = croniter(cron, begin)
    count = sum(1 for _ in iter(lambda: times.get_next(datetime) < begin + timedelta(days=365), False))
    assert count in (often[preset], often[preset] + 1)


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


@pytest.mark.parametrize(
    "entry", ["[a-z&&[^x]]+", "[[:alpha:]]+", "[a-z[0-9]]+", "x[a||b]", r"a\\[a~~b]", "[a--b]", "[]&&[a]"]
)
def test_a_set_within_a_set_is_refused(entry: str) -> None:
    """Python matches something else by it than Java does, where many a filter comes from."""
    with pytest.raises(Invalid, match="entry 2 has a set within a set"):
        values.patterns(["a", entry])


@pytest.mark.parametrize(
    "entry", [r"[\[(]", "[a-z]{1,2}&&", r"\[[a]", "[]a]", "[^]a-]", "a|b||c", r"[&\&]", "(?i)[A-Z]--[a]"]
)
@pytest.mark.filterwarnings("error")
def test_what_is_no_set_within_a_set_is_a_filter(entry: str) -> None:
    """The near misses: brackets and operators beside sets, or with a backslash."""
    assert values.patterns([entry]) == (entry,)
