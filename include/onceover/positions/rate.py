"""How fast a flow copies, read from the end of its offset map: what was committed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from onceover.kafka.ports import Cluster
from onceover.positions.reader import MapChanged, MapTopic, Point
from onceover.state import names

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
        self._flow = flow
        self._now_ms = now_ms
        self._points: dict[int, Point] = {}
        self._since_ms = now_ms()

    def measure(self) -> Rate:
        """Return what was committed since the last call, or since this object was made.

        Raises:
            Retriable: the target is away.
        """
        until_ms, since_ms = self._now_ms(), self._since_ms
        topic = MapTopic.find(self._target, self._flow)
        if topic is None:
            return Rate((until_ms - since_ms) / 1000)
        numbers = list(range(names.MAP_PARTITIONS))
        ends = topic.ends(numbers)
        starts = {number: self._start(number, end) for number, end in ends.items()}
        records = size = 0
        transactions: set[tuple[int, int]] = set()
        try:
            for chunk in topic.read(starts, ends):
                for entry in chunk.entries:
                    # What upkeep has merged is copied again under its old times.
                    if entry.record is None or entry.record.commit_ms < since_ms:
                        continue
                    records += entry.record.records
                    size += entry.record.bytes
                    transactions.add((entry.record.lane, entry.record.commit_ms))
        except MapChanged:
            self._points = {}
            return Rate((until_ms - since_ms) / 1000)
        if any(starts[number] != self._points.get(number, starts[number]) for number in numbers):
            since_ms = min((at_ms for _, at_ms in transactions), default=since_ms)
        self._points = {number: Point(end) for number, end in ends.items()}
        self._since_ms = until_ms
        return Rate(max(0.001, (until_ms - since_ms) / 1000), records, size, len(transactions))

    def _start(self, number: int, end: int) -> Point:
        """Return where to begin: where the last call ended, unless that is too long ago."""
        earliest = Point(max(0, end - _MAX_ENTRIES // names.MAP_PARTITIONS))
        return max(self._points.get(number, Point(end)), earliest)
