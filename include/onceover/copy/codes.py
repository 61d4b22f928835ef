"""What ends a lane that no partition is the reason of. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class CopyCode(Code):
    """Refusals of the flow's own records."""

    OWN_RECORD_REFUSED = auto()
