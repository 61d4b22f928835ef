"""What the target refused before, and what the next attempt does about it. Pure.

A refused batch costs the open transaction, so what is learned from it has to survive the reset: each
refusal narrows the next attempt down, until a single record is split off, diverted or stopped at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onceover.engine.pace import Pace
from onceover.engine.stops import Stop, dead_letter_refused, refused_record
from onceover.errors import MustReset
from onceover.kafka.ports import Outgoing, Refused
from onceover.model import TopicPartition

_TOO_LARGE: Final = 10
_INVALID_TIMESTAMP: Final = 32
_INVALID_RECORD: Final = 87
_ABOUT_A_RECORD: Final = (_TOO_LARGE, _INVALID_TIMESTAMP, _INVALID_RECORD)


class Reason(NamedTuple):
    """Why a record cannot be copied; ``message`` never quotes it."""

    code: str
    message: str


@dataclass
class Obstacle:
    """What the target refused before, kept over the reset that follows (per partition).

    Args:
        max_batch_bytes: batches larger than this are split (error 10).
        max_dead_letter_bytes: the same for batches of the dead-letter topic.
        reencode_at: the batch at this base offset is re-encoded instead of passed.
        divert: source offsets of records that go to the dead-letter topic, and why.
        barrier: copy up to this source offset, then stop with ``stop``.
        pace: how fast the handler is.
    """

    max_batch_bytes: int | None = None
    max_dead_letter_bytes: int | None = None
    reencode_at: int | None = None
    divert: dict[int, Reason] = field(default_factory=dict)
    barrier: int | None = None
    stop: Stop | None = None
    pace: Pace = field(default_factory=Pace)

    @property
    def empty(self) -> bool:
        """True while nothing was refused, or all of it is dealt with."""
        narrowed = (self.max_batch_bytes, self.reencode_at, self.barrier)
        return not self.divert and all(mark is None for mark in narrowed)

    def passed(self, position: int) -> None:
        """Forget the diverted records before ``position``: they are committed."""
        for offset in [offset for offset in self.divert if offset < position]:
            del self.divert[offset]


class TryOtherwise(MustReset):
    """The target refused a batch, and the next attempt does something else about it.

    Not for the back-off: waiting helps nobody, and every refusal narrows the obstacle down.
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
    """Decide what the next attempt does with a batch that the target refused (FACTS 3).

    Too large: split, down to single records. Otherwise re-encode once; then, or where the broker names
    a record, divert it (with ``dead_letter``, the topic's name), or copy up to it and stop there.
    """
    if dead_letter is not None and outgoing.target.topic == dead_letter:
        _dead_letter_refused(refused, outgoing, obstacle, flow, source)
        return
    first = outgoing.source_runs[0][0]
    if refused.code == _TOO_LARGE and outgoing.header.count > 1:
        obstacle.max_batch_bytes = max(1, outgoing.header.size_bytes // 2)
        return
    if refused.code not in _ABOUT_A_RECORD and obstacle.reencode_at != first:
        obstacle.reencode_at = first
        return
    offsets = _named_offsets(refused, outgoing)
    stop = refused_record(
        flow, source, offsets[0], refused.code, refused.reason, too_large=refused.code == _TOO_LARGE
    )
    if dead_letter is None or refused.code not in _ABOUT_A_RECORD:
        obstacle.barrier, obstacle.stop = offsets[0], stop
    elif not refused.named and outgoing.header.count > 1:
        # Nobody knows which one it is: alone in its batch, it will be.
        obstacle.max_batch_bytes = 1
    else:
        # All of them at once: each refusal costs a transaction.
        message = f"the target refuses the record ({stop.seen})"
        obstacle.divert.update(dict.fromkeys(offsets, Reason(stop.code, message)))


def _dead_letter_refused(
    refused: Refused, outgoing: Outgoing, obstacle: Obstacle, flow: str, source: TopicPartition
) -> None:
    if refused.code == _TOO_LARGE and outgoing.header.count > 1:
        obstacle.max_dead_letter_bytes = max(1, outgoing.header.size_bytes // 2)
        return
    offset = _named_offsets(refused, outgoing)[0]
    obstacle.barrier = offset
    obstacle.stop = dead_letter_refused(
        flow, source, offset, outgoing.target.topic, f"error {refused.code}: {refused.reason}"
    )


def _named_offsets(refused: Refused, outgoing: Outgoing) -> list[int]:
    """Return the source offsets of the records that the broker named, else of the batch's first one."""
    offsets = [first + n for first, count in outgoing.source_runs for n in range(count)]
    named = sorted({offsets[index] for index in refused.named if index < len(offsets)})
    return named or offsets[:1]
