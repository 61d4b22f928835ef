"""The plots of an audit's report, as SVG to be put into the page.

Invariant: an SVG depends on the document alone: no date, no random names, no reference to anything outside.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from onceover.audit.model import Side

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK: Final = "#1d2733"
MUTED: Final = "#6b7885"
GRID: Final = "#e4e8ec"
SOURCE_COLOUR: Final = "#2f6db5"
TARGET_COLOUR: Final = "#1f8f8a"
BAD_COLOUR: Final = "#c8372d"
_WIDTH_IN: Final = 10.0
_DAY_MS: Final = 86_400_000
# Round for a reader: seconds, minutes, hours, days, weeks, about months and years.
_STEPS_MS: Final = (
    *(step * unit for unit in (1, 10, 100) for step in (1, 2, 5)),
    *(step * 1_000 for step in (1, 2, 5, 10, 15, 30)),
    *(step * 60_000 for step in (1, 2, 5, 10, 15, 30)),
    *(step * 3_600_000 for step in (1, 2, 3, 6, 12)),
    *(step * _DAY_MS for step in (1, 2, 7, 14, 30, 91, 182, 365)),
)
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
            begins,
            [sign * c for c in counts],
            width=width_ms * 0.92,
            align="edge",
            color=colours,
            linewidth=0,
        )
    axes.axhline(0, color="white", linewidth=2.5)
    # Room for the names of the sides.
    axes.set_ylim(-1.4 * highest, 1.4 * highest)
    axes.set_xlim(begins[0], begins[-1] + width_ms)
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
    axes.bar(begins, counts, width=width_ms * 0.92, align="edge", color=TARGET_COLOUR, linewidth=0)
    axes.set_xlim(begins[0], begins[-1] + width_ms)
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
    axes.fill_between(at_ms, ages_ms, min(ages_ms) * 0.7, color=SOURCE_COLOUR, alpha=0.12, linewidth=0)
    axes.plot(at_ms, ages_ms, color=SOURCE_COLOUR, linewidth=1.6, marker="o", markersize=2.6)
    axes.set_yscale("log")
    axes.set_ylim(min(ages_ms) * 0.7, max(ages_ms) * 1.6)
    axes.yaxis.set_major_formatter(lambda value, _: _duration(value))
    axes.minorticks_off()
    padding = max(1, (at_ms[-1] - at_ms[0]) // 100)
    axes.set_xlim(at_ms[0] - padding, at_ms[-1] + padding)
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
    length_ms = end_ms - begin_ms
    longest_ms = _STEPS_MS[-1] * max(1, -(-int(length_ms) // (_STEPS_MS[-1] * _MAX_TICKS)))
    step_ms = next((each for each in _STEPS_MS if length_ms <= each * _MAX_TICKS), longest_ms)
    format_ = _time_format(step_ms)
    ticks = range(-(-int(begin_ms) // step_ms) * step_ms, int(end_ms) + 1, step_ms)
    axes.set_xticks(
        list(ticks), [datetime.fromtimestamp(tick / 1000, UTC).strftime(format_) for tick in ticks]
    )


def _time_format(step_ms: int) -> str:
    if step_ms >= _DAY_MS:
        return "%Y-%m-%d"
    if step_ms >= 3_600_000:
        return "%d %b %H:%M"
    if step_ms >= 60_000:
        return "%H:%M"
    return "%H:%M:%S" if step_ms >= 1_000 else "%M:%S.%f"


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
