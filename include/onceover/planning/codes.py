"""What keeps a plan from being carried out. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class PlanningCode(Code):
    """Refusals that every operation with a plan shares."""

    PLAN_CHANGED = auto()
    OUT_OF_RANGE = auto()
    JOURNAL = auto()
