"""What the copy loop reads from, and how fast it may."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from onceover.copy.review import Reviewed
from onceover.kafka.logs.fetcher import Position
from onceover.model import TopicPartition
from onceover.wire.hotpath import FetchedPartition


class Source(Protocol):
    """What the loop needs of the fetcher."""

    positions: dict[TopicPartition, Position]

    @property
    def waiting(self) -> bool:
        """True while a request is in flight."""

    def request(self, *, max_wait_ms: int, min_bytes: int, max_bytes: int | None) -> None:
        """Ask every idle broker, for less than usual where ``max_bytes`` says so."""

    def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
        """Return what was answered."""

    def answered(self) -> bool:
        """Tell whether an answer is there."""

    def remove(self, partition: TopicPartition) -> None:
        """Read this partition no longer."""

    def rewind(self, partition: TopicPartition, offset: int, last_fetched_epoch: int) -> None:
        """Read this partition from ``offset`` again, after all others."""


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


class Ends(Protocol):
    """What the loop needs to know in which leader epoch its transaction is on the target (KIP-320)."""

    def prepare(self, targets: Collection[TopicPartition]) -> None:
        """Get ready to ask about them; called while no transaction is open."""

    def ask(self, targets: Collection[TopicPartition]) -> None:
        """Ask for partitions everything of which is acknowledged, without waiting."""

    def answers(self) -> Mapping[TopicPartition, int]:
        """Return the leader epochs of those that are known."""


class NoEnds:
    """Nobody to ask."""

    def prepare(self, targets: Collection[TopicPartition]) -> None:
        """Need nothing."""

    def ask(self, targets: Collection[TopicPartition]) -> None:
        """Ask nobody."""

    def answers(self) -> Mapping[TopicPartition, int]:
        """Return nothing."""
        return {}


@dataclass
class Throttle:
    """A token bucket of one second: how the flow's bandwidth limit is kept.

    What is owed is bytes, not time: a limit that is raised or lifted counts at once.
    """

    clock: Callable[[], float] = time.monotonic
    # Below zero: saved.
    _owed_bytes: float = -math.inf
    _owed_at_s: float = 0.0
    _per_second: float | None = None

    def spend(self, size_bytes: int, per_second: float | None) -> None:
        """Note that ``size_bytes`` were fetched, and how many a second are allowed now; None: any."""
        owed = max(self._owed(), -per_second) + size_bytes if per_second else -math.inf
        self._owed_bytes, self._owed_at_s, self._per_second = owed, self.clock(), per_second

    def _owed(self) -> float:
        return self._owed_bytes - (self.clock() - self._owed_at_s) * (self._per_second or 0.0)

    @property
    def wait_s(self) -> float:
        """Seconds until the next fetch may begin."""
        return max(0.0, self._owed() / self._per_second) if self._per_second else 0.0
