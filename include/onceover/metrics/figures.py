"""Samples of one look, and the text of a scrape. Pure.

Invariants: a series is there once, whatever was put twice (the first counts); all samples of a metric stand
together, as Prometheus demands, however many flows they are of. Escapes and numbers are the client library's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from onceover.metrics.catalogue import ALL, MetricKind, MetricSpec

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# What a family's text begins with: its HELP and its TYPE.
_HEAD_LINES: Final = 2


@dataclass(frozen=True)
class Distribution:
    """How often a value was at most each bound; the last bound is infinite.

    Args:
        counts: by upper bound, each including those before it.
        total: sum of all values.
    """

    counts: Sequence[tuple[float, int]]
    total: float


# The lines of each metric, without its head.
Texts = Mapping[str, bytes]


@dataclass
class Figures:
    """Samples, by metric and label values."""

    _found: dict[str, dict[tuple[str, ...], float | Distribution]] = field(default_factory=dict)

    def put(self, spec: MetricSpec, value: float | Distribution | None, *labels: object) -> None:
        """Add a sample; None, of what nobody knows, adds none."""
        if value is not None:
            self._found.setdefault(spec.name, {}).setdefault(tuple(map(_label, labels)), value)

    def put_state(self, spec: MetricSpec, state: str, states: Iterable[str], *labels: object) -> None:
        """Add a state set: 1 for ``state``, 0 for the others."""
        for each in (state, *states):
            self.put(spec, float(each == state), *labels, each)

    def add(self, others: Figures) -> None:
        """Add all samples of others."""
        for name, found in others._found.items():
            mine = self._found.setdefault(name, {})
            for labels, value in found.items():
                mine.setdefault(labels, value)

    def samples(self, spec: MetricSpec) -> Mapping[tuple[str, ...], float | Distribution]:
        """Return the samples of a metric, by label values."""
        return self._found.get(spec.name, {})

    def texts(self) -> dict[str, bytes]:
        """Return the lines of each metric that has a sample."""
        return {
            spec.name: generate_latest(_One(_family(spec, found))).split(b"\n", _HEAD_LINES)[_HEAD_LINES]
            for spec in ALL
            if (found := self._found.get(spec.name))
        }


def exposition(parts: Sequence[Texts]) -> bytes:
    """Return the text of a scrape: the metrics in the order of the catalogue, each with its head once."""
    found: list[bytes] = []
    for spec in ALL:
        lines = [part[spec.name] for part in parts if spec.name in part]
        if lines:
            found += [_head(spec), *lines]
    return b"".join(found)


def _head(spec: MetricSpec) -> bytes:
    return f"# HELP {spec.name} {spec.text}\n# TYPE {spec.name} {spec.kind}\n".encode()


def _family(spec: MetricSpec, found: Mapping[tuple[str, ...], float | Distribution]) -> Metric:
    if spec.kind is MetricKind.HISTOGRAM:
        histogram = HistogramMetricFamily(spec.name, spec.text, labels=spec.labels)
        for labels, value in found.items():
            if isinstance(value, Distribution):
                histogram.add_metric(labels, [(_bound(at), count) for at, count in value.counts], value.total)
        return histogram
    made = CounterMetricFamily if spec.kind is MetricKind.COUNTER else GaugeMetricFamily
    plain = made(spec.name, spec.text, labels=spec.labels)
    for labels, value in found.items():
        if not isinstance(value, Distribution):
            plain.add_metric(labels, value)
    return plain


def _label(value: object) -> str:
    """Return a label's value; half of a character, which no text can hold, as an escape."""
    return str(value).encode(errors="backslashreplace").decode()


def _bound(value: float) -> str:
    return "+Inf" if value == float("inf") else str(value)


class _One(Collector):
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
