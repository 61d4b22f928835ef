"""What a command names and is not there. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class WiringCode(Code):
    """Refusals of names that are looked for."""

    NO_OFFSET_FILE = auto()
