"""What is wrong with files that people write. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class ConfigCode(Code):
    """Faults of a flow file, a Connect file, or of what they name."""

    BAD_CONFIG = "bad_config"
    OVERRIDES_DISAGREE = auto()
    CLIENT_UNREADABLE = auto()
    VERSION_MISMATCH = auto()
