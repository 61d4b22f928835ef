"""Where an audit begins, as people say it."""

from __future__ import annotations

import pytest

from onceover.audit.ranges.since import since_ms
from onceover.errors import UsageError

_NOW_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("watermark", None),
        ("start", None),
        ("1970-01-01", 0),
        ("2026-01-31 12:00", _NOW_MS),
        ("2026-01-31T13:00:00+01:00", _NOW_MS),
    ],
)
def test_beginnings_are_understood(text: str, at_ms: int | None) -> None:
    """A time without a zone is UTC, and this very moment is one."""
    assert since_ms(text, _NOW_MS) == at_ms


@pytest.mark.parametrize("text", ["2026-01-31T12:00:01Z", "2099-01-01", "9999-12-31T23:59:59-12:00"])
def test_time_that_is_still_to_come_is_refused(text: str) -> None:
    """Nothing can be compared, so a PASS would say nothing."""
    with pytest.raises(UsageError, match=r"is in the future") as told:
        since_ms(text, _NOW_MS)
    assert told.value.expected == "watermark, start, or a time such as 2026-01-31T12:00:00Z"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-99-99", "10000-01-01", "1969-12-31"])
def test_what_is_no_time_that_kafka_knows_is_refused(text: str) -> None:
    """In the same words, whatever it is."""
    with pytest.raises(UsageError, match=r"^--since"):
        since_ms(text, _NOW_MS)
