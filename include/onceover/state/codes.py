"""What a flow's own records say, or why they cannot be believed. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class StateCode(Code):
    """Errors and needs about the state of a flow."""

    NOT_STARTED = auto()
    # The partition is none of those that the flow copies: not taken in yet, refused, or not meant.
    NOT_ENROLLED = auto()
    STATE_MISSING = auto()
    STATE_UNREADABLE = auto()
    STATE_VERSION = auto()
    # What was read is of before the newest generation that has copied.
    STATE_SHORTENED = auto()
    SAME_CLUSTER = auto()
    CANNOT_FENCE = auto()
    FENCED = auto()
    PROGRESS_FOREIGN = auto()
    # Needs of ``status``.
    DRIVER_GONE = auto()
    RUN_FAILED = auto()
    AUDIT_FAILED = auto()
