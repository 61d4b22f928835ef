"""Durations and sizes as people write them: ``500ms``, ``14d``, ``64MiB``.

A duration always carries its unit, so that nobody has to guess whether ``500`` meant seconds.
"""

from __future__ import annotations

import re
from typing import Final

from onceover.config.faults import Invalid

_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Fifteen digits stay far below 2**63 milliseconds or bytes after the unit is applied.
_NUMBER_UNIT: Final = re.compile(r"([0-9]{1,15}) ?([A-Za-z]*)")

# What forms and command lines take for how long something runs; parse_duration_ms reads every such text.
RUN_LENGTH: Final = "[1-9][0-9]{0,8}(ms|s|m|h|d)"

DURATION_EXAMPLE: Final = "500ms, 30s, 5m, 12h or 14d"
SIZE_EXAMPLE: Final = "512KiB, 64MiB or 1GiB"


def parse_duration_ms(value: object) -> int:
    """Return the milliseconds of ``"500ms"``, ``"30s"``, ``"5m"``, ``"12h"`` or ``"14d"``.

    Raises:
        Invalid: no whole number, or no unit, or an unknown unit.
    """
    match = _NUMBER_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = match.group(2) if match else ""
    if match is None or unit not in _DURATION_MS:
        raise Invalid(
            "expected a duration: a whole number with its unit",
            f"write it like {DURATION_EXAMPLE}",
        )
    return int(match.group(1)) * _DURATION_MS[unit]


def parse_size_bytes(value: object) -> int:
    """Return the bytes of ``"64MiB"`` (B, KiB, MiB, GiB) or of a plain whole number of bytes.

    Raises:
        Invalid: no whole number, or an unknown unit; ``MB`` is refused because two meanings exist.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _NUMBER_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = match.group(2) or "B" if match else ""
    if match is None or unit not in _SIZE_BYTES:
        raise Invalid(
            "expected a size: a whole number with B, KiB, MiB or GiB",
            f"write it like {SIZE_EXAMPLE}",
        )
    return int(match.group(1)) * _SIZE_BYTES[unit]
