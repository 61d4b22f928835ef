"""The offset map as fresh as each question needs it, one partition of its topic at a time.

Invariant: a partition of the map that cannot be read costs those something whose records it holds, and
nobody else. They are told so (``Retriable``, ``NeedsOperator``): what cannot be read is never taken for "not
covered" (G7). Whoever asks next is told the same for a while, and does not wait once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from onceover.errors import OnceoverError
from onceover.kafka.ports import Cluster
from onceover.positions.index import MapIndex
from onceover.positions.store import MapStore, StoreDamaged
from onceover.state import names

T = TypeVar("T")

# What is not covered may be the next moment; many questions in a row must not each read the topic.
STALE_S: Final = 1.0
# Longer than many questions in a row take; leaders are elected within half a minute.
AGAIN_S: Final = 30.0
# A healthy lane's transaction ends sooner.
_BRIEF_S: Final = 2.0


class _Failure(NamedTuple):
    error: OnceoverError
    at_s: float

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.at_s < AGAIN_S


class FreshMap:
    """The index of one flow's offset map, and how fresh each partition is. Not thread-safe.

    Args:
        target: the flow's target; belongs to the caller.
        flow: its name.
        home: folder of the flow's files, or None, as for ``MapIndex``.
    """

    def __init__(self, target: Cluster, flow: str, home: Path | None) -> None:
        self._index = MapIndex(target, flow, home)
        self._read_s: dict[int, float] = {}
        self._unread: dict[int, _Failure] = {}
        self._unsettled: dict[int, _Failure] = {}
        self._hanging: set[int] = set()

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def refresh(self) -> None:
        """Read all that is new. What cannot be read is raised when somebody asks for it.

        Raises:
            Retriable: the target is away.
            UsageError: the index cannot be kept, or the topic may not be read.
        """
        self._unsettled.clear()
        self._read(range(names.MAP_PARTITIONS))

    def need(self, partition: int) -> None:
        """Make sure that a partition was read.

        Raises:
            Retriable: it cannot be read now.
            NeedsOperator: it cannot be read, and nobody but a person can change that.
        """
        failure = self._unread.get(partition)
        if partition not in self._read_s or (failure is not None and not failure.is_fresh):
            self._read([partition])
        if (failure := self._unread.get(partition)) is not None:
            raise failure.error

    def renew(self, partition: int) -> bool:
        """Read what is new in a partition, unless that was done a moment ago; tell whether it was.

        Raises:
            As ``need``.
        """
        self.need(partition)
        if time.monotonic() - self._read_s[partition] <= STALE_S:
            return False
        self._read([partition])
        self.need(partition)
        return True

    def settle(self, partition: int) -> None:
        """Read all that is in a partition by now, waiting for the transactions that are open there.

        Raises:
            As ``need``; Retriable also because a transaction does not end.
        """
        failure = self._unsettled.get(partition)
        if failure is not None and failure.is_fresh:
            raise failure.error
        # What has hung before is not given so long at each look again: all others would wait with it.
        settle_s = _BRIEF_S if partition in self._hanging else None
        failed = self._index.each_refresh([partition], settled=True, settle_s=settle_s)
        if partition in failed:
            self._hanging.add(partition)
            self._unsettled[partition] = _Failure(failed[partition], time.monotonic())
            raise failed[partition]
        self._unsettled.pop(partition, None)
        self._hanging.discard(partition)
        self._read_s[partition] = time.monotonic()

    def ask(self, look: Callable[[MapStore], T]) -> T | None:
        """Ask the store; a damaged one is built anew and asked again. None without a map."""
        try:
            return None if self._index.store is None else look(self._index.store)
        except StoreDamaged as damage:
            self._index.discard(damage)
            self._read(sorted(self._read_s))
            for failure in self._unread.values():
                raise failure.error from damage
            return None if self._index.store is None else look(self._index.store)

    def _read(self, partitions: Iterable[int]) -> None:
        wanted = list(partitions)
        failed = self._index.each_refresh(wanted)
        now_s = time.monotonic()
        for partition in wanted:
            self._read_s[partition] = now_s
            self._unread.pop(partition, None)
        self._unread.update({partition: _Failure(error, now_s) for partition, error in failed.items()})
