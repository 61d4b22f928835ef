"""How much may be on its way to a broker: what the distance needs, and no more. Pure.

Invariant: a few requests may always be unanswered, and more only while their bytes are below what is allowed.

A broker works off one connection's requests one after the other, so that near it a few in flight are enough,
and more would only hold memory and come too late to hear of a quota. A round trip away it idles unless what
it works off in that time is there already: twice the rate at which it has answered times the shortest answer
(as TCP's BBR estimates it). While what is on its way is what limits the rate, it doubles each round trip.

Answers have to be taken when they come: read later, they would tell of our own pauses, not of the distance.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

# They keep a broker busy while the next round is stamped here.
FEW_REQUESTS: Final = 4
# How long the best figures hold: a way that has become longer, or a broker that has become slower, is
# believed by then.
_HOLDS_S: Final = 10.0
# One for what is on its way, one for what the last answers have made room for.
_GAIN: Final = 2.0


class Departure(NamedTuple):
    """A request on its way: its size, when it left, how much had been answered by then, and since when.

    ``alone``: nothing was on its way before it, so that its answer tells of the way, and not of a queue.
    """

    size_bytes: int
    at_s: float
    answered_bytes: int
    answered_s: float
    alone: bool


@dataclass
class _Best:
    """The best of a figure's values over the last ``_HOLDS_S``, or up to twice as long."""

    better: Callable[[float, float], float]
    since_s: float = 0.0
    now: float | None = None
    before: float | None = None

    def take(self, value: float, at_s: float) -> None:
        if at_s - self.since_s >= _HOLDS_S:
            self.since_s, self.before, self.now = at_s, self.now, None
        self.now = value if self.now is None else self.better(self.now, value)

    @property
    def value(self) -> float | None:
        if self.now is None or self.before is None:
            return self.before if self.now is None else self.now
        return self.better(self.now, self.before)


@dataclass
class InFlight:
    """What one producer has on its way to one broker. Not thread-safe.

    Args:
        clock: the monotonic clock.
        requests: how many are unanswered.
    """

    clock: Callable[[], float] = time.monotonic
    requests: int = 0
    _bytes: int = 0
    _answered_bytes: int = 0
    _answered_s: float = 0.0
    _alone_s: float = -math.inf
    _round_trip_s: _Best = field(default_factory=lambda: _Best(min))
    _bytes_per_s: _Best = field(default_factory=lambda: _Best(max))

    def full(self, most_bytes: int) -> bool:
        """Tell whether an answer should be waited for before anything else is sent.

        Args:
            most_bytes: never more than this beyond the first few requests.
        """
        if self.requests < FEW_REQUESTS:
            return False
        # Each transaction begins with a request alone. Where there are none, in at least once, one is made.
        is_stale = self.clock() - self._alone_s >= _HOLDS_S
        return is_stale or self._bytes >= min(most_bytes, self.size_bytes)

    @property
    def size_bytes(self) -> int:
        """How many bytes the distance needs on their way."""
        round_trip_s, bytes_per_s = self._round_trip_s.value, self._bytes_per_s.value
        if round_trip_s is None or bytes_per_s is None:
            return 0
        return int(_GAIN * round_trip_s * bytes_per_s)

    @property
    def usual_s(self) -> float:
        """How long what is on its way should take, at the least; 0 where that is not known."""
        round_trip_s, bytes_per_s = self._round_trip_s.value, self._bytes_per_s.value
        return round_trip_s + self._bytes / bytes_per_s if round_trip_s and bytes_per_s else 0.0

    def sent(self, size_bytes: int) -> Departure:
        """Note a request; the result is handed back with its answer."""
        now_s = self.clock()
        alone = not self.requests
        if alone:
            # Nothing was asked for meanwhile: a pause of ours is no slowness of the target.
            self._answered_s = self._alone_s = now_s
        self.requests += 1
        self._bytes += size_bytes
        return Departure(size_bytes, now_s, self._answered_bytes, self._answered_s, alone)

    def answered(self, request: Departure) -> None:
        """Note the answer of a request."""
        now_s = self.clock()
        self.requests -= 1
        self._bytes -= request.size_bytes
        self._answered_bytes += request.size_bytes
        self._answered_s = now_s
        if request.alone:
            self._round_trip_s.take(now_s - request.at_s, now_s)
        took_s = now_s - request.answered_s
        if took_s > 0:
            self._bytes_per_s.take((self._answered_bytes - request.answered_bytes) / took_s, now_s)
