"""What ``plan`` prints and ``apply`` does: changes with their reasons, and what is refused. Pure.

Invariant: a plan is computed from live state and never edited; its id depends on its operation, flow and
changes only, so the same situation always has the same id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from onceover.clock import now_ms
from onceover.exitstatus import OK, PERSON, TEMPORARY
from onceover.shown import lined

_RISKS: Final = {"repeat": "repeat", "skip": "skip", "destructive": "remove"}


@dataclass(frozen=True)
class Change:
    """One thing that ``apply`` does; shape of ``plan``'s ``changes``.

    Args:
        what: kind of change, such as ``create topic``.
        object: what is changed, as a person names it.
        from_: what is there now, None for nothing; ``to`` what will be.
        reason: why.
        risk: ``none``, ``repeat``, ``skip`` or ``destructive``.
        records: how many offsets the risk concerns, None when that is not known.
    """

    what: str
    object: str
    from_: str | int | None
    to: str | int | None
    reason: str
    risk: str = "none"
    records: int | None = None

    def document(self) -> dict[str, Any]:
        """Return it with the plan's field names."""
        fields = asdict(self)
        return {"from" if key == "from_" else key: value for key, value in fields.items()}

    def describe(self) -> list[str]:
        """Return it as lines of text."""
        lines = [f"  {self.what} {self.object}: {_shown(self.from_)} -> {_shown(self.to)}  ({self.reason})"]
        if self.risk != "none":
            verb = _RISKS[self.risk]
            known = self.records is not None
            lines.append(f"    {verb}s {self.records} offsets" if known else f"    may {verb} records")
        return lines


def restart() -> Change:
    """Return the change that every plan makes which writes progress."""
    return Change("flow", "generation", "running or not", "fenced", "start it again afterwards", "none")


# Hears of each change once it is made.
Done = Callable[[Change], None]


def nobody(change: Change) -> None:
    """Hear of a change and do nothing."""


@dataclass(frozen=True)
class Refusal:
    """What is not done, and what resolves it; shape of ``plan``'s ``refused``.

    Args:
        object: what it concerns; of a topic the source's name.
        blocks: True when records are not copied because of it, False for a remark.
        passes: True when it may be another thing a moment later; not printed.
    """

    object: str
    code: str
    message: str
    resolve: str
    blocks: bool = True
    passes: bool = field(default=False, compare=False)

    def document(self) -> dict[str, Any]:
        """Return it as it is printed."""
        document = asdict(self)
        del document["passes"]
        return document


def exit_of(refused: Iterable[Refusal], *, passing: Collection[str] = (), passes: bool = False) -> int:
    """Return the exit code of what is refused.

    Args:
        passing: codes of what may be possible a moment later, unless anything else blocks beside it.
        passes: it is known otherwise that running it again may help. That comes first then: what somebody
            has to decide is known whole only behind it.

    Returns:
        PERSON while somebody has to decide, TEMPORARY where only time is missing, else OK.
    """
    codes = {refusal.code for refusal in refused if refusal.blocks}
    if passes or (codes and codes <= set(passing)):
        return TEMPORARY
    return PERSON if codes else OK


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Base of every plan.

    Args:
        operation: what is planned, such as ``topics`` or ``skip-to``.
        flow: name of the flow.
        changes: in the order in which they are done.
        refused: what is left out, and why.
    """

    operation: str
    flow: str
    changes: tuple[Change, ...] = ()
    refused: tuple[Refusal, ...] = ()
    # When it was computed does not make it another plan.
    computed_at_ms: int = field(default_factory=now_ms, compare=False)

    @property
    def plan_id(self) -> str:
        """Name of exactly these changes."""
        changes = [change.document() for change in self.changes]
        return hashlib.sha256(json.dumps([self.operation, self.flow, changes]).encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """First line of the text."""
        return f"{self.operation} of flow {self.flow}"

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts: what is kept of it where everybody may look."""
        return {
            "flow": self.flow,
            "operation": self.operation,
            "plan_id": self.plan_id,
            "changes": len(self.changes),
            "refused": len(self.refused),
        }

    def document(self) -> dict[str, Any]:
        """Return the plan's JSON."""
        return {
            "operation": self.operation,
            "flow": self.flow,
            "computed_at_ms": self.computed_at_ms,
            "plan_id": self.plan_id,
            "changes": [change.document() for change in self.changes],
            "refused": [refusal.document() for refusal in self.refused],
        }

    def describe(self) -> str:
        """Return the plan as text."""
        lines = [self.title]
        lines += [line for change in self.changes for line in change.describe()]
        lines += [f"  refused {r.object}: {r.message}; {r.resolve}" for r in self.refused]
        if not self.changes:
            lines.append("  nothing to do")
        return lined(lines)


def _shown(value: str | int | None) -> str:
    return "-" if value is None else str(value)
