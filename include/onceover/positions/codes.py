"""What keeps offsets from being translated. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class PositionCode(Code):
    """Faults of what a translation needs on this machine."""

    INDEX_UNUSABLE = auto()
