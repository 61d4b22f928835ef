"""What an audit has proven of a flow's partitions, as ``status`` shows it. Pure.

Invariant: a watermark counts for the two topics that it was proven of (topic ids), never for others of the
same name. It is written by the audit only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from onceover.ages import age_text
from onceover.engine.statevalue import whole_number

_VERSION: Final = 1


class Verified(NamedTuple):
    """A partition's verified watermark.

    Args:
        offset: source offset up to which everything is proven, exclusive.
        at_ms: when the bounds of that audit were fixed, in ms since 1970.
        ids: topic ids of source and target.
    """

    offset: int
    at_ms: int
    ids: tuple[str, str]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Verified | None:
        """Return the watermark in a state value; None for another version's.

        Raises:
            KeyError, TypeError, ValueError: it is not of that shape.
        """
        if value["v"] != _VERSION:
            return None
        ids = str(value["source_id"]), str(value["target_id"])
        return cls(whole_number(value["offset"]), whole_number(value["at_ms"]), ids)


def partition_entry(
    verified: Verified | None, ids: tuple[str, str], position: int | None, now_ms: float
) -> dict[str, Any] | None:
    """Return ``verified`` of a partition in ``status``; None where nothing is proven.

    Args:
        verified: its watermark.
        ids: topic ids of source and target as the flow copies them now.
        position: next source offset to copy.
        now_ms: the time, in ms since 1970.
    """
    if verified is None or verified.ids != ids:
        return None
    return {
        "offset": verified.offset,
        "at_ms": verified.at_ms,
        "age_s": round(max(0.0, (now_ms - verified.at_ms) / 1000), 3),
        "offsets_since": None if position is None else max(0, position - verified.offset),
    }


def flow_entry(entries: Iterable[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return ``verified`` of a flow: how old the recovery point is that can be proven.

    ``age_s`` is the oldest partition's; None while a partition has none. None altogether without a partition
    that has one.
    """
    every = list(entries)
    known = [entry for entry in every if entry is not None]
    if not known:
        return None
    whole = len(known) == len(every)
    return {
        "partitions": len(known),
        "of": len(every),
        "at_ms": min(entry["at_ms"] for entry in known) if whole else None,
        "age_s": max(entry["age_s"] for entry in known) if whole else None,
        "offsets_since": sum(entry["offsets_since"] or 0 for entry in known),
    }


def describe_verified(entry: Mapping[str, Any] | None) -> str:
    """Return it as a line for people."""
    if entry is None:
        return "never audited"
    since = f"{entry['offsets_since']} offsets copied since"
    if entry["age_s"] is None:
        return f"verified: {entry['partitions']} of {entry['of']} partitions, {since}"
    return f"verified up to {age_text(entry['age_s'])} ago, {since}"
