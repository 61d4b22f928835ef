"""Samples of a scrape as OpenTelemetry has them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.sdk.metrics.export import Gauge, Histogram, MetricsData, Sum
from opentelemetry.sdk.resources import Resource

from onceover.cli.parsing import build_parser
from onceover.errors import Retriable, UsageError
from onceover.metrics import catalogue as m
from onceover.metrics.figures import Distribution, Figures, exposition
from onceover.metrics.otlp import Taken, metrics_data, read_answer
from onceover.metrics.push import OtlpPush, checked_url
from onceover.metrics.serve import serving

BEGAN_NS, NOW_NS = 1_000, 2_000


def scraped() -> bytes:
    """Return a text with a metric of each kind."""
    figures = Figures()
    figures.put(m.FLOW_FILES, 3)
    figures.put(m.LOOK_DURATION, 1.5, 'a "flow"')
    figures.put(m.LANE_RECORDS, 7, "f", "0")
    figures.put(m.STARTS, 57, "f")
    counts = [(0.1, 2), (1.0, 2), (float("inf"), 5)]
    figures.put(m.CANARY_ROUND_TRIP, Distribution(counts, 12.5), "f")
    return exposition([figures.texts()])


def data() -> MetricsData:
    return metrics_data(
        scraped().decode(), Resource.create({}), began_ns=BEGAN_NS, now_ns=NOW_NS, kept=m.KEPT
    )


def converted() -> dict[str, Any]:
    """Return the metrics of that text by name."""
    return {metric.name: metric for metric in data().resource_metrics[0].scope_metrics[0].metrics}


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


def test_what_the_flow_counts_did_not_begin_with_the_exporter() -> None:
    """A collector that makes differences of it would tell 57 starts each time that the exporter starts."""
    counter = converted()[m.STARTS.name.removesuffix("_total")]
    assert isinstance(counter.data, Sum)
    [counted] = counter.data.data_points
    assert (counted.value, counted.start_time_unix_nano, counted.time_unix_nano) == (57, 0, NOW_NS)


def test_what_is_up_to_a_bound_becomes_what_is_between_two() -> None:
    """With the rest above the last one."""
    histogram = converted()[m.CANARY_ROUND_TRIP.name]
    assert isinstance(histogram.data, Histogram)
    [point] = histogram.data.data_points
    assert dict(point.attributes or {}) == {"flow": "f"}
    assert (list(point.explicit_bounds), list(point.bucket_counts)) == ([0.1, 1.0], [2, 0, 3])
    assert (point.count, point.sum) == (5, 12.5)


def test_what_nobody_measured_is_not_sent() -> None:
    """Prometheus' text has neither the least nor the most of what a histogram has counted."""
    [told] = encode_metrics(data()).resource_metrics
    [point] = [point for metric in told.scope_metrics[0].metrics for point in metric.histogram.data_points]
    assert point.HasField("sum")
    assert not point.HasField("min")
    assert not point.HasField("max")


PROTOBUF, JSON = "application/x-protobuf", "application/json; charset=utf-8"


def answered(rejected: int, message: str = "") -> bytes:
    part = ExportMetricsPartialSuccess(rejected_data_points=rejected, error_message=message)
    return bytes(ExportMetricsServiceResponse(partial_success=part).SerializeToString())


@pytest.mark.parametrize(
    ("status", "kind", "body", "taken", "why"),
    [
        (200, "", b"", Taken.ALL, ""),
        (202, PROTOBUF, b"", Taken.ALL, ""),
        (204, "", b"", Taken.ALL, ""),
        (200, PROTOBUF, answered(0, "use gzip"), Taken.ALL, ""),
        (200, JSON, b"{}", Taken.ALL, ""),
        (200, JSON, b'{"partialSuccess": {}}', Taken.ALL, ""),
        (200, "text/plain", b"ok", Taken.ALL, ""),
        (200, PROTOBUF, answered(50, "too old\x1b[2J"), Taken.PART, "it rejects 50 samples: too old\\x1b[2J"),
        (200, PROTOBUF, answered(1), Taken.PART, "it rejects 1 samples"),
        (200, JSON, b'{"partialSuccess": {"rejectedDataPoints": "3"}}', Taken.PART, "it rejects 3 samples"),
        (301, "", b"", Taken.NONE, "it answers 301"),
        (302, "text/html", b"<html>", Taken.NONE, "it answers 302"),
        (307, PROTOBUF, answered(0), Taken.NONE, "it answers 307"),
        (199, "", b"", Taken.NONE, "it answers 199"),
        (503, "", b"", Taken.NONE, "it answers 503"),
        (200, "text/html", b"<html>log in", Taken.NONE, "it answers a page, as no collector does"),
        (200, PROTOBUF, b"\xff", Taken.NONE, "it answers what nobody can read"),
        (200, JSON, b"[", Taken.NONE, "it answers what nobody can read"),
        (200, JSON, b'{"partialSuccess": 7}', Taken.NONE, "it answers what nobody can read"),
    ],
)
def test_only_what_a_collector_says_it_has_taken_is_taken(
    status: int, kind: str, body: bytes, taken: Taken, why: str
) -> None:
    """It follows nobody elsewhere, and samples that were rejected are lost, whatever the status is."""
    assert read_answer(status, kind, body) == (taken, why)


def test_a_long_reason_is_cut() -> None:
    """It is the collector's, and stands in our log."""
    assert len(read_answer(200, PROTOBUF, answered(1, "x" * 9_000)).why) < 300


@pytest.mark.parametrize("url", ["collector:4318", "ftp://host", "http://", "http://host:x", "http://h/?a=b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="no address of a collector"):
        checked_url(url)


def test_a_login_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match="no login") as refused:
        checked_url("http://me:secret@host:4318")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["http://h/?token=secret", "http://h/#secret", "http://me:secret@[h", "http://me:secret@h:x", "secret"],
)
def test_what_is_no_address_is_not_shown(url: str) -> None:
    """It may hold a token, or half of a login."""
    with pytest.raises(UsageError, match="no ") as refused:
        checked_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("kind", ["", "_METRICS"])
def test_a_header_that_is_none_is_not_shown(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The library logs it as it stands: a token, in most cases."""
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP{kind}_HEADERS", "authorization: Bearer secret")
    OtlpPush("http://127.0.0.1:1", "1", bytes, 1.0).stop()
    assert "secret" not in caplog.text
    assert "no name=value in OTEL_EXPORTER_OTLP_HEADERS" in caplog.text


def test_without_a_thread_nothing_is_sent_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would miss the samples otherwise: the exporter runs, and tells nobody anything."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    push = OtlpPush("http://127.0.0.1:1", "1", bytes, 1.0)
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(Retriable, match="no thread"):
        push.start()
    with pytest.raises(Retriable, match="no thread"), serving("127.0.0.1", 0, bytes):
        pass
    with pytest.raises(Retriable, match="no thread"):
        OtlpPush("http://127.0.0.1:1", "1", bytes, 1.0)
    push.stop()


def test_one_look_is_not_pushed(capsys: pytest.CaptureFixture[str]) -> None:
    """It ends before an interval is over."""
    with pytest.raises(UsageError):
        build_parser().parse_args(["metrics", "--once", "--otlp", "http://127.0.0.1:4318"])
    capsys.readouterr()
