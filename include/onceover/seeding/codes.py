"""Why a position is not written, or not believed. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class SeedingCode(Code):
    """Refusals of `seed` and `adopt`; docs/seeding.md and docs/adopting-mirrormaker.md say more."""

    # May pass by itself.
    UNREADABLE = auto()
    GROUP_UNKNOWN = auto()
    NO_OFFSET = auto()
    PROGRESS_EXISTS = auto()
    NOT_READY = auto()
    STATE_LOST = auto()
    MAP_EXPIRED = auto()
    MAP_YOUNGER = auto()
    MAP_OLDER = auto()
    MAP_STALE = auto()
    TARGET_BEYOND_MAP = auto()
    LAG_GROUP_STALE = auto()
    # Of the way back behind a switchover.
    NOT_PROMOTED = auto()
    ORPHANS = auto()
    # Of adoption.
    MM2_RUNNING = auto()
    MM2_WRITES = auto()
    MM2_UNKNOWN = auto()
    MM2_TASKS_UNKNOWN = auto()
    BEHIND_STORED = auto()
    # No seam was found.
    AMBIGUOUS = auto()
    FOREIGN_RECORD = auto()
    GAP = auto()
    TOO_FAR = auto()
    TARGET_EMPTY = auto()
    TARGET_EMPTIED = auto()
