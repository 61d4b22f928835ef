"""A copy whose processes were killed is started again at once, by whoever started it.

Nobody is asked meanwhile: a scheduler that tries the task again needs several seconds to notice, to wait and
to start. It stays behind this: what is killed again and again is an error that somebody has to hear of.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

# At once after an accident; a process that dies of something lasting gives it a moment to pass.
_PAUSES_S: Final = (0.0, 2.0, 8.0)
RESTARTS: Final = len(_PAUSES_S)
# Longer than what fails by itself takes to do so: minutes of waiting for Spark, and for a cluster.
WELL_AFTER_S: Final = 600.0
_WITHOUT_END: Final = re.compile("forever|caught-up")


def was_well(ran_s: float) -> bool:
    """Tell whether a run has lasted so long that it was well: what ended it is a new story."""
    return ran_s >= WELL_AFTER_S


class RunEnd(Protocol):
    """How a run has ended, as far as that decides whether another one follows at once."""

    @property
    def killed(self) -> bool:
        """Whether its processes were killed."""
        ...


_End = TypeVar("_End", bound=RunEnd)


class Restarts:
    """What follows when a run's processes were killed.

    Args:
        until: when the run is to end. One for a time is left to its caller: started again it would be longer.
        most: in a row.

    Attributes:
        made: how many, in all.
        ran_s: how long the last run has lasted.
    """

    def __init__(self, until: str, most: int = RESTARTS) -> None:
        self.most = min(most, RESTARTS) if _WITHOUT_END.fullmatch(until) else 0
        self.number = 0
        self.made = 0
        self.ran_s = 0.0

    def to_its_end(self, once: Callable[[], _End], pause: Callable[[_End, float], None]) -> _End:
        """Run a job as often as it takes; return how it has ended the last time.

        Args:
            once: runs it to an end.
            pause: is told of an end that another run follows, and how many seconds to wait for that; raises
                where none shall follow.
        """
        while True:
            begun_s = time.monotonic()
            end = once()
            self.ran_s = time.monotonic() - begun_s
            pause_s = self.pause_s(self.ran_s) if end.killed else None
            if pause_s is None:
                return end
            pause(end, pause_s)

    def pause_s(self, ran_s: float) -> float | None:
        """Count a run that was killed; return how long to wait before the next, None to give up.

        Args:
            ran_s: how long it had run.
        """
        if was_well(ran_s):
            self.number = 0
        if self.number >= self.most:
            return None
        self.number += 1
        self.made += 1
        return _PAUSES_S[self.number - 1]

    @property
    def words(self) -> str:
        """What is said of the run that follows, behind what has ended the one before."""
        return f"started again at once, {self.number} of {self.most}"
