"""How a flow's groups stand on both sides, for ``status`` and the page, from the plan of their moving. Pure.

Invariant: it says what ``groups plan`` would do, and nothing else decides; its size is bounded however many
groups and partitions there are, with those first that need somebody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from onceover.groups.decide import GroupAction
from onceover.groups.plan import GroupPlan, Row
from onceover.planning.plan import Refusal

_GROUPS: Final = 50
_POSITIONS: Final = 5


class Standing(StrEnum):
    """How a group is on the receiving side, the worst first.

    NEEDS_SOMEBODY: a person has to decide. UNDECIDED: it is left alone, as where it would go on is not known,
    or it is consumed there. BEHIND: its place moves as soon as groups are synced. IN_PLACE: it goes on
    there where it is.
    """

    NEEDS_SOMEBODY = "needs_somebody"
    UNDECIDED = "undecided"
    BEHIND = "behind"
    IN_PLACE = "in_place"


_ORDER: Final = tuple(Standing)


def groups_standing(plan: GroupPlan) -> dict[str, Any]:
    """Return the ``groups`` object of a flow: how many stand how, and those that anybody would look at."""
    refused = {refusal.object: refusal for refusal in plan.refused}
    rows: dict[str, list[Row]] = {group.name: [] for group in plan.view.groups if group.name in refused}
    for row in plan.rows:
        rows.setdefault(row.group, []).append(row)
    entries = [_group(name, found, refused.get(name)) for name, found in rows.items()]
    entries.sort(
        key=lambda entry: (_ORDER.index(entry["standing"]), -entry["behind_offsets"], entry["group"])
    )
    named = {*rows, *(row.object for row in plan.rows)}
    return {
        "error": None,
        "giving": plan.view.giving,
        "receiving": plan.view.receiving,
        "counts": {str(each): sum(entry["standing"] is each for entry in entries) for each in _ORDER},
        "groups": [{**entry, "standing": str(entry["standing"])} for entry in entries[:_GROUPS]],
        "more": max(0, len(entries) - _GROUPS),
        "remarks": [refusal.document() for refusal in plan.refused if refusal.object not in named],
    }


def unknown_standing(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same where nobody knows, with the error that says why."""
    nothing = dict.fromkeys(("giving", "receiving", "counts"))
    return {"error": dict(error), **nothing, "groups": [], "more": 0, "remarks": []}


def describe_standing(entry: Mapping[str, Any], flow: str) -> str:
    """Return it in one line for people."""
    if entry["error"] is not None:
        return f"not known: {entry['error']['message']}"
    counts = entry["counts"]
    parts = [f"{counts[each]} {each.replace('_', ' ')}" for each in reversed(_ORDER) if counts[each]]
    if not parts:
        return "none"
    codes = sorted({group["code"] for group in entry["groups"] if group["code"]})
    why = f" ({', '.join(codes)})" if codes else ""
    only_in_place = counts[Standing.IN_PLACE] == sum(counts.values())
    return f"{', '.join(parts)}{why}" + ("" if only_in_place else f": `onceover groups plan {flow}`")


def _group(name: str, rows: Sequence[Row], refusal: Refusal | None) -> dict[str, Any]:
    standings = [_standing(row) for row in rows]
    standing = min(standings, key=_ORDER.index, default=Standing.UNDECIDED)
    if refusal is not None:
        standing = Standing.NEEDS_SOMEBODY if refusal.blocks else Standing.UNDECIDED
    shown = sorted(
        zip(standings, rows, strict=True), key=lambda pair: (_ORDER.index(pair[0]), -_behind(pair[1]))
    )
    worst = None if refusal is not None else next((row for each, row in shown if each is standing), None)
    return {
        "group": name,
        "standing": standing,
        "code": refusal.code if refusal is not None else (worst.decision.code or None) if worst else None,
        "reason": refusal.message if refusal is not None else worst.decision.reason if worst else "",
        "resolve": (refusal.resolve if refusal is not None else worst.decision.resolve if worst else "")
        or None,
        "partitions": len(rows),
        "counts": dict(Counter(str(each) for each in standings)),
        "lag": _total(row.facts.lag for row in rows),
        "behind_offsets": sum(map(_behind, rows)),
        "positions": [row.document() for _, row in shown[:_POSITIONS]],
    }


def _standing(row: Row) -> Standing:
    kind = row.decision.kind
    if row.decision.blocks or kind in (GroupAction.REWIND, GroupAction.DELETE):
        return Standing.NEEDS_SOMEBODY
    if kind is GroupAction.LEFT:
        return Standing.UNDECIDED
    return Standing.BEHIND if kind is GroupAction.MOVE else Standing.IN_PLACE


def _behind(row: Row) -> int:
    """Return by how many target offsets a position would move."""
    if row.decision.kind is not GroupAction.MOVE or row.decision.to is None:
        return 0
    return max(0, row.decision.to - (row.facts.current or row.facts.start or 0))


def _total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None where a part of it is not known."""
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)
