"""Keeping groups in place continuously: plan and apply at an interval, with the delay measured.

Invariant: a cluster that is away ends nothing; what a person has to decide is told once, not at every look. A
look that was cut short says so: what it has not written may be out of place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from onceover.errors import Retriable
from onceover.exitstatus import INTERRUPTED
from onceover.groups.apply import AppliedGroups
from onceover.groups.plan import GroupPlan
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller, Pause, Tell, wait
from onceover.planning.plan import Refusal, exit_of

# Enough for a day at the default interval.
_KEPT: Final = 10_000
# Object and code: the numbers in the texts change all the time.
Told = tuple[str, str]


class Applies(Protocol):
    """What is needed of ``GroupSync``."""

    def plan(self) -> GroupPlan:
        """Return what would be done now."""

    def apply(self, caller: Caller, approval: Approval | None = None) -> AppliedGroups:
        """Plan, and write it."""


@dataclass
class Followed:
    """What a continuous sync did.

    Args:
        cycles: how many looks; ``failed`` of them met a cluster that was away.
        changes: how many offsets were written; ``positions`` there were at the last look, written or not.
        refused: what is left alone at the last look.
        temporary: True when the last look was not complete; ``interrupted`` when it was cut short.
        waits_s: for each look with writes, the longest that a commit can have waited for its counterpart.
    """

    cycles: int = 0
    failed: int = 0
    changes: int = 0
    positions: int = 0
    refused: list[Refusal] = field(default_factory=list)
    temporary: bool = False
    interrupted: bool = False
    waits_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))

    @property
    def waiting(self) -> list[Refusal]:
        """What is left alone at the last look."""
        return self.refused

    @property
    def counts(self) -> dict[str, Any]:
        """Counts: what is kept where everybody may look."""
        return {"changes_made": self.changes, "positions": self.positions, "left": len(self.refused)}

    @property
    def exit_code(self) -> int:
        """As after the last look alone."""
        if self.interrupted:
            return INTERRUPTED
        return exit_of(self.refused, passes=self.temporary)

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
            "interrupted": self.interrupted,
        }

    def describe(self) -> str:
        """Return it as text."""
        cut = ", interrupted in the last look" if self.interrupted else ""
        text = f"looked {self.cycles} times, wrote {self.changes} offsets{cut}"
        if not self.waits_s:
            return text
        delay = self.document()["delay_ms"]
        return f"{text}; a commit waited at most {delay['p50']} ms (median), {delay['max']} ms (longest)"


@dataclass(frozen=True)
class GroupFollowing:
    """Putting groups in place again and again, as one operation; what each look does is told, not announced.

    Args:
        sync: plans and applies once.
        interval_s: from one look to the next.
        pause: waits between looks; True when it is time to stop.
        watch: waits within one, where it has to look twice; True cuts that look short.
        clock: seconds.
    """

    sync: Applies
    interval_s: float
    pause: Pause
    watch: Pause = wait
    clock: Callable[[], float] = time.monotonic

    def plan(self) -> GroupPlan:
        """Return what the first look would do."""
        return self.sync.plan()

    def apply(self, caller: Caller, approval: Approval | None = None) -> Followed:
        """Plan and apply every ``interval_s`` seconds until it is time to stop.

        Args:
            caller: told what is written, what is left alone and no longer, and what fails, a line each.
            approval: which risky moves somebody has said yes to; None for all.

        Raises:
            UsageError, NeedsOperator: what waiting cannot mend.
        """
        followed, each_look = Followed(), Caller(lambda _: None, pause=self._within)
        told: set[Told] = set()
        while True:
            begun_s = self.clock()
            try:
                told = _look(self.sync, followed, each_look, caller.tell, approval, told)
            except Retriable as error:
                followed.failed += 1
                followed.temporary = True
                caller.tell(f"not this time: {error}")
            followed.cycles += 1
            if self.pause(max(0.0, self.interval_s - (self.clock() - begun_s))):
                return followed

    def _within(self, seconds: float) -> bool:
        # A look that only has to write does so, whoever wants to stop: its groups are in place then.
        return seconds > 0.0 and self.watch(seconds)


def _look(
    sync: Applies,
    followed: Followed,
    caller: Caller,
    tell: Tell,
    approval: Approval | None,
    told: set[Told],
) -> set[Told]:
    applied = sync.apply(caller, approval)
    followed.refused = [*applied.plan.refused, *applied.refused]
    followed.temporary = applied.temporary or applied.plan.temporary
    followed.interrupted = applied.interrupted
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
