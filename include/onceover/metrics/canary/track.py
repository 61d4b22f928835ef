"""What is known of a flow's numbered records: on their way, arrived, lost, met twice. Pure.

Invariants: a number counts as lost only when a later one of its partition has arrived, which cannot be where
records stay in order; one that may not be on the source at all is never called lost. A run of the exporter
judges its own numbers alone, from the first on that arrives, and takes up where the last one ended: a restart
loses and repeats none. A count never falls: what was lost and comes after all is told as out of order, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Final

from onceover.drills.canary import COMMITTED, PARTITIONS, Canary
from onceover.metrics import catalogue as m
from onceover.metrics.figures import Distribution, Figures

# From what a busy flow takes to what nobody waits for.
BOUNDS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# On their way and remembered, at most.
MOST_WAITING: Final = 5_000
# While nothing arrives for so long only one in this time is written: enough to see when it does again.
SLOW_AFTER_S: Final = 60.0
SLOW_S: Final = 60.0
# Numbers below that were met and are remembered, to know one that comes again.
_REMEMBERED: Final = 50_000


@dataclass
class CanaryCounts:
    """What was counted of a flow's numbered records, by all runs that were given it. Not thread-safe.

    Args:
        failures: how often they could not be written or read.
    """

    produced: int = 0
    received: int = 0
    lost: int = 0
    duplicates: int = 0
    disorder: int = 0
    failures: int = 0
    _took: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    _total_s: float = 0.0

    def time(self, took_s: float) -> None:
        """Count how long one has taken."""
        self._total_s += took_s
        place = next((n for n, bound in enumerate(BOUNDS_S) if took_s <= bound), len(BOUNDS_S))
        self._took[place] += 1

    def add_to(self, figures: Figures, flow: str) -> None:
        """Add the counters to a flow's samples."""
        figures.put(m.CANARY_PRODUCED, self.produced, flow)
        figures.put(m.CANARY_RECEIVED, self.received, flow)
        figures.put(m.CANARY_LOST, self.lost, flow)
        figures.put(m.CANARY_DUPLICATES, self.duplicates, flow)
        figures.put(m.CANARY_DISORDER, self.disorder, flow)
        figures.put(m.CANARY_FAILURES, self.failures, flow)
        bounds = (*BOUNDS_S, float("inf"))
        counts = list(zip(bounds, accumulate(self._took), strict=True))
        figures.put(m.CANARY_ROUND_TRIP, Distribution(counts, self._total_s), flow)


class CanaryTrack:
    """One run's numbers. Not thread-safe.

    Args:
        run: which run's; nobody else writes under this name.
        first: the first number.
        counts: of the flow; this run's are added.
    """

    def __init__(self, run: str, first: int, counts: CanaryCounts) -> None:
        self._run, self._counts = run, counts
        self._next = first
        self._waiting: dict[int, float] = {}
        self._arrived: dict[int, None] = {}
        self._highest = [-1] * PARTITIONS
        # Numbers that may be on the source or not.
        self._given_up: dict[int, None] = {}
        self._copied_from_s = -math.inf

    def copied_from(self, now_s: float) -> None:
        """Take down that a run has begun: what was sent before waits since now, as nobody was to copy it."""
        self._copied_from_s = now_s

    def pause_s(self, interval_s: float, now_s: float) -> float:
        """Return how long to wait before the next are written; ``interval_s`` is what is wanted."""
        return max(interval_s, SLOW_S) if self._late_s(now_s) > SLOW_AFTER_S else interval_s

    def _late_s(self, now_s: float) -> float:
        return max(0.0, now_s - max(self._copied_from_s, min(self._waiting.values(), default=now_s)))

    def numbered(self) -> list[Canary]:
        """Return the next records, one for each partition; none of these numbers is given again."""
        found = [Canary(self._run, number) for number in range(self._next, self._next + PARTITIONS)]
        self._next += PARTITIONS
        return found

    def sent(self, canary: Canary, at_s: float) -> None:
        """Take down that the source has taken one that was begun to be sent at ``at_s``."""
        self._counts.produced += 1
        if canary.number not in self._arrived:
            self._waiting[canary.number] = at_s
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def gave_up(self, canary: Canary) -> None:
        """Take down that nobody knows whether the source has taken one, or will: it is never sent again."""
        self._given_up[canary.number] = None
        if len(self._given_up) > MOST_WAITING:
            del self._given_up[next(iter(self._given_up))]

    def expire(self, before_s: float) -> None:
        """Judge nothing that was sent before: the source does not keep it for longer."""
        self._waiting = {number: at_s for number, at_s in self._waiting.items() if at_s >= before_s}

    def met(self, values: Iterable[bytes | None], now_s: float) -> None:
        """Take down what a reader of the target has met, in the order of its partition."""
        for value in values:
            canary = Canary.decode(value)
            if canary is not None and (canary.drill, canary.kind) == (self._run, COMMITTED):
                self._met(canary, now_s)

    def forget(self) -> None:
        """Judge nothing of what is on its way, or was met: the copy is another log now, or was cut.

        It may be copied anew, from its beginning.
        """
        self._waiting.clear()
        self._arrived.clear()
        self._highest = [-1] * PARTITIONS

    def _met(self, canary: Canary, now_s: float) -> None:
        number, highest = canary.number, self._highest[canary.partition]
        if number in self._arrived:
            self._counts.duplicates += 1
            return
        self._remember(number)
        self._counts.received += 1
        # One that was given up may have reached the source behind later ones.
        if number < highest and number not in self._given_up:
            self._counts.disorder += 1
        self._highest[canary.partition] = max(number, highest)
        begun_s = self._waiting.pop(number, None)
        if begun_s is not None:
            self._counts.time(max(0.0, now_s - max(self._copied_from_s, begun_s)))
        # They were sent in this order, so what is earlier comes first.
        sooner = takewhile(lambda each: each < number, self._waiting)
        earlier = [each for each in sooner if each % PARTITIONS == canary.partition]
        for each in earlier:
            del self._waiting[each]
        # Otherwise the flow may have begun to copy behind them.
        if highest >= 0:
            self._counts.lost += len(earlier)

    def _remember(self, number: int) -> None:
        self._arrived[number] = None
        if len(self._arrived) > _REMEMBERED:
            del self._arrived[next(iter(self._arrived))]

    def add_to(self, figures: Figures, flow: str, now_s: float) -> None:
        """Add what is known to a flow's samples."""
        self._counts.add_to(figures, flow)
        figures.put(m.CANARY_WAITING, self._late_s(now_s), flow)


def next_number(values: Iterable[bytes | None]) -> int:
    """Return the number to go on with, behind the last records of each partition; it is the first one's."""
    known = [canary.number for value in values if (canary := Canary.decode(value)) is not None]
    highest = max(known, default=-1)
    return (highest // PARTITIONS + 1) * PARTITIONS
