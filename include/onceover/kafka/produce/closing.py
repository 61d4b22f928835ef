"""How long to leave a coordinator alone with a transaction that it is still closing. Pure.

EndTxn is answered when the outcome is certain; its markers are written a few milliseconds later. A Produce of
the next transaction that comes before is not refused but held by the broker, and tried again after
``add.partitions.to.txn.retry.backoff.ms``, 20 ms by default (docs/facts.md). So the few milliseconds are
waited out here, as many as the target turns out to need.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# A first Produce that took so much longer than it should was held.
_HELD_S: Final = 0.010
# What a held one adds, and what each that was not takes off again, times how many of them there have been
# since: one in 250 finds out whether less is enough. One in fifty was most of what p99 showed.
_LONGER_S, _SHORTER_S = 0.001, 0.000000032
# Half of what being held costs: waited for longer, it would cost more than it saves.
_MOST_S: Final = 0.010


@dataclass
class Closing:
    """What is known of one target's coordinator.

    Args:
        clock: the monotonic clock.
        pause_s: from the answer to EndTxn to the next transaction's first request.
    """

    clock: Callable[[], float] = time.monotonic
    pause_s: float = 0.004
    _ended_s: float = -math.inf
    _not_held: int = 0

    def ended(self) -> None:
        """Note that EndTxn was answered."""
        self._ended_s = self.clock()

    @property
    def left_s(self) -> float:
        """Seconds to wait before the next transaction begins."""
        return max(0.0, self._ended_s + self.pause_s - self.clock())

    def began(self, took_s: float, usual_s: float) -> None:
        """Note how long the first Produce of a transaction took, from when it was sent to its answer.

        Args:
            usual_s: how long one of its size takes.
        """
        if took_s - usual_s > _HELD_S:
            self.pause_s = min(_MOST_S, self.pause_s + _LONGER_S)
            self._not_held = 0
        else:
            self._not_held += 1
            self.pause_s = max(0.0, self.pause_s - _SHORTER_S * self._not_held)
