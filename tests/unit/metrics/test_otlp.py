"""Samples of a scrape as OpenTelemetry has them."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import Gauge, Histogram, Sum
from opentelemetry.sdk.resources import Resource

from onceover.cli.parsing import build_parser
from onceover.errors import UsageError
from onceover.metrics import catalogue as m
from onceover.metrics.figures import Distribution, Figures, exposition
from onceover.metrics.otlp import metrics_data
from onceover.wiring.monitoring.push import checked_url

BEGAN_NS, NOW_NS = 1_000, 2_000


def scraped() -> bytes:
    """Return a text with a metric of each kind."""
    figures = Figures()
    figures.put(m.FLOW_FILES, 3)
    figures.put(m.LOOK_DURATION, 1.5, 'a "flow"')
    figures.put(m.LANE_RECORDS, 7, "f", "0")
    counts = [(0.1, 2), (1.0, 2), (float("inf"), 5)]
    figures.put(m.CANARY_ROUND_TRIP, Distribution(counts, 12.5), "f")
    return exposition([figures.texts()])


def converted() -> dict[str, Any]:
    """Return the metrics of that text by name."""
    data = metrics_data(scraped().decode(), Resource.create({}), began_ns=BEGAN_NS, now_ns=NOW_NS)
    return {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}


def test_each_kind_keeps_its_meaning() -> None:
    """A gauge is what is; a counter only grows, and says since when."""
    metrics = converted()
    gauge = metrics[m.LOOK_DURATION.name]
    assert isinstance(gauge.data, Gauge)
    assert (gauge.unit, gauge.description) == ("s", m.LOOK_DURATION.text)
    [point] = gauge.data.data_points
    assert (dict(point.attributes or {}), point.value) == ({"flow": 'a "flow"'}, 1.5)
    counter = metrics[m.LANE_RECORDS.name.removesuffix("_total")]
    assert isinstance(counter.data, Sum)
    assert counter.data.is_monotonic
    [counted] = counter.data.data_points
    assert (counted.value, counted.start_time_unix_nano, counted.time_unix_nano) == (7, BEGAN_NS, NOW_NS)


def test_what_is_up_to_a_bound_becomes_what_is_between_two() -> None:
    """With the rest above the last one."""
    histogram = converted()[m.CANARY_ROUND_TRIP.name]
    assert isinstance(histogram.data, Histogram)
    [point] = histogram.data.data_points
    assert dict(point.attributes or {}) == {"flow": "f"}
    assert (list(point.explicit_bounds), list(point.bucket_counts)) == ([0.1, 1.0], [2, 0, 3])
    assert (point.count, point.sum) == (5, 12.5)


@pytest.mark.parametrize("url", ["collector:4318", "ftp://host", "http://", "http://host:x", "http://h/?a=b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="no address of a collector"):
        checked_url(url)


def test_a_login_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match="no login") as refused:
        checked_url("http://me:secret@host:4318")
    assert "secret" not in str(refused.value)


def test_one_look_is_not_pushed(capsys: pytest.CaptureFixture[str]) -> None:
    """It ends before an interval is over."""
    with pytest.raises(UsageError):
        build_parser().parse_args(["metrics", "--once", "--otlp", "http://127.0.0.1:4318"])
    capsys.readouterr()
