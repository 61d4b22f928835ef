"""Why metrics cannot be served. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class MetricsCode(Code):
    """Refusals of `onceover metrics`."""

    PORT_TAKEN = auto()
    CANARY_TOPIC = auto()
