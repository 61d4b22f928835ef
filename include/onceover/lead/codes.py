"""What goes wrong at the head of a flow. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class LeadCode(Code):
    """Errors of the leader and its planner."""

    NOT_OPEN = auto()
    LEFT_ALONE = auto()
