"""What somebody was shown and said yes to, and whether a plan is still that. Pure.

Invariant: an approval covers the changes that were shown, each in the state of things that it was shown for,
and nothing else. Fewer are right: an interrupted try has made some of them. The same change is another one
as soon as somebody has changed its object by hand, so an approval is good for one time, however often it is
tried; what it has done already is told by its id, which is written down with the change itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceover.errors import NeedsOperator
from onceover.planning import commands
from onceover.planning.codes import PlanningCode
from onceover.planning.plan import Change, Plan, exit_of

# A flow that runs, or its source, goes on while somebody reads. What would be repeated or skipped beyond
# twice of what was shown is another matter; below so many offsets it is not worth asking again.
_GROWN: Final = 2
_FEW: Final = 10_000
_NAMED: Final = 5


@dataclass(frozen=True)
class ObjectState:
    """How the object of a change stands.

    Args:
        state: what the change was planned for, as people read it; it has to be the same.
        changed: approval under which the object was changed by hand the last time; empty for never, None
            where that is not kept.
    """

    state: str = ""
    changed: str | None = None


@dataclass(frozen=True)
class Item:
    """One change, as far as it is approved.

    Args:
        what: kind of change and its object; where it leads to only where that was approved, too.
        risk: as in ``Change``; ``records`` likewise.
    """

    what: str
    risk: str = "none"
    records: int | None = None
    standing: ObjectState = ObjectState()

    def __str__(self) -> str:
        return self.what if self.risk == "none" else f"{self.what} ({self.risk})"


@dataclass(frozen=True)
class Consent:
    """Who has said yes, for the journal.

    Args:
        by: the person who answered, as their login calls them.
        started_by: who started the run that asked; None where that was nobody, such as a schedule.
        run: where the question was put.
        waited_s: seconds from the question to the answer; None where nobody was asked.
    """

    by: str
    started_by: str | None
    run: str
    waited_s: float | None = None

    def document(self) -> dict[str, str | float | None]:
        """Return it as it stands in a journal."""
        return {"by": self.by, "started_by": self.started_by, "run": self.run, "waited_s": self.waited_s}


@dataclass(frozen=True)
class Approval:
    """What was shown, by ``Item.what``; ``id`` tells it from every other.

    ``consent`` is None where it was the one who typed the command.
    """

    id: str
    items: Mapping[str, Item]
    consent: Consent | None = None

    @classmethod
    def of(cls, items: Iterable[Item]) -> Approval:
        """Return an approval of what is shown now."""
        return cls(secrets.token_hex(6), {item.what: item for item in items})

    def covers(self, item: Item) -> bool:
        """Tell whether a change was shown as it is now."""
        return self._why_not(item) is None

    def has_changed(self, standing: ObjectState) -> bool:
        """Tell whether an object was changed by hand the last time under this very approval."""
        return bool(self.id) and standing.changed == self.id

    def check(self, items: Iterable[Item], where: str, *, done: str = "") -> None:
        """Refuse to do what nobody was shown.

        Args:
            items: what would be done now.
            where: what the plan is about.
            done: what was done already, in words; empty for nothing. Numbers that have grown since then grew
                because the flow goes on: they were looked at before.

        Raises:
            NeedsOperator: PLAN_CHANGED.
        """
        others = [why for item in items if (why := self._why_not(item, later=bool(done))) is not None]
        if not others:
            return
        raise NeedsOperator(
            f"{done or 'nothing was done'}: it would be something else by now than what was shown",
            code=PlanningCode.PLAN_CHANGED,
            where=where,
            expected=_named([str(item) for item in self.items.values()]),
            seen=_named(others),
            resolve="plan again to see what would be done now, and decide about that",
        )

    def _why_not(self, item: Item, *, later: bool = False) -> str | None:
        shown = self.items.get(item.what)
        if shown is None or item.risk not in (shown.risk, "none"):
            return f"{item}, which was not shown"
        if item.standing.changed != shown.standing.changed:
            who = "an earlier try of this" if item.standing.changed == self.id else "somebody"
            return f"{item}, which {who} has changed since"
        if item.standing.state != shown.standing.state:
            return f"{item}: {item.standing.state}, not {shown.standing.state}"
        if item.risk != "none" and not later and _has_grown(shown.records, item.records):
            return f"{item} of {_count(item.records)} offsets, not {shown.records}"
        return None

    def to_json(self) -> dict[str, Any]:
        """Return it as it is kept between question and answer."""
        items = [
            [i.what, i.risk, i.records, i.standing.state, i.standing.changed] for i in self.items.values()
        ]
        return {"id": self.id, "items": items}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Approval:
        """Read what ``to_json`` wrote."""
        items = (
            Item(what, risk, records, ObjectState(state, changed))
            for what, risk, records, state, changed in value["items"]
        )
        return cls(value["id"], {item.what: item for item in items})


def fenced_so_far(flow: str) -> str:
    """Return what was done when everybody is fenced and nothing is written yet."""
    return (
        f"the running copy is fenced ({commands.replicate(flow)} starts it again) and no progress was written"
    )


# Nobody was asked.
NOTHING: Final = Approval("", {})


def items_of(
    changes: Iterable[Change], standing: Mapping[str, ObjectState] | None = None, *, exact: bool = False
) -> tuple[Item, ...]:
    """Return a plan's changes as they are approved.

    Args:
        standing: how the objects stand, by ``Change.object``.
        exact: where a change leads to is approved with it; otherwise it may move while the flow goes on.
    """
    known = standing or {}
    return tuple(
        Item(
            f"{change.what} {change.object}{f' -> {change.to}' if exact else ''}",
            change.risk,
            change.records,
            known.get(change.object, ObjectState()),
        )
        for change in changes
    )


@dataclass(frozen=True, kw_only=True)
class ApprovablePlan(Plan):
    """A plan that a person says yes to."""

    @property
    def items(self) -> tuple[Item, ...]:
        """What a person approves: what is changed, at which risk, wherever that leads by then."""
        return items_of(self.changes)

    @property
    def exit_code(self) -> int:
        """3 while something is refused that somebody has to decide about, otherwise 0."""
        return exit_of(self.refused)


def _has_grown(shown: int | None, now: int | None) -> bool:
    if shown is None:
        return False
    return now is None or now > max(_GROWN * shown, shown + _FEW)


def _count(records: int | None) -> str:
    return "an unknown number" if records is None else str(records)


def _named(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    shown = "; ".join(texts[:_NAMED]) or "nothing"
    return f"{shown}; and {more} more" if more > 0 else shown
