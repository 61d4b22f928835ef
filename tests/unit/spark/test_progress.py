"""What a running copy says of itself: once a minute, and of outages only when they last."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from onceover.errors import Retriable
from onceover.positions.rate import Rate
from onceover.spark.outage import Outage
from onceover.spark.progresslog import progress_line

AWAY = Retriable("west answers error 15 to find coordinator")


def status(*stopped: tuple[str, int | None]) -> dict[str, Any]:
    """Return what the line is made of."""
    partitions = [{"topic": t, "partition": p, "stop": {"code": "X", "message": "m"}} for t, p in stopped]
    partitions.append({"topic": "fine", "partition": 0, "stop": None})
    return {"flow": "f", "lag_offsets": 12345, "oldest_missing_s": 0.42, "partitions": partitions}


def test_line_has_rate_lag_and_transactions() -> None:
    """Per second, whatever the span was."""
    line = progress_line(Rate(60.0, 240_000, 126_000_000, 118), status())
    assert line == (
        "f: 4,000 records/s, 2.1 MB/s, 118 transactions in 60 s; lag 12,345 offsets, oldest missing 0.4 s"
    )


def test_line_names_some_of_what_is_stopped() -> None:
    """And where all of them are."""
    line = progress_line(Rate(60.0), status(("a", 0), ("b", None), ("c", 1), ("d", 2)))
    assert line.endswith("; 4 stopped: a:0, b, c:1 and 1 more, see onceover status f")


@pytest.fixture
def clock() -> list[float]:
    """Monotonic seconds, in the one element."""
    return [100.0]


@pytest.fixture
def outage(clock: list[float], caplog: pytest.LogCaptureFixture) -> Outage:
    """One that may last two minutes."""
    caplog.set_level(logging.INFO)
    return Outage(120.0, lambda: clock[0])


def test_start_of_a_new_cluster_is_no_warning(
    outage: Outage, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """Seconds of "no coordinator yet", and then it is there."""
    for clock[0] in (100.0, 101.0, 104.0):
        outage.met(AWAY)
    outage.over()
    assert caplog.records == []


def test_outage_that_lasts_is_told_now_and_then_and_so_is_its_end(
    outage: Outage, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """Not at every try."""
    for second in range(62):
        clock[0] = 100.0 + second
        outage.met(AWAY)
    outage.over()
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "for 5 s: west answers" in caplog.text
    assert "after 61 s" in caplog.text


def test_outage_that_lasts_too_long_ends_the_run(outage: Outage, clock: list[float]) -> None:
    """In its own words."""
    outage.met(AWAY)
    clock[0] += 121.0
    with pytest.raises(Retriable, match="error 15"):
        outage.met(AWAY)


def test_outages_are_not_added_up(outage: Outage, clock: list[float]) -> None:
    """A success between them begins anew."""
    outage.met(AWAY)
    clock[0] += 119.0
    outage.over()
    outage.met(AWAY)
    clock[0] += 119.0
    outage.met(AWAY)
