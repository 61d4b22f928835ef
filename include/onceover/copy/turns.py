"""Whose batch is sent next: the partitions of one answer, each in its own order.

Invariant: a partition's batches leave in their order, and only one partition at a time has the memory to
expand a batch of it in pieces, or to hand a group of them to a handler.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Final

from onceover.copy.partition import PartitionCopy
from onceover.handling.obstacles import Blocked
from onceover.kafka.ports import Outgoing
from onceover.kafka.produce.rounds import made_bytes
from onceover.stops.contents import damaged_batch, memory_too_small
from onceover.stops.record import Stop
from onceover.wire.batches.batch import BatchTooLarge, CorruptBatch
from onceover.wire.batches.runs import Run
from onceover.wire.batches.visibility import Visible

# What a handler gave for several partitions goes out in requests of about this size.
REQUEST_BYTES: Final = 1 << 20

_Stream = tuple[PartitionCopy, Iterator[Outgoing | None]]


class _Nothing(Enum):
    """Why a partition's stream has given no batch."""

    PAUSED = auto()
    ENDED = auto()


class Turns:
    """The partitions of an answer that are not worked off. Not thread-safe.

    Args:
        flow: its name.
        taken: partitions and what was read of them.
        round_bytes: a round ends where so much of it was made anew.
        most_bytes: and where it has so many bytes; asked before each, None where it may be as large as it is.
        stop: told whose stream has ended with a stop; the partition's position is right before the cause.
    """

    def __init__(
        self,
        flow: str,
        taken: Iterable[tuple[PartitionCopy, list[Visible | Run]]],
        round_bytes: int,
        most_bytes: Callable[[], int | None],
        stop: Callable[[PartitionCopy, Stop], None],
    ) -> None:
        self._flow = flow
        self._streams: list[_Stream] = [(p, p.outgoing(visible)) for p, visible in taken if visible]
        self._round_bytes = round_bytes
        self._most_bytes = most_bytes
        self._stop = stop

    def __bool__(self) -> bool:
        """True while there is more to send."""
        return bool(self._streams)

    @property
    def partitions(self) -> list[PartitionCopy]:
        """Those that have more to send."""
        return [partition for partition, _ in self._streams]

    def rounds(self) -> Iterator[list[Outgoing]]:
        """Take one batch of every partition, and again, so that a request carries many partitions.

        A batch that has to be expanded in pieces has the memory for it to itself until it is through.
        """
        while self._streams:
            batches = [self._round()]
            if batches[0]:
                # What was made anew is not held until the next one is there.
                yield batches.pop()

    def _round(self) -> list[Outgoing]:
        """Take a batch of every partition, or of as many as memory allows; the others come first then."""
        streams = self._streams
        batches: list[Outgoing] = []
        ended: list[int] = []
        anew_bytes = size_bytes = behind = 0
        most_bytes = self._most_bytes() or sys.maxsize
        busy = any(partition.expanding for partition, _ in streams)
        for index, (partition, stream) in enumerate(streams):
            if busy and not partition.expanding:
                continue
            batch = self._next(partition, stream)
            if isinstance(batch, Outgoing):
                batches.append(batch)
                anew_bytes += made_bytes(batch)
                size_bytes += len(batch.batch)
            else:
                ended.append(index)
            if partition.expanding:
                # Last, so that the others have their turn as soon as it is through.
                streams.append(streams.pop(index))
                break
            if anew_bytes >= self._round_bytes or size_bytes >= most_bytes:
                behind = len(streams) - index - 1
                break
        for index in reversed(ended):
            del streams[index]
        if behind:
            streams[:] = streams[-behind:] + streams[:-behind]
        return batches

    def gathered(self, late: Callable[[], bool]) -> Iterator[list[Outgoing]]:
        """Take one source partition after the other, so that only one group of batches at a time is
        expanded in memory; what the handler gives for them is gathered into larger requests.

        Args:
            late: tells whether to send what there is, because the transaction should be ended.
        """
        batches: list[Outgoing] = []
        size = 0
        while self._streams:
            batch = self._next(*self._streams[0])
            if isinstance(batch, Outgoing):
                batches.append(batch)
                size += len(batch.batch)
            else:
                del self._streams[0]
            full_bytes = min(REQUEST_BYTES, self._most_bytes() or REQUEST_BYTES)
            if size >= full_bytes or not self._streams or late():
                full, batches, size = [batches], [], 0
                yield full.pop()

    def settled(self) -> Iterator[Outgoing]:
        """Bring every partition behind what was sent of it: yield what that takes.

        Nothing more is begun: expanding the next batch takes memory, handling it takes time.
        """
        going = []
        for partition, stream in self._streams:
            partition.pausing = True
            batch: Outgoing | _Nothing = _Nothing.PAUSED
            while partition.underway and isinstance(batch := self._next(partition, stream), Outgoing):
                yield batch
            partition.pausing = False
            if batch is not _Nothing.ENDED:
                going.append((partition, stream))
        self._streams[:] = going

    def _next(self, partition: PartitionCopy, stream: Iterator[Outgoing | None]) -> Outgoing | _Nothing:
        try:
            batch = next(stream, _Nothing.ENDED) or _Nothing.PAUSED
            partition.underway = isinstance(batch, Outgoing)
            return batch
        except Blocked as blocked:
            self._stop(partition, blocked.stop)
        except CorruptBatch as error:
            self._stop(partition, damaged_batch(self._flow, partition.source, partition.position, error))
        except BatchTooLarge as error:
            self._stop(partition, memory_too_small(self._flow, partition.source, partition.position, error))
        partition.underway = partition.expanding = False
        return _Nothing.ENDED
