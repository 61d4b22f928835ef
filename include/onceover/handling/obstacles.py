"""What the target refused before, and what the next attempt does about it. Pure.

A refused batch costs the open transaction, so what is learned from it has to survive the reset: each
refusal narrows the next attempt down, until a single record is split off, diverted or stopped at.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onceover.errors import MustReset
from onceover.handling.pace import Pace
from onceover.kafka.ports import Outgoing, Refused
from onceover.kafka.produce.refusals import ABOUT_A_RECORD, TOO_LARGE
from onceover.kafka.produce.rounds import made_bytes
from onceover.model import TopicPartition
from onceover.stops.contents import dead_letter_refused, refused_record
from onceover.stops.record import Stop
from onceover.wire.batches.runs import Packing

log = logging.getLogger(__name__)

# Halving a batch down to its records takes 20 refusals at most, dead letters as many.
_MANY_REFUSALS: Final = 50


class RecordProblem(NamedTuple):
    """Why a record cannot be copied; ``message`` never quotes it."""

    code: str
    message: str


@dataclass
class Obstacle:
    """What the target refused before, kept over the reset that follows (per partition).

    Args:
        max_batch_bytes: batches larger than this are split (error 10).
        apart_until: records before this source offset go alone: one of them was refused, and not named.
        max_dead_letter_bytes: the same for batches of the dead-letter topic.
        reencode: the batches at these base offsets are re-encoded instead of passed.
        divert: source offsets of records that go to the dead-letter topic, and why.
        barrier: copy up to this source offset, then stop with ``stop``.
        pace: how fast the handler is.
        packing: how single records are packed.
        refusals: how often the target refused something since the partition got past ``refused_at``, records
            that were diverted aside.
    """

    max_batch_bytes: int | None = None
    apart_until: int = -1
    max_dead_letter_bytes: int | None = None
    reencode: set[int] = field(default_factory=set)
    divert: dict[int, RecordProblem] = field(default_factory=dict)
    barrier: int | None = None
    stop: Stop | None = None
    pace: Pace = field(default_factory=Pace)
    packing: Packing = field(default_factory=Packing)
    refusals: int = 0
    refused_at: int = -1

    @property
    def empty(self) -> bool:
        """True while nothing was refused, or all of it is dealt with."""
        found = self.divert or self.reencode or self.apart_until >= 0
        return not found and self.max_batch_bytes is None and self.barrier is None

    def most_bytes(self, position: int) -> int | None:
        """Return how large a batch of records from ``position`` on may be; None where nothing was refused."""
        return 1 if position < self.apart_until else self.max_batch_bytes

    def takes_less_than(self, size_bytes: int, *, apart: bool) -> None:
        """Note that the topic refuses batches of this size, as it has done with another partition's.

        Args:
            apart: that one held single records as they were compressed, which are smaller together.
        """
        if apart:
            self.packing.keep_together()
            return
        most = size_bytes - 1
        self.max_batch_bytes = most if self.max_batch_bytes is None else min(self.max_batch_bytes, most)

    def passed(self, position: int) -> None:
        """Forget what concerns records before ``position``: they are committed."""
        for offset in [offset for offset in self.divert if offset < position]:
            del self.divert[offset]
        self.reencode = {offset for offset in self.reencode if offset >= position}
        if position >= self.apart_until:
            self.apart_until = -1
        if position > self.refused_at:
            self.refusals = 0


class TryOtherwise(MustReset):
    """The target refused a batch, and the next attempt does something else about it.

    Not for the back-off: waiting helps nobody, every refusal narrows the obstacle down, and there is an end
    to them.
    """


class Blocked(Exception):
    """The partition stops at its position."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.message)
        self.stop = stop


