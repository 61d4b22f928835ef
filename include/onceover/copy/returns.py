"""Records that come back: what a copy can see of a ring whose other flows' states it cannot read. Pure.

A ring leaves records as they are, also their timestamps, but neither their batches nor their producers. So
now and then a record of a partition is remembered; where a batch comes later whose timestamps reach over it,
that is looked into for the same record: time, key, value and headers. The longer ago, the fewer are
remembered, at distances that double, so a short way round is found as well as one of hours.

Invariant: once is no proof, nor twice. A writer that sends again what it was not sure of repeats records, and
one that gives many the same time and contents looks alike. Counted are returns that lie apart in time, each
after newer records; three of them are a ring, or a writer that somebody has to look at all the same.

Hints only (G4): what was remembered is lost with the process, and costs rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from onceover.model import TopicPartition
from onceover.wire.batches.batch import BatchHeader, BatchTooLarge, CorruptBatch
from onceover.wire.batches.records import DecodedRecord, decode_payload
from onceover.wire.batches.runs import Run
from onceover.wire.batches.unpack import Ceiling, unpack_pieces
from onceover.wire.batches.visibility import Visible

# Looking takes a two-hundredth of a processor at most, however the records lie.
_REST: Final = 200
# One slow look (a codec is loaded, the machine is busy) says nothing about the next ones.
_LONGEST_REST_S: Final = 10.0
_RETURNS: Final = 3
# A writer that repeats itself does so within seconds; a ring does not end.
_APART_S: Final = 5.0
# Of a batch: a copier that makes batches anew makes small ones, and one that does not begins them alike.
_RECORDS: Final = 64
_CEILING: Final = Ceiling(64 << 10, 1 << 20)
# A kilobyte or two each.
_PARTITIONS: Final = 1000


@dataclass(slots=True)
class _Mark:
    """A record that is remembered.

    Args:
        timestamp: in ms; ``digest`` of all that survives.
        offsets: where it was met; ``counted_s`` when the last time.
        passed: newer ones have come since.
    """

    timestamp: int
    digest: int
    offsets: list[int]
    counted_s: float
    passed: bool = False


@dataclass(slots=True)
class _Watch:
    """What is remembered of one partition, by the distance at which it is replaced."""

    looks: int = 0
    newest: int = -1
    marks: dict[int, _Mark] = field(default_factory=dict)


@dataclass(slots=True)
class _Turns:
    """Who is looked at next: who comes first in one answer of a broker comes first in all of them.

    Args:
        had: those looked at in this lap; ``missed`` those that came in vain, and were not.
        waited: those of ``had`` that have let one answer pass for the others.
    """

    had: set[TopicPartition] = field(default_factory=set)
    missed: set[TopicPartition] = field(default_factory=set)
    waited: set[TopicPartition] = field(default_factory=set)

    def take(self, tp: TopicPartition, *, resting: bool) -> bool:
        """Tell whether ``tp``, of which records came, is looked at now."""
        if resting:
            if tp not in self.had:
                self.missed.add(tp)
            return False
        if tp in self.had:
            if self.missed and tp not in self.waited:
                self.waited.add(tp)
                return False
            # Who has missed a turn, and has not come since, may have no records any more.
            self.had.clear()
            self.missed.clear()
        self.had.add(tp)
        self.missed.discard(tp)
        self.waited.clear()
        return True


@dataclass
class Returns:
    """Of one lane; kept over its resets. Not thread-safe.

    Args:
        clock: monotonic.
        cost: what this thread has used of a processor, in s. A look that only had to wait for its turn, on a
            busy machine or behind this process's other threads, was not expensive.
    """

    clock: Callable[[], float] = time.monotonic
    cost: Callable[[], float] = time.thread_time
    _watches: dict[TopicPartition, _Watch] = field(default_factory=dict)
    _found: set[TopicPartition] = field(default_factory=set)
    _accepted: set[TopicPartition] = field(default_factory=set)
    _turns: _Turns = field(default_factory=_Turns)
    _next_s: float = 0.0

    def look(self, tp: TopicPartition, visible: Sequence[Visible | Run]) -> tuple[int, ...]:
        """Look at an answer; return where one and the same record has been met, once it comes back for good.

        Args:
            tp: the source partition.
            visible: its batches, not verified: damage is left to the copy.
        """
        began_s = self.clock()
        if not visible or tp in self._accepted or not self._turns.take(tp, resting=began_s < self._next_s):
            return ()
        before_s = self.cost()
        if tp not in self._watches and len(self._watches) >= _PARTITIONS:
            del self._watches[next(iter(self._watches))]
        watch = self._watches.setdefault(tp, _Watch())
        offsets = _look(watch, visible, began_s)
        if offsets:
            self._found.add(tp)
            del self._watches[tp]
        self._next_s = self.clock() + min((self.cost() - before_s) * _REST, _LONGEST_REST_S)
        return offsets

    def asked(self, tp: TopicPartition) -> None:
        """Take what comes back for real from now on, where that was found and somebody says so."""
        if tp in self._found:
            self._accepted.add(tp)


def _look(watch: _Watch, visible: Sequence[Visible | Run], now_s: float) -> tuple[int, ...]:
    first: Visible | None = None
    newest = -1
    for one in _batches(visible, watch.newest):
        header = one.header
        if one.batch is None:
            continue
        first = first or one
        newest = max(newest, header.max_timestamp)
        # Of records that come in their order nothing more is asked than this.
        if header.base_timestamp <= watch.newest:
            for mark in watch.marks.values():
                if _comes_back(mark, one, now_s):
                    return tuple(mark.offsets)
    if first is None:
        return ()
    for mark in watch.marks.values():
        mark.passed = mark.passed or newest > mark.timestamp
    _remember(watch, first, now_s)
    return ()


def _batches(visible: Sequence[Visible | Run], newest: int) -> Iterator[Visible]:
    """Yield batches one by one; of a run whose records are all newer than what is remembered only the first,
    which says as much as they do."""
    for one in visible:
        if isinstance(one, Visible):
            yield one
        elif one.facts.lowest > newest:
            yield one.first
        else:
            try:
                yield from one.apart()
            except CorruptBatch:
                # Found by the copy, which names the place.
                return


def _comes_back(mark: _Mark, one: Visible, now_s: float) -> bool:
    """Note where a batch holds the record again; tell whether that was often enough."""
    header = one.header
    if not (mark.passed and header.base_timestamp <= mark.timestamp <= header.max_timestamp):
        return False
    if now_s - mark.counted_s < _APART_S or header.last_offset <= mark.offsets[-1]:
        return False
    for record in _records(one):
        # What was aborted here is read again, at the same offset.
        if record.offset > mark.offsets[-1] and _digest(record) == mark.digest:
            mark.offsets.append(record.offset)
            mark.counted_s, mark.passed = now_s, False
            break
    return len(mark.offsets) > _RETURNS


def _remember(watch: _Watch, one: Visible, now_s: float) -> None:
    """Remember the first record of a batch, until as many looks later as its number can be halved."""
    watch.looks += 1
    distance = watch.looks & -watch.looks
    record = next(_records(one), None)
    if record is not None:
        watch.marks[distance] = _Mark(record.timestamp, _digest(record), [record.offset], now_s)
        watch.newest = max(mark.timestamp for mark in watch.marks.values())


def _records(one: Visible) -> Iterator[DecodedRecord]:
    """Yield the first records of a batch, as far as they can be had cheaply."""
    header: BatchHeader = one.header
    if one.batch is None or header.size_bytes > _CEILING.record_bytes:
        return
    try:
        for piece in islice(unpack_pieces(header, one.batch, _CEILING), 1):
            yield from islice(decode_payload(piece), _RECORDS)
    except (CorruptBatch, BatchTooLarge):
        # Found by the copy, which names the place; or too large to be looked into.
        return


def _digest(record: DecodedRecord) -> int:
    """Return what tells a record from others, within this process."""
    return hash((record.timestamp, record.key, record.value, record.headers))
