"""Why partitions stop or wait, and what becomes of requests to stop or go on. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code
from onceover.state.codes import StateCode
from onceover.wire.codes import WireCode


class StopCode(Code):
    """Every reason why a partition stops; docs/operations.md has a line for each."""

    SOURCE_TRUNCATED = auto()
    SOURCE_DIVERGED = auto()
    SOURCE_MISSING = auto()
    SOURCE_RECREATED = auto()
    SOURCE_SHRUNK = auto()
    TARGET_MISSING = auto()
    TARGET_RECREATED = auto()
    TARGET_SHRUNK = auto()
    TARGET_SHORTENED = auto()
    TARGET_UNDECIDED = auto()
    TARGET_DROPPED = auto()
    PROGRESS_MISSING = auto()
    PROGRESS_FOREIGN = StateCode.PROGRESS_FOREIGN
    PROGRESS_UNREADABLE = WireCode.PROGRESS_UNREADABLE
    RECORD_REFUSED = auto()
    RECORD_TOO_LARGE = auto()
    HANDLER_FAILED = auto()
    DEAD_LETTER_REFUSED = auto()
    SOURCE_DAMAGED = auto()
    RECORDS_RETURN = auto()
    MEMORY_TOO_SMALL = auto()
    SOURCE_UNAUTHORIZED = auto()
    SOURCE_UNREADABLE = auto()
    TARGET_UNAUTHORIZED = auto()
    TARGET_UNWRITABLE = auto()
    TRANSACTIONS_FAIL = auto()


class WaitCode(Code):
    """Why partitions or lanes wait; ``status`` notes it, and it passes by itself."""

    WAITING = auto()
    # The topic of the offset map was deleted.
    MAP_MISSING = auto()
    TARGET_QUOTA = auto()


class RequestCode(Code):
    """What became of a request to a running flow."""

    NO_ANSWER = auto()
    TAKEN_OVER = auto()
