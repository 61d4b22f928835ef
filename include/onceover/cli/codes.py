"""How a command ends that did not get to its end. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class CommandCode(Code):
    """Errors of the command line and the processes it starts."""

    INTERRUPTED = auto()
    UNREAD = auto()
    STOPPED_EARLY = auto()
    DRIVER_KILLED = auto()
    DRIVER_FAILED = auto()
    DRIVER_DISAGREES = auto()
