"""One time budget, and jittered pauses within it: how everything here retries."""

from __future__ import annotations

import random
import time

from onceover.errors import Retriable


class Deadline:
    """A point in time that several steps share. Monotonic: a clock change does not move it."""

    def __init__(self, seconds: float) -> None:
        self._at_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._at_s - time.monotonic())

    @property
    def passed(self) -> bool:
        """True when nothing is left."""
        return self.left_s == 0.0


class Backoff:
    """Pauses that double up to a cap, with full jitter, so that two contenders do not stay in step."""

    def __init__(self, first_s: float = 0.02, cap_s: float = 1.0) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._tries = 0

    def pause(self, deadline: Deadline, problem: Exception) -> None:
        """Wait for the next try.

        Raises:
            Retriable: from ``problem``, when the deadline has passed.
        """
        if deadline.passed:
            if isinstance(problem, Retriable):
                raise problem
            raise Retriable(str(problem)) from problem
        ceiling_s = min(self._cap_s, self._first_s * 2**self._tries)
        self._tries += 1
        time.sleep(min(deadline.left_s, random.uniform(ceiling_s / 2, ceiling_s)))

    def reset(self) -> None:
        """Begin with short pauses again, after something has worked."""
        self._tries = 0
