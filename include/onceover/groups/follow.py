"""Keeping groups in place continuously: plan and apply at an interval, with the delay measured.

Invariant: a cluster that is away ends nothing; what a person has to decide is told once, not at every look.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from onceover.errors import Retriable
from onceover.groups.apply import Announce, AppliedGroups, Pause
from onceover.groups.plan import exit_code
from onceover.planning.plan import Refusal

# Enough for a day at the default interval.
_KEPT: Final = 10_000
# Object and code: the numbers in the texts change all the time.
Told = tuple[str, str]


class Applies(Protocol):
    """What is needed of ``GroupSync``."""

    def apply(self, announce: Announce, pause: Pause) -> AppliedGroups:
        """Plan, and write it."""


@dataclass
class Followed:
    """What a continuous sync did.

    Args:
        cycles: how many looks; ``failed`` of them met a cluster that was away.
        changes: how many offsets were written; ``positions`` there were at the last look, written or not.
        refused: what is left alone at the last look.
        temporary: True when the last look was not complete.
        waits_s: for each look with writes, the longest that a commit can have waited for its counterpart.
    """

    cycles: int = 0
    failed: int = 0
    changes: int = 0
    positions: int = 0
    refused: list[Refusal] = field(default_factory=list)
    temporary: bool = False
    waits_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))

    @property
    def exit_code(self) -> int:
        """As after the last look alone."""
        return exit_code(self.refused, temporary=self.temporary)

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        ordered = sorted(self.waits_s)
        return {
            "cycles": self.cycles,
            "failed": self.failed,
            "changes_made": self.changes,
            "delay_ms": {
                "p50": round(ordered[len(ordered) // 2] * 1000) if ordered else None,
                "max": round(ordered[-1] * 1000) if ordered else None,
            },
            "refused": [refusal.document() for refusal in self.refused],
        }

    def describe(self) -> str:
        """Return it as text."""
        text = f"looked {self.cycles} times, wrote {self.changes} offsets"
        if not self.waits_s:
            return text
        delay = self.document()["delay_ms"]
        return f"{text}; a commit waited at most {delay['p50']} ms (median), {delay['max']} ms (longest)"


def follow(
    sync: Applies,
    interval_s: float,
    pause: Pause,
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Followed:
    """Plan and apply every ``interval_s`` seconds until ``pause`` says that it is time to stop.

    Args:
        tell: told what is written, what is left alone and no longer, and what fails, a line each.

    Raises:
        UsageError, NeedsOperator: what waiting cannot mend.
    """
    followed = Followed()
    told: set[Told] = set()
    while True:
        begun_s = clock()
        try:
            told = _look(sync, followed, pause, tell, told)
        except Retriable as error:
            followed.failed += 1
            followed.temporary = True
            tell(f"not this time: {error}")
        followed.cycles += 1
        if pause(max(0.0, interval_s - (clock() - begun_s))):
            return followed


def _look(
    sync: Applies, followed: Followed, pause: Pause, tell: Callable[[str], None], told: set[Told]
) -> set[Told]:
    applied = sync.apply(lambda _: None, pause)
    followed.refused = [*applied.plan.refused, *applied.refused]
    followed.temporary = applied.temporary or applied.plan.temporary
    followed.changes += len(applied.done)
    followed.positions = len(applied.plan.rows)
    if applied.done:
        wait_s = applied.since_s if applied.since_s is not None else applied.delay_s or 0.0
        followed.waits_s.append(wait_s)
        tell(f"{len(applied.done)} offsets written, {wait_s * 1000:.0f} ms after they were committed at most")
    now = {(refusal.object, refusal.code) for refusal in followed.refused}
    for refusal in followed.refused:
        if (refusal.object, refusal.code) not in told:
            tell(f"left alone: {refusal.object}: {refusal.message}; {refusal.resolve}")
    for subject, code in sorted(told - now):
        tell(f"no longer: {subject}: {code}")
    return now
