"""Putting all of a flow's groups in place on the target, or telling early that one would be left alone.

Invariant: who looks before writers are kept off, and who writes when they are, go by the same rule. What may
pass, such as a commit there that is not decided, is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from onceover.backoff import Backoff, Deadline
from onceover.drills.codes import DrillCode
from onceover.drills.switching.common import shown_already
from onceover.errors import NeedsOperator, Retriable
from onceover.groups.apply import AppliedGroups, GroupSync
from onceover.groups.plan import GroupPlan, Row
from onceover.planning import commands
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller
from onceover.planning.plan import Refusal


@dataclass(frozen=True)
class Placing:
    """Looks, and writes.

    Args:
        flow: its name; ``target`` that cluster's alias.
        groups: opens what puts the flow's groups in place.
        pause: waits so many seconds, between two looks at commits of somebody else.
    """

    flow: str
    target: str
    groups: Callable[[], AbstractContextManager[GroupSync]]
    pause: Callable[[float], bool]

    def check(self, deadline: Deadline) -> None:
        """Tell whether a group would be left alone, as things are now.

        Raises:
            NeedsOperator: NOT_READY.
            Retriable: NOT_READY, what may pass has not.
        """
        backoff = Backoff()
        while True:
            with self.groups() as sync:
                planned = sync.plan()
            left = planned.misplaced(_approved)
            if not left:
                return
            backoff.pause(deadline, self._passing(DrillCode.NOT_READY, left, [planned.exit_code]))

    def put(self, deadline: Deadline) -> tuple[GroupPlan, list[AppliedGroups]]:
        """Put each group in place; return the last plan, and all that was done.

        Raises:
            NeedsOperator: GROUPS_LEFT.
            Retriable: GROUPS_LEFT, what may pass has not.
        """
        rounds, backoff = list[AppliedGroups](), Backoff()
        while True:
            planned, applied = self.once()
            rounds.append(applied)
            left = applied.misplaced
            if not left:
                return planned, rounds
            # What could not be read when it was planned has nobody's leave when it is applied.
            codes = planned.exit_code, applied.exit_code
            backoff.pause(deadline, self._passing(DrillCode.GROUPS_LEFT, left, codes))

    def once(self) -> tuple[GroupPlan, AppliedGroups]:
        """Plan, and write what of it is approved."""
        with self.groups() as sync:
            planned = sync.plan()
            taken = Approval.of(row.item for row in planned.rows if _approved(row))
            return planned, sync.apply(Caller(shown_already, pause=self.pause), taken)

    def _passing(self, code: DrillCode, left: Sequence[Refusal], exit_codes: Collection[int]) -> Retriable:
        """Return what is wrong, for as long as it may pass.

        Raises:
            NeedsOperator: it will not.
        """
        plan = commands.command("groups", "plan", self.flow)
        kind = Retriable if Retriable.exit_code in exit_codes else NeedsOperator
        error = kind(
            f"{len(left)} positions are left alone: {left[0].object}: {left[0].message}",
            code=code,
            where=self.target,
            seen=", ".join(sorted({refusal.code for refusal in left})),
            resolve=f"{plan} has what it asks for: {left[0].resolve}; then run it again",
        )
        if isinstance(error, Retriable):
            return error
        raise error


def _approved(row: Row) -> bool:
    """Tell what is done of the risky: old commits of groups' own clients are replaced, looked at twice."""
    return row.decision.watch
