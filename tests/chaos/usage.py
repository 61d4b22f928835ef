"""What a run takes of the machine over time (memory, descriptors, threads, connections): does it grow?

Judged by the median of all slopes (Theil and Sen): of a leak, which is small against the noise at any moment,
it sees what it adds up to; a garbage collector's teeth, or a moment without a broker, it does not mind. And
what leaks stands higher at the end than before: the threads of a pool that comes back after a dip do not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support.session.background import Background

# Of a run: caches fill, the JVM compiles, Python's workers import.
WARM_UP_SHARE: Final = 0.25
# Of what is allowed: a steady leak has a quarter of its growth between the medians of the last two quarters.
_NEW_SHARE: Final = 1 / 3
# More points than this cost time, and tell nothing new.
_POINTS: Final = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """What some processes took together at one moment; memory is the share that is theirs (PSS)."""

    at_s: float
    kind: str
    memory_mib: float
    descriptors: int
    threads: int
    connections: int


@dataclass(frozen=True, slots=True)
class Allowance:
    """By how much something may grow over a whole run before it counts as a leak."""

    share: float
    least: float

    def of(self, usual: float) -> float:
        """Return the growth that is allowed where ``usual`` is the median."""
        return max(self.share * usual, self.least)


# A leaked connection, thread or descriptor in each of a hundred tasks would be a hundred of them.
ALLOWED: Final[Mapping[str, Allowance]] = {
    "memory_mib": Allowance(0.05, 16.0),
    "descriptors": Allowance(0.0, 3.0),
    "threads": Allowance(0.0, 3.0),
    "connections": Allowance(0.0, 3.0),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """How one figure of one kind of process developed over the run, its warm-up left out.

    ``earlier``: the highest median of one of the run's first three quarters; ``at_end`` that of the last one.
    """

    kind: str
    figure: str
    usual: float
    grown: float
    allowed: float
    earlier: float
    at_end: float

    @property
    def leaks(self) -> bool:
        """True when it grew by more than is allowed, to where it never was."""
        return self.grown > self.allowed and self.at_end > self.earlier + _NEW_SHARE * self.allowed


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """Return the development of every figure of every kind.

    Raises:
        ValueError: too few samples of a kind to tell anything.
    """
    found = []
    for kind in sorted({sample.kind for sample in samples}):
        ours = [sample for sample in samples if sample.kind == kind]
        begin_s = ours[0].at_s + WARM_UP_SHARE * (ours[-1].at_s - ours[0].at_s)
        warm = [sample for sample in ours if sample.at_s >= begin_s]
        if len(warm) < 8:
            raise ValueError(f"{len(warm)} samples of {kind} tell nothing")
        for figure, allowance in ALLOWED.items():
            points = [(sample.at_s, float(asdict(sample)[figure])) for sample in warm]
            usual = statistics.median(value for _, value in points)
            grown = slope(points) * (points[-1][0] - points[0][0])
            *earlier, at_end = _quarters([float(asdict(sample)[figure]) for sample in ours])
            found.append(Growth(kind, figure, usual, grown, allowance.of(usual), max(earlier), at_end))
    return found


def _quarters(values: Sequence[float]) -> list[float]:
    """Return the medians of the four quarters of a run."""
    ends = [len(values) * quarter // 4 for quarter in range(5)]
    return [statistics.median(values[begin:end]) for begin, end in pairwise(ends)]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between all pairs of points, per second."""
    every = max(1, len(points) // _POINTS)
    pairs = combinations(points[::every], 2)
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0])


Kinds = Callable[[], Mapping[str, Sequence[psutil.Process]]]


class Sampler(Background):
    """Samples in the background.

    Args:
        kinds: what to look at, asked anew each time: workers come and go.
        pause_s: between two samples.
    """

    def __init__(self, kinds: Kinds, pause_s: float) -> None:
        super().__init__("sampler", pause_s)
        self.samples: list[Sample] = []
        self._kinds = kinds
        self._begun_s = time.monotonic()

    @property
    def age_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun_s

    def step(self) -> None:
        """Look at everything once."""
        for kind, processes in self._kinds().items():
            self._look(kind, processes)

    def _look(self, kind: str, processes: Sequence[psutil.Process]) -> None:
        taken = []
        for process in processes:
            try:
                with process.oneshot():
                    taken.append(
                        (
                            process.memory_full_info().pss / (1 << 20),
                            process.num_fds(),
                            process.num_threads(),
                            len(process.net_connections("tcp")),
                        )
                    )
            except psutil.NoSuchProcess:
                continue
        if taken:
            memory_mib, descriptors, threads, connections = (
                sum(figures) for figures in zip(*taken, strict=True)
            )
            self.samples.append(
                Sample(self.age_s, kind, memory_mib, int(descriptors), int(threads), int(connections))
            )


def draw(samples: Sequence[Sample], events: Sequence[tuple[float, str]], path: Path, title: str) -> None:
    """Draw every figure over time; ``events`` (seconds, what) are thin lines. Writes SVG to ``path``."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    names = {"memory_mib": "memory (MiB)"}
    figure, axes = plt.subplots(len(ALLOWED), 1, sharex=True, figsize=(9, 9), layout="constrained")
    for axis, key in zip(axes, ALLOWED, strict=True):
        for kind in sorted({sample.kind for sample in samples}):
            ours = [sample for sample in samples if sample.kind == kind]
            points: list[Any] = [asdict(sample)[key] for sample in ours]
            axis.plot([sample.at_s / 60 for sample in ours], points, label=kind, linewidth=1)
        for at_s, _ in events:
            axis.axvline(at_s / 60, color="0.8", linewidth=0.5, zorder=0)
        axis.set_ylabel(names.get(key, key))
        axis.set_ylim(bottom=0)
    axes[0].set_title(title)
    axes[0].legend(loc="upper right", ncols=3)
    axes[-1].set_xlabel("minutes")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
