"""How fast a flow copies, read from the end of its offset map: what was committed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from onceover.kafka.ports import Cluster
from onceover.positions.tail import MapTail

# A minute of a flow with very many partitions would take as long to read: then its end alone is read.
_MAX_ENTRIES: Final = 20_000


@dataclass(frozen=True)
class Rate:
    """What was committed within ``seconds``."""

    seconds: float
    records: int = 0
    bytes: int = 0
    transactions: int = 0


class RateMeter:
    """Measures from one call to the next. Not thread-safe.

    Args:
        target: where the flow's map is.
        flow: name of the flow.
        now_ms: the wall clock, which the map's times are compared with.
    """

    def __init__(self, target: Cluster, flow: str, now_ms: Callable[[], int]) -> None:
        self._target = target
        self._now_ms = now_ms
        self._tail = MapTail(flow, _MAX_ENTRIES)
        self._since_ms = now_ms()

    def measure(self) -> Rate:
        """Return what was committed since the last call, or since this object was made.

        Raises:
            Retriable: the target is away.
        """
        until_ms, since_ms = self._now_ms(), self._since_ms
        read = self._tail.read(self._target)
        records = size = 0
        transactions: set[tuple[int, int]] = set()
        for record in read.records:
            # What upkeep has merged is copied again under its old times.
            if record.commit_ms < since_ms:
                continue
            records += record.records
            size += record.bytes
            transactions.add((record.lane, record.commit_ms))
        if read.passed_over:
            since_ms = min((at_ms for _, at_ms in transactions), default=since_ms)
        self._since_ms = until_ms
        return Rate(max(0.001, (until_ms - since_ms) / 1000), records, size, len(transactions))
