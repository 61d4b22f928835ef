"""What is wrong with files that people write. Pure."""

from __future__ import annotations

from enum import auto
from typing import Final

from onceover.codes import Code


class ConfigCode(Code):
    """Faults of a flow file, a Connect file, or of what they name."""

    BAD_CONFIG = "bad_config"
    NO_CONNECTION = auto()
    OVERRIDES_DISAGREE = auto()
    CLIENT_UNREADABLE = auto()
    VERSION_MISMATCH = auto()


# Their messages have a line for each fault; elsewhere a line more is somebody's name.
BY_LINE: Final = frozenset({ConfigCode.BAD_CONFIG, ConfigCode.NO_CONNECTION})