def obstacle_after(
    refused: Refused,
    outgoing: Outgoing,
    obstacle: Obstacle,
    flow: str,
    source: TopicPartition,
    dead_letter: str | None = None,
) -> None:
    """Decide what the next attempt does with a batch that the target refused (docs/facts.md).

    Too large: split, down to single records. Otherwise re-encode once; then, or where the broker names
    a record, divert it (with ``dead_letter``, the topic's name), or copy up to it and stop there. What is
    refused however it is sent stops the partition, too.
    """
    diverted = len(obstacle.divert)
    _narrow(refused, outgoing, obstacle, flow, source, dead_letter)
    obstacle.refused_at = max(obstacle.refused_at, outgoing.source_runs[0][0])
    if len(obstacle.divert) == diverted:
        obstacle.refusals += 1
    if obstacle.refusals == _MANY_REFUSALS // 2:
        log.warning("%s: refused %d times, the last time so: %s", source, obstacle.refusals, refused)
    if obstacle.refusals >= _MANY_REFUSALS and obstacle.barrier is None:
        first = outgoing.source_runs[0][0]
        reason = f"{refused.reason or 'no reason given'}, after {obstacle.refusals} refusals of other shapes"
        obstacle.barrier, obstacle.stop = first, refused_record(flow, source, first, refused.code, reason)


def _narrow(
    refused: Refused,
    outgoing: Outgoing,
    obstacle: Obstacle,
    flow: str,
    source: TopicPartition,
    dead_letter: str | None,
) -> None:
    if dead_letter is not None and outgoing.target.topic == dead_letter:
        _dead_letter_refused(refused, outgoing, obstacle, flow, source)
        return
    first = outgoing.source_runs[0][0]
    if refused.code in TOO_LARGE and outgoing.header.count > 1:
        if obstacle.packing.apart and made_bytes(outgoing):
            # Compressed together they are smaller, and may still go as one.
            obstacle.packing.keep_together()
            return
        obstacle.max_batch_bytes = _half(outgoing, obstacle.max_batch_bytes)
        return
    if refused.code not in ABOUT_A_RECORD and first not in obstacle.reencode:
        obstacle.reencode.add(first)
        return
    offsets = _named_offsets(refused, outgoing)
    stop = refused_record(flow, source, offsets[0], refused.code, refused.reason)
    if refused.code in ABOUT_A_RECORD and not refused.named and outgoing.header.count > 1:
        # Nobody knows which one it is: alone in its batch, it will be.
        last, count = outgoing.source_runs[-1]
        obstacle.apart_until = max(obstacle.apart_until, last + count)
    elif dead_letter is None or refused.code not in ABOUT_A_RECORD:
        obstacle.barrier, obstacle.stop = offsets[0], stop
    else:
        # All of them at once: each refusal costs a transaction.
        message = f"the target refuses the record ({stop.seen})"
        obstacle.divert.update(dict.fromkeys(offsets, RecordProblem(stop.code, message)))


def _dead_letter_refused(
    refused: Refused, outgoing: Outgoing, obstacle: Obstacle, flow: str, source: TopicPartition
) -> None:
    if refused.code in TOO_LARGE and outgoing.header.count > 1:
        obstacle.max_dead_letter_bytes = _half(outgoing, obstacle.max_dead_letter_bytes)
        return
    offset = _named_offsets(refused, outgoing)[0]
    obstacle.barrier = offset
    obstacle.stop = dead_letter_refused(
        flow, source, offset, outgoing.target.topic, f"error {refused.code}: {refused.reason}"
    )


def _half(outgoing: Outgoing, limit: int | None) -> int:
    """Return the next limit: half of what was too large, and always less than the last one."""
    halves = [outgoing.header.size_bytes // 2, *([] if limit is None else [limit // 2])]
    return max(1, min(halves))


def _named_offsets(refused: Refused, outgoing: Outgoing) -> list[int]:
    """Return the source offsets of the records that the broker named, else of the batch's first one."""
    offsets = [first + n for first, count in outgoing.source_runs for n in range(count)]
    named = sorted({offsets[index] for index in refused.named if index < len(offsets)})
    return named or offsets[:1]
