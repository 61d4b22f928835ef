"""How long a driver bears an outage, and from when on people hear of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from onceover.errors import Retriable

log = logging.getLogger(__name__)

# A coordinator of a new cluster, or a broker that restarts, is there again before.
QUIET_S: Final = 5.0
_AGAIN_S: Final = 30.0


class Outage:
    """Failures in a row, from the first to the success that ends them.

    Args:
        limit_s: how long they may last.
        clock: monotonic seconds.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._since_s: float | None = None
        self._next_s = 0.0

    def over(self) -> None:
        """Note a success; the end of an outage that was spoken of is, too."""
        if self._since_s is not None and self._next_s > self._since_s + QUIET_S:
            log.info("the clusters answer again, after %.0f s", self._clock() - self._since_s)
        self._since_s = None

    def met(self, error: Retriable) -> None:
        """Note a failure, and speak of it when it lasts.

        Raises:
            Retriable: ``error``, when it has lasted for too long.
        """
        now_s = self._clock()
        if self._since_s is None:
            self._since_s, self._next_s = now_s, now_s + QUIET_S
        if now_s >= self._next_s:
            self._next_s = now_s + _AGAIN_S
            log.warning("the leader cannot reach its clusters, for %.0f s: %s", now_s - self._since_s, error)
        else:
            log.debug("the leader tries again: %s", error)
        if now_s - self._since_s > self._limit_s:
            raise error
