"""What the copy loop reads from, and how fast it may."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

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
