"""Ages as people say them."""

from __future__ import annotations

import pytest

from onceover.ages import age_text, moment_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3.0, "0.0 s"),
        (0.0, "0.0 s"),
        (1.26, "1.3 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (252, "4 min 12 s"),
        (3_599.9, "1 h"),
        (7_260, "2 h 1 min"),
        (86_400, "1 d"),
        (183_600, "2 d 3 h"),
        (434_697_709.4, "13 y 286 d"),
    ],
)
def test_age_is_told_in_at_most_two_units(seconds: float, text: str) -> None:
    """Never a number of seconds that nobody can picture, never `60 s` beside `1 min`."""
    assert age_text(seconds) == text


def test_a_time_is_told_in_utc_and_what_is_none_is_no_error() -> None:
    """Whoever may write to a topic may date what they write."""
    assert moment_text(1_767_225_600_000) == "2026-01-01 00:00:00 UTC"
    assert moment_text(1_767_225_600_000, "%H:%M") == "00:00"
    for none in (10**17, -(10**17), float("inf"), float("nan")):
        assert moment_text(none) == f"no time ({none})"
