"""The arithmetic of the benchmark: windows, percentiles, spreads. Pure.

Progress is a step function: it grows only when a transaction commits. Both ends of a measuring window are
therefore put on commits, which makes the rate between them exact whatever the length of a transaction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

# The first tenth holds the ramp-up (connections, JIT, first fetches), the last one the running dry.
STEADY_FROM: Final = 0.1
STEADY_TO: Final = 0.9


class Sample(NamedTuple):
    """A cumulative value seen at a monotonic time."""

    at_s: float
    value: float


@dataclass(frozen=True)
class Window:
    """The steady part of a run; ``share`` is the part of all records that fell into it."""

    start_s: float
    end_s: float
    share: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of a few runs."""

    median: float
    low: float
    high: float
    runs: int


def steady_window(progress: Sequence[Sample], total: float) -> Window | None:
    """Return the window between the commits that pass 10 % and 90 % of ``total``.

    ``progress`` is cumulative, in the order of time. None when both borders fall into the same commit:
    then the data volume is too small to speak of a steady state.
    """
    start = first_at_least(progress, STEADY_FROM * total)
    end = first_at_least(progress, STEADY_TO * total)
    if start is None or end is None or end.at_s <= start.at_s or total <= 0:
        return None
    return Window(start.at_s, end.at_s, (end.value - start.value) / total)


def first_at_least(progress: Sequence[Sample], value: float) -> Sample | None:
    """Return the first sample that reached ``value``, if any did."""
    return next((sample for sample in progress if sample.value >= value), None)


def value_at(samples: Sequence[Sample], at_s: float) -> float:
    """Return the cumulative value at a time, linear between samples, constant outside them.

    Raises:
        ValueError: there is no sample.
    """
    if not samples:
        raise ValueError("no samples to read a value from")
    before = samples[0]
    for sample in samples:
        if sample.at_s >= at_s:
            span = sample.at_s - before.at_s
            part = (at_s - before.at_s) / span if span > 0 else 0.0
            return before.value + max(0.0, part) * (sample.value - before.value)
        before = sample
    return before.value


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: a value that really occurred, never an interpolated one.

    Raises:
        ValueError: no values, or a percentage outside (0, 100].
    """
    if not ordered or not 0 < percent <= 100:
        raise ValueError(f"no percentile {percent} of {len(ordered)} values")
    # Rounded first: 99.9 % of 1000 is 999.0000000000001 in binary, and would become the 1000th.
    rank = math.ceil(round(percent * len(ordered) / 100, 6))
    return ordered[max(1, rank) - 1]


def spread(values: Sequence[float]) -> Spread | None:
    """Return median, minimum and maximum, or None without values."""
    if not values:
        return None
    return Spread(median(values), min(values), max(values), len(values))


def paired_ratios(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """Return ours/theirs for every round that both finished.

    Neighbouring runs are compared with each other, so that a machine that is slow for a while slows both.
    """
    return [ours[n] / theirs[n] for n in sorted(ours.keys() & theirs.keys()) if theirs[n] > 0]
