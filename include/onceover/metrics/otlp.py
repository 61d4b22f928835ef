"""The samples of a scrape as OpenTelemetry has them. Pure.

They are made from the text that Prometheus would get, so that both are told the same: names, labels and
bounds are those of docs/metrics.md. A counter and a histogram say since when they have counted, where that is
known: who makes differences of them takes what is there at first for what was counted since.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple, cast

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family
from prometheus_client.core import Sample
from prometheus_client.parser import text_string_to_metric_families

from onceover.shown import visible

_SCOPE: Final = InstrumentationScope("onceover")
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_MOST_WORDS: Final = 200
# In OTLP.
_UNKNOWN_NS: Final = 0
_UNITS: Final = {"seconds": "s", "bytes": "By"}


class Taken(StrEnum):
    """How much of the samples a collector has taken."""

    ALL = "all"
    PART = "part"
    NONE = "none"


class PushAnswer(NamedTuple):
    """What became of samples; ``why`` it was not all of them, for people."""

    taken: Taken
    why: str = ""


def read_answer(status: int, content_type: str, body: bytes) -> PushAnswer:
    """Return what a collector's answer means.

    Args:
        status: of HTTP. One that leads elsewhere takes nothing: nobody goes there.
        content_type: what ``body`` is; a collector answers as it was asked, or not at all.
        body: may say that samples were rejected, though the request as a whole was not (OTLP 1.x, "Partial
            Success").
    """
    kind = content_type.partition(";")[0].strip().lower()
    if not 200 <= status < 300:
        return PushAnswer(Taken.NONE, f"it answers {status}")
    if kind == "text/html":
        # Such as a proxy that wants a login.
        return PushAnswer(Taken.NONE, "it answers a page, as no collector does")
    try:
        rejected, words = _rejected(kind, body)
    except (DecodeError, ValueError, TypeError, AttributeError):
        return PushAnswer(Taken.NONE, "it answers what nobody can read")
    if rejected == 0:
        return PushAnswer(Taken.ALL)
    told = f"it rejects {rejected} samples"
    return PushAnswer(Taken.PART, f"{told}: {visible(words[:_MOST_WORDS])}" if words else told)


def _rejected(kind: str, body: bytes) -> tuple[int, str]:
    """Return how many samples were rejected, and the collector's words on it."""
    if body and kind == "application/json":
        told = json.loads(body).get("partialSuccess", {})
        return int(told.get("rejectedDataPoints", 0)), str(told.get("errorMessage", ""))
    if body and kind == "application/x-protobuf":
        part = ExportMetricsServiceResponse.FromString(body).partial_success
        return part.rejected_data_points, part.error_message
    return 0, ""


def metrics_data(
    text: str, resource: Resource, *, began_ns: int, now_ns: int, kept: Collection[str]
) -> MetricsData:
    """Return the samples of ``text``, an exposition, as they are at ``now_ns``.

    Args:
        text: what ``Exporter.scrape`` answers, decoded.
        resource: who tells them.
        began_ns: since when counters count, Unix time in nanoseconds; ``now_ns`` likewise.
        kept: names of counters that count since nobody knows when.
    """

    def began(family: Family) -> int:
        return _UNKNOWN_NS if f"{family.name}_total" in kept else began_ns

    metrics = [
        Metric(family.name, family.documentation, _unit(family.name), _data(family, began(family), now_ns))
        for family in text_string_to_metric_families(text)
        if family.samples
    ]
    scope = ScopeMetrics(_SCOPE, metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _data(family: Family, began_ns: int, now_ns: int) -> Gauge | Sum | Histogram:
    if family.type == "histogram":
        return Histogram(list(_distributions(family.samples, began_ns, now_ns)), _CUMULATIVE)
    points = [
        NumberDataPoint(dict(sample.labels), began_ns, now_ns, sample.value) for sample in family.samples
    ]
    if family.type == "counter":
        return Sum(points, _CUMULATIVE, is_monotonic=True)
    return Gauge(points)


def _distributions(samples: Iterable[Sample], began_ns: int, now_ns: int) -> Iterable[HistogramDataPoint]:
    """Yield a point for each set of labels.

    Prometheus counts what is up to a bound, OpenTelemetry what is between two.
    """
    buckets: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    totals: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        labels = _without_bound(sample.labels)
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, {})[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            totals[labels] = sample.value
    for labels, counts in buckets.items():
        bounds = sorted(counts)
        up_to = [0, *(int(counts[bound]) for bound in bounds)]
        between = [here - before for before, here in pairwise(up_to)]
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=began_ns,
            time_unix_nano=now_ns,
            count=up_to[-1],
            sum=totals.get(labels, 0.0),
            bucket_counts=between,
            explicit_bounds=[bound for bound in bounds if bound != float("inf")],
            # Optional in OTLP, and in no text of Prometheus'; their type here has no word for that.
            min=cast("float", None),
            max=cast("float", None),
        )


def _without_bound(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in labels.items() if name != "le"))


def _unit(name: str) -> str:
    """Return the unit that a name ends with, in OpenTelemetry's words (UCUM); nothing where it counts."""
    return _UNITS.get(name.removesuffix("_total").rsplit("_", 1)[-1], "")
