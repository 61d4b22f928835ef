"""What partitions cannot be helped with, and which sides cannot be looked at. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class RepairCode(Code):
    """Refusals of `onceover partition`, beside stops."""

    NOT_STOPPED = auto()
    NOT_IN_SCOPE = auto()


class StatusCode(Code):
    """Needs of ``status`` that no part of the flow has told of."""

    SOURCE_UNREACHABLE = auto()
    TARGET_UNREACHABLE = auto()
    NOT_MOVING = auto()
