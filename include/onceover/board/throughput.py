"""How many records a flow has copied, by minute, from its receipts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

MINUTE_MS: Final = 60_000
MINUTES: Final = 60


class Minute(NamedTuple):
    """What was committed within a minute that began ``at_ms`` after 1970."""

    at_ms: int
    records: int
    bytes: int


def by_minute(rows: Iterable[tuple[int, int, int]], now_ms: int) -> Sequence[Minute]:
    """Return the last hour, minute by minute, the oldest first; the one that is not over is left out.

    Args:
        rows: of receipts: when each was committed in ms since 1970, its records, its bytes.
    """
    records: Counter[int] = Counter()
    size_bytes: Counter[int] = Counter()
    for commit_ms, count, size in rows:
        records[commit_ms // MINUTE_MS] += count
        size_bytes[commit_ms // MINUTE_MS] += size
    last = now_ms // MINUTE_MS
    return [Minute(m * MINUTE_MS, records[m], size_bytes[m]) for m in range(last - MINUTES, last)]
