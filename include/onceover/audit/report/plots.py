"""The plots of an audit's report, as SVG to be put into the page.

Invariant: an SVG depends on the document alone: no date, no random names, no reference to anything outside.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Final

from onceover.audit.model import Side

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MUTED: Final = "#6b7885"
GRID: Final = "#e4e8ec"
SOURCE_COLOUR: Final = "#2f6db5"
TARGET_COLOUR: Final = "#1f8f8a"
BAD_COLOUR: Final = "#c8372d"
_WIDTH_IN: Final = 10.0
_DAY_MS: Final = 86_400_000
# The last one that a date has a name for; a topic that somebody mirrored may hold microseconds instead.
_LAST_MS: Final = 253_402_300_799_999
_MAX_TICKS: Final = 8
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def records_svg(over_time: Mapping[str, Any]) -> str:
    """Return the records of both sides over record time: the source upwards, the target downwards.

    Args:
        over_time: ``records_over_time`` of the document.
    """
    width_ms = over_time["width_ms"]
    source, target = over_time[str(Side.SOURCE)], over_time[str(Side.TARGET)]
    begins = [over_time["begin_ms"] + index * width_ms for index in range(len(source))]
    figure, axes = _figure(2.7)
    highest = max([*source, *target, 1.0])
    differs = [abs(a - b) > 1e-3 * max(a, b) for a, b in zip(source, target, strict=True)]
    for counts, sign, colour in ((source, 1, SOURCE_COLOUR), (target, -1, TARGET_COLOUR)):
        colours = [BAD_COLOUR if differ else colour for differ in differs]
        axes.bar(
            [_days(begin) for begin in begins],
            [sign * c for c in counts],
            width=_days(width_ms * 0.92),
            align="edge",
            color=colours,
            linewidth=0,
        )
    axes.axhline(0, color="white", linewidth=2.5)
    # Room for the names of the sides.
    axes.set_ylim(-1.4 * highest, 1.4 * highest)
    axes.set_xlim(_days(begins[0]), _days(begins[-1] + width_ms))
    for y, text, colour in ((0.97, "source", SOURCE_COLOUR), (0.03, "target", TARGET_COLOUR)):
        axes.text(
            0.006, y, text, transform=axes.transAxes, color=colour, fontsize=11, fontweight="bold",
            va="top" if y > 0.5 else "bottom",
        )  # fmt: skip
    axes.yaxis.set_major_formatter(lambda value, _: _count(abs(value)))
    axes.set_ylabel(f"records per {_duration(width_ms)}", color=MUTED)
    _time_axis(axes, begins[0], begins[-1] + width_ms)
    return _svg(figure, "records")


def commits_svg(over_time: Mapping[str, Any]) -> str:
    """Return the records committed on the target over the time of the commits.

    Args:
        over_time: ``committed_over_time`` of the document.
    """
    width_ms, counts = over_time["width_ms"], over_time["records"]
    begins = [over_time["begin_ms"] + index * width_ms for index in range(len(counts))]
    figure, axes = _figure(2.2)
    at = [_days(begin) for begin in begins]
    axes.bar(at, counts, width=_days(width_ms * 0.92), align="edge", color=TARGET_COLOUR, linewidth=0)
    axes.set_xlim(_days(begins[0]), _days(begins[-1] + width_ms))
    axes.yaxis.set_major_formatter(lambda value, _: _count(value))
    axes.set_ylabel(f"records per {_duration(width_ms)}", color=MUTED)
    _time_axis(axes, begins[0], begins[-1] + width_ms)
    return _svg(figure, "commits")


def ages_svg(points: Sequence[Sequence[int]]) -> str:
    """Return the age of the newest record at each commit, over time.

    Args:
        points: ``age_at_commit`` of the document.
    """
    figure, axes = _figure(2.2)
    at_ms, ages_ms = [point[0] for point in points], [max(1, point[1]) for point in points]
    at = [_days(each) for each in at_ms]
    axes.fill_between(at, ages_ms, min(ages_ms) * 0.07, color=SOURCE_COLOUR, alpha=0.12, linewidth=0)
    axes.plot(at, ages_ms, color=SOURCE_COLOUR, linewidth=1.6, marker="o", markersize=2.6)
    axes.set_yscale("log")
    # From one power of ten to another: labels stand at these alone.
    axes.set_ylim(10 ** floor(log10(min(ages_ms) * 0.7)), 10 ** ceil(log10(max(ages_ms) * 1.6)))
    axes.yaxis.set_major_formatter(lambda value, _: _duration(value))
    axes.minorticks_off()
    padding = max(1, (at_ms[-1] - at_ms[0]) // 100)
    axes.set_xlim(_days(at_ms[0] - padding), _days(at_ms[-1] + padding))
    axes.set_ylabel("age at commit", color=MUTED)
    _time_axis(axes, at_ms[0], at_ms[-1])
    return _svg(figure, "ages")


def _figure(height_in: float) -> tuple[Figure, Axes]:
    # Half a second and fonts: only where a report is drawn. No pyplot: it keeps figures for ever.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=9, length=0)
    return figure, axes


def _time_axis(axes: Axes, begin_ms: float, end_ms: float) -> None:
    """Let the horizontal axis, which is in days since 1970, tell times."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if begin_ms < 0 or end_ms > _LAST_MS:
        axes.xaxis.set_major_formatter(lambda days, _: f"{days * _DAY_MS:.4g}")
        axes.set_xlabel("ms since 1970", color=MUTED)
        return
    locator = AutoDateLocator(tz=UTC, maxticks=_MAX_TICKS)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))


def _days(time_ms: float) -> float:
    """Return a time, or a length, as matplotlib's dates count it."""
    return time_ms / _DAY_MS


def _duration(value_ms: float) -> str:
    for unit_ms, name in _UNITS:
        if value_ms >= unit_ms:
            count = value_ms / unit_ms
            return f"{count:,.0f} {name}" if count >= 1000 else f"{count:.3g} {name}"
    return f"{value_ms:.3g} ms"


def _count(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


def _svg(figure: Figure, name: str) -> str:
    import matplotlib as mpl

    text = io.StringIO()
    # The salt makes the names inside the same every time, and others than those of another plot.
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = text.getvalue()
    # Without the XML and DOCTYPE lines, which have no place inside of HTML and name other hosts.
    drawn = drawn[drawn.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
