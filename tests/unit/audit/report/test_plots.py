"""The plots of a report: any time that a record may have is drawn, and told as people tell it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from onceover.audit.report.plots import ages_svg, commits_svg, records_svg

NOW_MS = 1_795_000_000_000
SECOND_MS, DAY_MS = 1_000, 86_400_000


def over_time(begin_ms: int, width_ms: int) -> dict[str, Any]:
    counts = [float(bar % 7) for bar in range(90)]
    return {"begin_ms": begin_ms, "width_ms": width_ms, "source": counts, "target": counts, "records": counts}


def told(svg: str) -> list[str]:
    """Return the texts of a plot, which are drawn as shapes and named in comments."""
    return re.findall(r"<!-- (.*?) -->", svg)


@pytest.mark.parametrize("width_ms", [1, SECOND_MS, DAY_MS, 400 * DAY_MS])
def test_times_of_milliseconds_to_centuries_are_told(width_ms: int) -> None:
    """A few times for each plot, and which year it is."""
    begin_ms = NOW_MS - 30 * width_ms
    for svg in (
        records_svg(over_time(begin_ms, width_ms)),
        commits_svg(over_time(begin_ms, width_ms)),
        ages_svg([(begin_ms + bar * width_ms, 5 + bar) for bar in range(90)]),
    ):
        (times,) = re.findall(r'<g id="matplotlib.axis_1">(.*?)<g id="matplotlib.axis_2">', svg, re.DOTALL)
        labels = told(times)
        assert 3 <= len(labels) <= 10
        assert [label for label in labels if re.search(r"\b(19|20)\d\d\b", label)]


@pytest.mark.parametrize("age_ms", [0, 5, 3_000, 40_000_000])
def test_an_age_that_is_always_the_same_has_labels_to_read_it_by(age_ms: int) -> None:
    """At least a power of ten below and one above."""
    svg = ages_svg([(NOW_MS + bar * SECOND_MS, age_ms) for bar in range(9)])
    (_, _, ages) = svg.partition('<g id="matplotlib.axis_2">')
    assert len([label for label in told(ages) if re.match(r"[0-9.]+ (ms|s|min|h|d)", label)]) >= 2


def test_a_time_that_no_calendar_has_is_drawn_as_a_number() -> None:
    """Such as microseconds, where milliseconds are meant: the audit needs its report all the same."""
    svg = records_svg(over_time(NOW_MS * 1_000, SECOND_MS))
    assert "ms since 1970" in told(svg)
    assert "ms since 1970" not in told(records_svg(over_time(NOW_MS, SECOND_MS)))
