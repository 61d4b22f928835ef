"""A plan that was computed again once nobody else writes: is it still what was said yes to? Pure."""

from __future__ import annotations

from typing import TypeVar

from onceover.errors import NeedsOperator
from onceover.planning.approval import ApprovablePlan, Approval, fenced_so_far
from onceover.planning.codes import PlanningCode
from onceover.planning.journal import Journal
from onceover.planning.operation import Caller
from onceover.planning.plan import Plan

P = TypeVar("P", bound=ApprovablePlan)


def agreed_anew(first: P, now: P, approved: Approval, journal: Journal, caller: Caller, *, whole: bool) -> P:
    """Return the plan to carry out behind a seizure, shown and written down again where it is another one.

    It is another one also where only what it refuses is: the outcome tells of no refusal that was not shown.

    Args:
        first: what was shown and written down; ``now`` was computed since everybody was fenced.
        whole: it is done as a whole or not at all; otherwise what is refused by now is left out.

    Raises:
        NeedsOperator: PLAN_CHANGED, it would be something else than was approved, or ``whole`` and something
            is refused by now. Everybody is fenced, and no progress was written.
    """
    if whole and now.refused:
        raise NeedsOperator(
            f"{fenced_so_far(now.flow)}: {now.operation} is not possible any more",
            code=PlanningCode.PLAN_CHANGED,
            where=now.title,
            seen="; ".join(f"{r.object}: {r.message}" for r in now.refused),
            resolve="plan again to see what can be done",
        )
    if (now.plan_id, _refused(now)) != (first.plan_id, _refused(first)):
        approved.check(now.items, now.title, done=fenced_so_far(now.flow))
        caller.announce(now)
        journal.planned(now)
    return now


def _refused(plan: Plan) -> set[tuple[str, str]]:
    """Return what is refused and why, without words in which a live cluster's numbers move on."""
    return {(refusal.object, refusal.code) for refusal in plan.refused}
