"""Ages as people say them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.ages import NoMoment, age_text, exact_text, moment_ms, moment_text


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


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_time_that_a_record_may_have_is_told(at_ms: int) -> None:
    """A mirrored topic, or a restored one, may have microseconds where milliseconds belong."""
    text = exact_text(at_ms)
    assert text == f"no time ({at_ms})" or text.endswith(f".{at_ms % 1000:03} UTC")


def test_times_close_to_each_other_are_told_apart() -> None:
    assert exact_text(1_763_877_600_003) == "2025-11-23 06:00:00.003 UTC"
    assert exact_text(-1) == "1969-12-31 23:59:59.999 UTC"


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01T01:00:00.0019+01:00", 1_767_225_600_001),
        ("1970-01-01T00:00:00+00:00", 0),
        ("9999-12-31T23:59:59.999-12:00", 253_402_343_999_999),
    ],
)
def test_a_time_that_is_typed_is_one_instant(text: str, at_ms: int) -> None:
    assert moment_ms(text) == at_ms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no ISO time"),
        ("2026-99-99", "is no ISO time"),
        ("10000-01-01T00:00:00Z", "is no ISO time"),
        ("2026-01-01", "names no zone"),
        ("1969-12-31T23:59:59Z", "is before 1970"),
        ("0001-01-01T00:00:00+23:59", "is before 1970"),
    ],
)
def test_what_is_no_time_that_kafka_knows_is_none(text: str, why: str) -> None:
    with pytest.raises(NoMoment, match=why):
        moment_ms(text)
