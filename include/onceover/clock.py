"""The wall clock, in the one unit in which everything here writes it down."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the wall clock: milliseconds since 1970."""
    return time.time_ns() // 1_000_000
