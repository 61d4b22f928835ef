"""How much a handler is given at once: as much as it deals with in a moment, whatever its speed. Pure.

Invariant: a transaction can be ended between two groups. Were a group to take longer than the target lets a
transaction stay open, the partition would never get behind it: the same group again after every reset. So
it begins small, follows what was measured, and keeps that over resets; what takes too long although it is a
single record is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Of an open transaction (15 s), so that several partitions and the way to the target fit in as well.
_STEP_S: Final = 1.0
# A millisecond for each of some 400 short records.
_FIRST_BYTES: Final = 64 << 10
# One measurement says little: a pause of the machine, a call that had to warm up.
_FASTER: Final = 4
# Longer than a healthy transaction may be open.
TOO_LONG_S: Final = 10.0
# As long as the target lets a transaction stay open: what a call gives later cannot be committed any more.
LONGEST_S: Final = 15.0
# A worker that was paused meanwhile is no slow handler.
_TIMES: Final = 3


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
