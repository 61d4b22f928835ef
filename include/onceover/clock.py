"""The wall clock, in the one unit in which everything here writes it down."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Return the wall clock: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def stamp() -> str:
    """Return the wall clock for a name that sorts by it: ``20260131T120000Z``."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
