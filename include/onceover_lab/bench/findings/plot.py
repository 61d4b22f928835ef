"""The benchmark's picture, drawn with matplotlib without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceover.errors import UsageError
from onceover_lab.bench.findings.results import WorkloadResult
from onceover_lab.bench.workloads import WorkloadKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS: Final = (
    ("records_per_s", "records/s (higher is better)", WorkloadKind.THROUGHPUT),
    ("cpu_s_per_million", "CPU-s per million records (lower is better)", WorkloadKind.THROUGHPUT),
)
_PERCENTILES: Final = (("p50_ms", "p50"), ("p99_ms", "p99"), ("p999_ms", "p99.9"))
_COLOURS: Final = {
    "onceover": "#1b7f5c",
    "mm2": "#b5651d",
    "mm2-poll": "#b5651d",
    "mm2-200ms": "#dba878",
    "librdkafka": "#5b6b8c",
}


def check_can_draw() -> None:
    """Say before the measuring starts that drawing will fail.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "the benchmark draws a plot with matplotlib, which is not installed",
            resolve="install the development dependencies: make setup",
        ) from error


def draw(results: Sequence[WorkloadResult], path: Path) -> None:
    """Draw throughput, CPU and latency side by side into ``path`` (PNG): medians, bars from min to max."""
    # A Figure of its own needs no pyplot, and so no global state and no display.
    from matplotlib.figure import Figure

    panels = [panel for panel in _PANELS if _of_kind(results, panel[2])]
    latency = _of_kind(results, WorkloadKind.LATENCY)
    count = max(1, len(panels) + len(latency))
    figure = Figure(figsize=(5.2 * count, 4.2), layout="constrained")
    axes = iter(figure.subplots(1, count, squeeze=False)[0])
    for (key, title, kind), axis in zip(panels, axes, strict=False):
        chosen = _of_kind(results, kind)
        groups = [(result.workload.title, result, key) for result in chosen]
        _draw_bars(axis, title, groups)
    for result, axis in zip(latency, axes, strict=False):
        groups = [(title, result, key) for key, title in _PERCENTILES]
        _draw_bars(axis, f"{result.workload.title}, ms (lower is better)", groups)
    figure.savefig(path, dpi=120)


def _of_kind(results: Sequence[WorkloadResult], kind: WorkloadKind) -> list[WorkloadResult]:
    return [result for result in results if result.workload.kind is kind]


def _draw_bars(axis: Axes, title: str, groups: Sequence[tuple[str, WorkloadResult, str]]) -> None:
    names = list(dict.fromkeys(c.name for _, result, _ in groups for c in result.workload.contenders))
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        places, heights, below, above = _bar_series(groups, name, index * width - 0.4 + width / 2)
        colour = _COLOURS.get(name)
        bars = axis.bar(places, heights, width, yerr=[below, above], capsize=3, label=name, color=colour)
        axis.bar_label(bars, labels=[_short(height) for height in heights], fontsize=7, padding=2)
    axis.set_xticks(range(len(groups)), [label for label, _, _ in groups], rotation=15)
    axis.set_title(title, fontsize=10)
    axis.margins(y=0.12)
    axis.legend(fontsize=8)


def _short(value: float) -> str:
    # Small bars cannot be read off the axis, so each one carries its number.
    if value >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _bar_series(
    groups: Sequence[tuple[str, WorkloadResult, str]], name: str, shift: float
) -> tuple[Any, ...]:
    places, heights, below, above = [], [], [], []
    for place, (_, result, key) in enumerate(groups):
        found = result.spread_of(name, key)
        if found is not None:
            places.append(place + shift)
            heights.append(found.median)
            below.append(found.median - found.low)
            above.append(found.high - found.median)
    return places, heights, below, above
