"""A login that worked and is refused now: it may be in the middle of being replaced.

Passwords and certificates are replaced on the brokers and at their clients one after the other, by hand or by
something that looks once a minute. In between, whoever has to connect anew is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

# A secret that is mounted into a container is there two minutes after it was changed; people take longer.
REPLACED_WITHIN_S: Final = 300.0


class Login:
    """What a client knows of its login at one cluster. Not thread-safe.

    Args:
        worked: it has let us in before, at another place of the same run.
        clock: monotonic seconds.
    """

    def __init__(self, *, worked: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._worked = worked
        self._clock = clock
        self._refused_since_s: float | None = None

    def carrying_on(self, before: Login) -> Login:
        """Return this one, knowing what another one of the same run knows."""
        self._worked, self._refused_since_s = before._worked, before._refused_since_s
        return self

    def accepted(self) -> None:
        """Note that it lets us in."""
        self._worked, self._refused_since_s = True, None

    def refused(self) -> bool:
        """Note that it does not; tell whether that may pass, because another one is about to be there."""
        if not self._worked:
            return False
        if self._refused_since_s is None:
            self._refused_since_s = self._clock()
        return self._clock() < self._refused_since_s + REPLACED_WITHIN_S
