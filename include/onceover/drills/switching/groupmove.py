"""Putting all of a flow's groups in place on the target, or telling early that one would be left alone.

Invariant: who looks before writers are kept off, and who writes when they are, go by the same rule. What may
pass, such as a commit there that is not decided, is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from onceover.backoff import Backoff, Deadline
from onceover.drills.codes import DrillCode
from onceover.drills.switching.common import shown_already
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.groups.apply import AppliedGroups, GroupSync
from onceover.groups.codes import GroupCode
from onceover.groups.plan import GroupPlan
from onceover.planning import commands
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller
from onceover.planning.plan import Refusal

E = TypeVar("E", bound=OnceoverError)
_MOVES: Final = "somebody commits without being a member: {} became {} between two looks"
_STOP: Final = "stop it, or leave the group out with groups.exclude"


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

    def check(self, deadline: Deadline) -> GroupPlan:
        """Tell whether a group would be left alone, as things are now; return the plan.

        Raises:
            NeedsOperator: NOT_READY.
            Retriable: NOT_READY, what may pass has not.
        """
        backoff = Backoff()
        while True:
            with self.groups() as sync:
                planned = sync.plan()
                sync.release(planned)
            left = planned.misplaced(lambda row: row.goes_unasked)
            if not left:
                return planned
            backoff.pause(deadline, self._passing(DrillCode.NOT_READY, left))

    def release(self) -> None:
        """End what is pending on the target because the marker of a write of ours was lost (KAFKA-20734)."""
        with self.groups() as sync:
            sync.release(sync.plan())

    def check_rests(self, before: GroupPlan, deadline: Deadline) -> None:
        """Tell whether somebody commits on the target, without being a member, what would be replaced.

        Args:
            before: as ``check`` has returned it, longer ago than a commit takes.

        Raises:
            As ``check``.
        """
        seen = {row.object: row.facts.current for row in before.rows}
        moving = [
            Refusal(
                row.object, GroupCode.COMMITS_MOVE, _MOVES.format(seen[row.object], row.facts.current), _STOP
            )
            for row in self.check(deadline).rows
            if row.goes_unasked and seen.get(row.object, row.facts.current) != row.facts.current
        ]
        if moving:
            raise self._left(NeedsOperator, DrillCode.NOT_READY, moving)

    def put(self, deadline: Deadline, done: Callable[[AppliedGroups], None]) -> GroupPlan:
        """Put each group in place; return the last plan.

        Args:
            done: told what was done each time, also where that was not all.

        Raises:
            NeedsOperator: GROUPS_LEFT.
            Retriable: GROUPS_LEFT, what may pass has not.
        """
        backoff = Backoff()
        while True:
            planned, applied = self.once()
            done(applied)
            left = applied.misplaced
            if not left:
                return planned
            if any(refusal.passes for refusal in planned.misplaced()):
                # What could not be read when it was planned has nobody's leave when it is applied.
                left = [replace(r, passes=r.passes or r.code == GroupCode.NOT_APPROVED) for r in left]
            backoff.pause(deadline, self._passing(DrillCode.GROUPS_LEFT, left))

    def once(self) -> tuple[GroupPlan, AppliedGroups]:
        """Plan, and write what of it is approved."""
        with self.groups() as sync:
            planned = sync.plan()
            taken = Approval.of(row.item for row in planned.rows if row.goes_unasked)
            return planned, sync.apply(Caller(shown_already, pause=self.pause), taken)

    def _passing(self, code: DrillCode, left: Sequence[Refusal]) -> Retriable:
        """Return what is wrong, where all of it may pass.

        Raises:
            NeedsOperator: some of it will not.
        """
        lasting = [refusal for refusal in left if not refusal.passes]
        if lasting:
            raise self._left(NeedsOperator, code, lasting)
        return self._left(Retriable, code, left)

    def _left(self, kind: type[E], code: DrillCode, left: Sequence[Refusal]) -> E:
        plan = commands.command("groups", "plan", self.flow)
        return kind(
            f"{len(left)} positions are left alone: {left[0].object}: {left[0].message}",
            code=code,
            where=self.target,
            seen=", ".join(sorted({refusal.code for refusal in left})),
            resolve=f"{plan} has what it asks for: {left[0].resolve}; then run it again",
        )
