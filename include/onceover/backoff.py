"""Time budgets, and jittered pauses within them: how everything here retries."""

from __future__ import annotations

import random
import time

from onceover.errors import Retriable

# Of an attempt when patience is over: long enough for a healthy broker, so that the others are still asked.
_SHORTEST_WAIT_S = 0.25


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

    def got_on(self) -> None:
        """Note that the work gets on: a point in time does not move for that."""


class StallLimit(Deadline):
    """A deadline for work of any length: whoever gets on has all of the time again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self._seconds = seconds

    def got_on(self) -> None:
        """Begin with all of the time again."""
        self._at_s = time.monotonic() + self._seconds


class Patience:
    """How long a cluster may leave its caller without an answer, over all requests together.

    Only waiting that led to nothing counts: a large cluster that answers is never given up on, and one that
    is silent holds nobody up for longer than this. Not thread-safe, like the cluster that it belongs to.

    Args:
        seconds: None for somebody who has all the time of the world.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.limit_s = seconds
        self.renew()

    @property
    def left_s(self) -> float:
        """Seconds that may still be wasted, never negative."""
        return max(0.0, self._left_s)

    def share_s(self, usual_s: float) -> float:
        """Return how long the next attempt may wait: half of what is left, so that others get their turn.

        Args:
            usual_s: how long it waits without a limit; never more than that.
        """
        return min(usual_s, max(_SHORTEST_WAIT_S, self._left_s / 2))

    def renew(self) -> None:
        """Begin with all of it again."""
        self._left_s = float("inf") if self.limit_s is None else self.limit_s

    def spend(self, seconds: float) -> None:
        """Note that somebody has waited for nothing."""
        self._left_s -= seconds


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
        self.wait(deadline)

    def wait(self, deadline: Deadline) -> None:
        """Wait for the next try, never beyond the deadline."""
        # Long after the cap, the power would be too large for a float.
        ceiling_s = min(self._cap_s, self._first_s * 2 ** min(self._tries, 30))
        self._tries += 1
        time.sleep(min(deadline.left_s, random.uniform(ceiling_s / 2, ceiling_s)))

    def reset(self) -> None:
        """Begin with short pauses again, after something has worked."""
        self._tries = 0
