"""Phases of a start, as the log tells them."""

from __future__ import annotations

from datetime import datetime

import pytest

from onceover_lab.bench.start import phases

LOG = """\
WARN: something of Java's
2026-01-31 12:00:05,250 INFO    onceover.spark.driver: flow f runs as generation 1
2026-01-31 12:00:06,000 INFO    onceover.spark.driver: query started
2026-01-31 12:01:06,000 INFO    onceover.spark.driver: flow f runs as generation 2
"""
STARTED_S = datetime(2026, 1, 31, 12, 0, 1).astimezone().timestamp()


def test_phases_end_with_their_first_line() -> None:
    assert phases(LOG, started_s=STARTED_S) == pytest.approx({"leads_s": 4.25, "query_s": 5.0})


def test_phase_without_its_line_has_no_seconds() -> None:
    assert phases("nothing", started_s=0.0) == {}
