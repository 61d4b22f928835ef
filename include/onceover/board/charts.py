"""Small plots as SVG, drawn from numbers alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from onceover.ages import moment_text

_WIDTH: Final = 360
_HEIGHT: Final = 150
# For the words at its left and below it.
_LEFT: Final = 74
_BOTTOM: Final = 20
_TOP: Final = 8
# Longer than between two looks of somebody who watches: nobody was there, and nobody knows.
_GAP_MS: Final = 90_000
_STEPS: Final = (1, 2, 2.5, 5, 10)


class ChartPoint(NamedTuple):
    """A value at a time, in ms since 1970; None where nobody knows it."""

    at_ms: int
    value: float | None


def line_chart(points: Sequence[ChartPoint], words: Callable[[float], str], title: str) -> str:
    """Return a line over time as SVG; where a value is not known the line has a gap.

    Args:
        points: the oldest first; at least one.
        words: how a value is written at the axis.
        title: for whoever cannot see it.
    """
    highest = _nice(max([point.value for point in points if point.value is not None], default=0.0))
    begin_ms, end_ms = _span(points)

    def x(at_ms: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 8) * (at_ms - begin_ms) / (end_ms - begin_ms)

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / highest)

    lines = [
        f'<polyline points="{" ".join(f"{x(p.at_ms):.1f},{y(p.value or 0):.1f}" for p in run)}"/>'
        for run in _runs(points)
    ]
    grid = [
        f'<path class="grid" d="M{_LEFT},{y(value):.1f}H{_WIDTH - 8}"/>'
        f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{words(value)}</text>'
        for value in (0.0, highest / 2, highest)
    ]
    times = [
        f'<text x="{x(at):.1f}" y="{_HEIGHT - 4}" text-anchor="{anchor}">{_clock(at)}</text>'
        for at, anchor in ((begin_ms, "start"), (end_ms, "end"))
    ]
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">'
        f"{''.join(grid)}{''.join(times)}{''.join(lines)}</svg>"
    )


class ChartBar(NamedTuple):
    """One of several things, in their order; ``value`` is None where it was not measured.

    Args:
        is_good: None where nobody knows.
    """

    at_ms: int
    value: float | None
    is_good: bool | None


def bar_chart(
    bars: Sequence[ChartBar], limit: float | None, words: Callable[[float], str], title: str
) -> str:
    """Return one bar for each, side by side, as SVG; one without a value is a mark on the ground.

    Args:
        bars: the oldest first; at least one.
        limit: what no bar should reach; drawn where it is not far above all of them.
        words: how a value is written at the axis.
        title: for whoever cannot see it.
    """
    most = max([bar.value for bar in bars if bar.value is not None], default=0.0)
    # An objective of many minutes would make every bar a hair.
    drawn_limit = limit if limit is not None and limit <= 4 * most else None
    highest = _nice(max(most, drawn_limit or 0.0))
    ground, width = _HEIGHT - _BOTTOM, (_WIDTH - _LEFT - 8) / len(bars)

    def y(value: float) -> float:
        return _TOP + (ground - _TOP) * (1 - value / highest)

    drawn = []
    for number, bar in enumerate(bars):
        left, top = _LEFT + width * number, min(y(bar.value or 0.0), ground - 2)
        kind = {True: "good", False: "bad", None: "unknown"}[bar.is_good]
        place = f'x="{left + width * 0.15:.1f}" y="{top:.1f}"'
        size = f'width="{width * 0.7:.1f}" height="{ground - top:.1f}"'
        drawn.append(f'<rect class="{kind}" {place} {size}/>')
    grid = [
        f'<path class="grid" d="M{_LEFT},{y(value):.1f}H{_WIDTH - 8}"/>'
        f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{words(value)}</text>'
        for value in (0.0, highest / 2, highest)
    ]
    if drawn_limit is not None:
        grid.append(f'<path class="limit" d="M{_LEFT},{y(drawn_limit):.1f}H{_WIDTH - 8}"/>')
    days = [
        f'<text x="{x:.1f}" y="{_HEIGHT - 4}" text-anchor="{anchor}">{_day(at)}</text>'
        for at, x, anchor in ((bars[0].at_ms, _LEFT, "start"), (bars[-1].at_ms, _WIDTH - 8, "end"))
    ]
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">'
        f"{''.join(grid)}{''.join(days)}{''.join(drawn)}</svg>"
    )


def spark_line(points: Sequence[ChartPoint]) -> str:
    """Return a small line without words, for a row of a table."""
    highest = max([point.value for point in points if point.value is not None], default=0.0) or 1.0
    begin_ms, end_ms = _span(points)
    took_ms = end_ms - begin_ms
    lines = []
    for run in _runs(points):
        places = (
            f"{100 * (p.at_ms - begin_ms) / took_ms:.1f},{22 - 20 * (p.value or 0) / highest:.1f}"
            for p in run
        )
        lines.append(f'<polyline points="{" ".join(places)}"/>')
    return f'<svg class="spark" viewBox="0 0 100 24" aria-hidden="true">{"".join(lines)}</svg>'


def _span(points: Sequence[ChartPoint]) -> tuple[int, int]:
    """Return from when to when; a clock may have been set back in between."""
    times = [point.at_ms for point in points]
    return min(times), max(max(times), min(times) + 1)


def _runs(points: Sequence[ChartPoint]) -> list[list[ChartPoint]]:
    """Return the stretches without a gap; a lone point is a short line, or nobody would see it."""
    runs: list[list[ChartPoint]] = [[]]
    for point in points:
        if point.value is None or (runs[-1] and point.at_ms - runs[-1][-1].at_ms > _GAP_MS):
            runs.append([])
        if point.value is not None:
            runs[-1].append(point)
    return [run if len(run) > 1 else [run[0], run[0]] for run in runs if run]


def _nice(value: float) -> float:
    """Return the next round number, so that the axis reads well."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    return next((step * unit for step in _STEPS if step * unit >= value), 10 * unit)


def _clock(at_ms: int) -> str:
    return moment_text(at_ms, "%H:%M")


def _day(at_ms: int) -> str:
    return moment_text(at_ms, "%Y-%m-%d")
