"""What cannot be read of bytes. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class WireCode(Code):
    """Values of binary records that are damaged, or of a later version."""

    MAP_UNREADABLE = auto()
    PROGRESS_UNREADABLE = auto()
    MM2_UNREADABLE = auto()
