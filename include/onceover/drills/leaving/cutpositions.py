"""Where groups stood at the cut, as the journal keeps it: to tell later whether one has moved. Pure.

Invariant: no name of a group is written down: of each there is a hash, and a digest of its positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.leaving.commits import Positions

# Of 40 bytes each: an entry stays well within a record of 1 MiB.
_PER_ENTRY: Final = 5000
_DIGITS: Final = 16


def noted(positions: Positions) -> list[dict[str, Any]]:
    """Return what is written down of positions, entry by entry; one for none at all, too."""
    digests = sorted((_hash(group), digest) for group, digest in _digests(positions).items())
    starts = range(0, max(1, len(digests)), _PER_ENTRY)
    return [{"groups": dict(digests[at : at + _PER_ENTRY])} for at in starts]


def read(chain: Iterable[JournalEntry], drill: str) -> dict[str, str] | None:
    """Return what a drill has written down; None where it has not."""
    found: dict[str, str] | None = None
    for entry in chain:
        groups = entry.said.get("groups")
        if entry.what == chains.PLACED and entry.drill == drill and isinstance(groups, Mapping):
            found = {**(found or {}), **groups}
    return found


def compared(before: Mapping[str, str], now: Positions) -> tuple[list[str], int]:
    """Return the groups that stand elsewhere by now, and how many are gone."""
    digests = _digests(now)
    names = sorted(group for group, digest in digests.items() if before.get(_hash(group)) != digest)
    return names, len(before.keys() - {_hash(group) for group in digests})


def _digests(positions: Positions) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    for (group, tp), offset in sorted(positions.items()):
        texts.setdefault(group, []).append(f"{tp.topic}:{tp.partition}={offset}")
    return {group: _hash("\n".join(each)) for group, each in texts.items()}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
