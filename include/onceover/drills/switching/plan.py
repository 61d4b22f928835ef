"""What a switchover would do, as it is shown and approved. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.drills.course import DrillStep
from onceover.drills.modes import PROMOTE
from onceover.drills.switching.standing import SourceStanding
from onceover.planning.approval import Item, ObjectState, items_of
from onceover.planning.plan import Change, Plan
from onceover.shown import lined
from onceover.state.records.enrolment import Enrolment

_GO_ON: Final = "go on with"


@dataclass(frozen=True, kw_only=True)
class SwitchoverPlan(Plan):
    """What would be done.

    Args:
        topics: source topics that are switched over.
        steps: in their order.
        mode: ``planned`` or ``unplanned``.
        goes_on: id of the drill that has promoted them already; this one does what is behind that.
        standing: of an unplanned one, how source and flow are; None elsewhere, and behind a promotion.
        states: how what is changed stands, where another state of it is another question.
        reverse: the flow that copies back from then on, where there is one.
    """

    mode: str
    topics: tuple[str, ...]
    steps: tuple[DrillStep, ...]
    goes_on: str | None = None
    standing: SourceStanding | None = None
    states: Mapping[str, ObjectState] = field(default_factory=dict)
    reverse: str | None = None

    @property
    def items(self) -> Sequence[Item]:
        """What a person approves: each topic whose copy is given to clients, and whatever is given up.

        What was given up and need not be any more is fewer, and right. What was not, as it was not there to
        be given up, was not shown: a source that answers by now, a flow that copies again. Nor was what is
        another one by now: a copy that was made anew, a partition that was stopped for another reason.
        """
        return items_of(self.changes, self.states, exact=True)

    @property
    def own_items(self) -> Sequence[Item]:
        """What is left of them to who has promoted the topics: that yes is for what is behind it, too."""
        return items_of([change for change in self.changes if change.what != _GO_ON], exact=True)

    @property
    def exit_code(self) -> int:
        """Always 0: what is in the way is told by *look*, and by ``drill plan``."""
        return 0

    def document(self) -> dict[str, Any]:
        """Return the plan's JSON."""
        return {
            **super().document(),
            "mode": self.mode,
            "topics": list(self.topics),
            "steps": [step.document() for step in self.steps],
            "point_of_no_return": PROMOTE,
            "goes_on": self.goes_on,
            "standing": None if self.standing is None else self.standing.document(),
        }

    def describe(self) -> str:
        """Return the plan as text."""
        lines = [f"{self.mode} switchover of flow {self.flow}"]
        if self.goes_on:
            lines.append(
                f"  drill {self.goes_on} has passed the point of no return: this one goes on behind it"
            )
        if self.standing is not None:
            lines.append(f"  {self.standing}")
        lines += [line for change in self.changes for line in change.describe()]
        lines.append("steps:")
        for number, step in enumerate(self.steps, 1):
            lines.append(f"  {number}. {step.title} (at most {step.deadline_s:.0f} s)")
            lines.append(f"     by hand: {step.by_hand}")
            if step.name == PROMOTE:
                lines.append("  ---- point of no return: before it a failing run undoes itself, behind it it")
                lines.append("       only goes forward, and goes on when it is run again")
        return lined(lines)


def gone_on(enrolled: Sequence[Enrolment], drill: str) -> tuple[Change, ...]:
    """Return that what is behind the promotion of topics by a drill is done for it."""
    behind = f"switchover {drill}"
    return tuple(
        Change(_GO_ON, each.target, "promoted", behind, "it was promoted, and that is not finished")
        for each in enrolled
    )


def changes_of(
    enrolled: Sequence[Enrolment],
    source: str,
    target: str,
    fence: str | None,
    redirect: str,
    reverse: str | None,
    standing: SourceStanding | None = None,
    *,
    whatever: bool = False,
) -> tuple[Change, ...]:
    """Return what is changed for good.

    Args:
        enrolled: topics whose copies are given to clients; none where they were already.
        fence: what keeps writers off, None where nobody does; ``redirect`` what brings clients over;
            ``reverse`` the flow that copies back from then on.
        standing: how source and flow are, where nothing is waited for.
        whatever: anything may be lost, however they are when it is done.
    """
    missing = {} if standing is None else standing.missing
    topics = [
        Change(
            "promote",
            each.target,
            "a copy",
            "written to by clients",
            f"{each.source} on {source} no longer{_known(missing.get(each.source)) if whatever else ''}",
            "none" if standing is None else "skip",
            None if whatever else missing.get(each.source),
        )
        for each in enrolled
    ]
    return (
        *([] if fence is None else [Change("fence", f"writers on {source}", "free", "kept off", fence)]),
        *([] if standing is None else standing.given_up(whatever=whatever)),
        *([] if standing is None else standing.lost_copies(enrolled)),
        *topics,
        Change("redirect", "clients", source, target, redirect),
        *([] if reverse is None else [Change("start", reverse, None, "behind the promotion", "copies back")]),
    )


def _known(missing: int | None) -> str:
    return "" if missing is None else f"; {missing} offsets are known to be there alone"
