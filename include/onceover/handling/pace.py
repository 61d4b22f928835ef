"""How much a handler is given at once: as much as it deals with in a moment, whatever its speed. Pure.

Invariant: a transaction can be ended between two groups. Were a group to take longer than the target lets a
transaction stay open, the partition would never get behind it: the same group again after every reset. So
it begins small, follows what was measured, and keeps that over resets; what takes too long although it is a
single record is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

# Of an open transaction (15 s), so that several partitions and the way to the target fit in as well.
_STEP_S: Final = 1.0
# A millisecond for each of some 400 short records.
_FIRST_BYTES: Final = 64 << 10
# One measurement says little: a pause of the machine, a call that had to warm up.
_FASTER: Final = 4
# Longer than a healthy transaction may be open.
TOO_LONG_S: Final = 10.0
# A worker that was paused meanwhile is no slow handler.
_TIMES: Final = 3
# How long one answer of the source may keep the lane's other partitions from being read again.
_TURN_S: Final = 2.0
# What was handled of a large batch already has to be expanded once more: at most half of a turn.
_TURN_TIMES: Final = 2
_LEAST_BYTES: Final = 64 << 10
# As much as an answer holds at most with a generous memory: asking for less makes no difference any more.
_NO_LIMIT_BYTES: Final = 64 << 20


@dataclass
class Pace:
    """The speed of one partition's way through the handler, kept over resets."""

    _bytes: int = _FIRST_BYTES
    _careful_until: int = -1
    _slow_at: int = -1
    _slow_times: int = 0

    def share(self, most_bytes: int) -> int:
        """Return how much is handled next, never more than ``most_bytes``."""
        return max(1, min(most_bytes, self._bytes))

    def took(self, seconds: float, size_bytes: int, end: int) -> None:
        """Learn from a group of ``size_bytes`` before offset ``end``."""
        if end <= self._careful_until:
            return
        in_step = _STEP_S / max(seconds, 1e-6) * size_bytes
        self._bytes = max(1, int(min(in_step, self._bytes * _FASTER)))

    def interrupted(self, end: int) -> None:
        """Learn that a group did not come back: single records until ``end``, behind it, is reached.

        Not only the next one: the reset takes the partition back to where its last transaction ended.
        """
        self._bytes, self._careful_until = 1, end

    def too_slow(self, seconds: float, records: int, offset: int) -> bool:
        """Tell whether one record at ``offset`` has taken too long, again and again."""
        if seconds <= TOO_LONG_S or records > 1:
            return False
        self._slow_times = self._slow_times + 1 if self._slow_at == offset else 1
        self._slow_at = offset
        return self._slow_times >= _TIMES


@dataclass
class AnswerBudget:
    """How long an answer is worked off before the source is asked again, what is left of it included.

    One batch of a few kilobytes may hold a million records, an hour of a handler: meanwhile nobody would look
    whether the lane's other partitions have anything. What is read only to be given back is read in vain, so
    it becomes less each time.

    Args:
        clock: the monotonic clock.
        most_bytes: how much to ask the source for at once; None for as much as there is room for.
    """

    clock: Callable[[], float] = time.monotonic
    most_bytes: int | None = field(default=None, init=False)
    _began_s: float = 0.0
    _first_s: float | None = None

    def begin(self) -> None:
        """Note that an answer is there."""
        self._began_s, self._first_s = self.clock(), None

    def is_over(self) -> bool:
        """Tell whether others should be looked at, to be asked whenever that is possible."""
        took_s = self.clock() - self._began_s
        if self._first_s is None:
            self._first_s = took_s
        return took_s >= max(_TURN_S, _TURN_TIMES * self._first_s)

    def given_back(self, size_bytes: int) -> None:
        """Note that a turn was over before an answer of this size was worked off."""
        self.most_bytes = max(_LEAST_BYTES, min(size_bytes, self.most_bytes or size_bytes) // 2)

    def worked_off(self, size_bytes: int) -> None:
        """Note that an answer of this size was worked off; a large one quickly, and it may be larger."""
        if self.most_bytes is None or 2 * size_bytes < self.most_bytes:
            return
        if self.clock() - self._began_s < _TURN_S / 2:
            larger = 2 * self.most_bytes
            self.most_bytes = larger if larger < _NO_LIMIT_BYTES else None
