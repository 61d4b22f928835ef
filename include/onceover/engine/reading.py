"""What the copy loop reads from, and how fast it may."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from onceover.engine.review import Reviewed
from onceover.kafka.fetcher import Position
from onceover.model import TopicPartition
from onceover.wire.hotpath import FetchedPartition


class Source(Protocol):
    """What the loop needs of the fetcher."""

    positions: dict[TopicPartition, Position]

    @property
    def waiting(self) -> bool:
        """True while a request is in flight."""

    def request(self, *, max_wait_ms: int, min_bytes: int) -> None:
        """Ask every idle broker."""

    def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
        """Return what was answered."""

    def answered(self) -> bool:
        """Tell whether an answer is there."""

    def remove(self, partition: TopicPartition) -> None:
        """Read this partition no longer."""


class Review(Protocol):
    """What the loop needs of the reviewer."""

    @property
    def waiting(self) -> Collection[TopicPartition]:
        """Source partitions that are left out for now, and will go on or stop before long."""

    @property
    def due(self) -> bool:
        """True when some of them should be looked at again."""

    def unreadable(self, tp: TopicPartition, answer: FetchedPartition) -> None:
        """Leave one out whose Fetch is answered with an error."""

    def readable(self, tp: TopicPartition) -> None:
        """Note that one was answered."""

    def look(self, copied: Mapping[TopicPartition, int]) -> Reviewed:
        """Decide about those that are due, between two transactions."""


@dataclass
class Throttle:
    """A token bucket of one second: how the flow's bandwidth limit is kept."""

    ready_s: float = 0.0

    def spend(self, size_bytes: int, per_second: float | None) -> None:
        """Note that ``size_bytes`` were fetched."""
        if per_second:
            self.ready_s = max(self.ready_s, time.monotonic() - 1.0) + size_bytes / per_second

    @property
    def wait_s(self) -> float:
        """Seconds until the next fetch may begin."""
        return max(0.0, self.ready_s - time.monotonic())
