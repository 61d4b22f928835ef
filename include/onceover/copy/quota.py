"""A producer quota of the target (KIP-13, KIP-219), and how a lane keeps to it. Pure.

Invariant: no transaction waits for a quota. The answer to what went beyond it comes at once and says for how
long the broker will not listen on that connection; by then the target would have ended the transaction, and
the next attempt would send the same again. So a transaction ends with the first such answer, and the pause is
made between two of them. What is on its way by then has to be answered still: little near the target; far
away it may be too much the first time a quota is met, and that one transaction is begun anew.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# How long one transaction should have to be paid for: more often costs transactions, less often latency.
_AIM_S: Final = 5.0
# As much as is ever sent at once.
_NO_LIMIT_BYTES: Final = 64 << 20
# Shorter pauses come with other bursts, too, and are nobody's business; nor is a single one that is short.
_NOTED_S: Final = 5.0
_NOTED_TIMES: Final = 3
# The same answer, looked at again.
_SAME_S: Final = 0.001
# Not met for so long, it was lifted, or is enough by now.
_OVER_S: Final = 60.0


@dataclass
class Quota:
    """What one lane knows of the target's quota; kept over resets. Not thread-safe.

    Args:
        clock: the monotonic clock.
        most_bytes: how much to send at once; None while there is no limit.
    """

    clock: Callable[[], float] = time.monotonic
    most_bytes: int | None = None
    _until_s: float = -math.inf
    _times: int = 0
    _longest_s: float = 0.0

    def told(self, pause_s: float, sent_bytes: int) -> None:
        """Take for how long the target wants no more, after so much was sent in a transaction."""
        now_s = self.clock()
        if pause_s <= 0 or now_s + pause_s <= self._until_s + _SAME_S:
            return
        if now_s - self._until_s > _OVER_S:
            self._times, self._longest_s = 0, 0.0
        # Within a pause it is what ends the transaction that makes it longer.
        self._times += now_s >= self._until_s
        self._until_s = now_s + pause_s
        self._longest_s = max(self._longest_s, pause_s)
        if not sent_bytes:
            # The flow's own small records were answered: how much data is too much, they do not say.
            return
        wanted = max(1, int(sent_bytes * _AIM_S / pause_s))
        if self.most_bytes is not None:
            wanted = min(wanted, 2 * self.most_bytes)
        self.most_bytes = wanted if wanted < _NO_LIMIT_BYTES else None

    def passed(self, sent_bytes: int) -> None:
        """Note that a transaction of this size was committed; without a pause, more may be sent next time."""
        if self.most_bytes is not None and not self.wait_s and 2 * sent_bytes >= self.most_bytes:
            larger = 2 * self.most_bytes
            self.most_bytes = larger if larger < _NO_LIMIT_BYTES else None

    @property
    def wait_s(self) -> float:
        """Seconds until the target takes more data."""
        return max(0.0, self._until_s - self.clock())

    @property
    def slows(self) -> bool:
        """True while the quota is what decides how fast the copy is."""
        if self.clock() - self._until_s > _OVER_S:
            return False
        return self._times >= _NOTED_TIMES or self._longest_s >= _NOTED_S
