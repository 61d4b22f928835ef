"""What is handed to the workers of an audit, and what they hand back. Pickleable, without payload.

Invariant: a task names topics, partitions and offsets only; a worker opens its own connections (G10).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from onceover.audit.model import Digest, Finding, Range, Reason, Unlisted, Unverifiable
from onceover.audit.ranges.diverted import NO_LETTERS, DeadLetters
from onceover.audit.ranges.spreading import TargetStretch
from onceover.audit.ranges.tiling import Hole

# A task reads this much of its source at most: enough to make its start free, little enough that the
# workers end at about the same time.
TASK_RANGES: Final = 4


@dataclass(frozen=True, slots=True)
class Task:
    """Neighbouring ranges of one pair of partitions, to be read in one go.

    Args:
        ids: topic ids of source and target.
        ranges: in order, each beginning where the one before ends.
        untimed: the target stamps records itself, so that timestamps cannot be compared.
        holes: source offsets that an operator told the flow to go past.
        letters: what is known of the source partition's dead letters.
        claims: with a handler, of each range: target offsets that belong to it.
        unclaimed: with a handler: what is not claimed is read instead.
        target_partitions: with a handler: of the target topic.
        handler_changed: the flow file is not the one that the flow was started with.
        cleaned: one of the topics is compacted: its cleaner may take records.
        repeats: delivery is at_least_once.
        proven: source and target offset up to which earlier audits have proven everything.
        lapsed: why the source no longer holds records that may have been sent before their progress; None
            where it holds all of them.
        origins: with a handler, of what is not claimed: source partitions that it may have been made of, and
            the next source offset to copy of each.
    """

    ids: tuple[UUID, UUID]
    ranges: tuple[Range, ...]
    untimed: bool = False
    holes: tuple[Hole, ...] = ()
    letters: DeadLetters = NO_LETTERS
    claims: tuple[tuple[TargetStretch, ...], ...] = ()
    unclaimed: bool = False
    target_partitions: int = 0
    handler_changed: bool = False
    cleaned: bool = False
    repeats: bool = False
    proven: tuple[int, int] = (0, 0)
    lapsed: Reason | None = None
    origins: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RangeDigests:
    """A range of which both sides were read; the digests say whether they agree.

    Args:
        parted: a record was seen that differs: digests save time, and are never believed against that.
    """

    range: Range
    source: Digest
    target: Digest
    parted: bool = False

    @property
    def agrees(self) -> bool:
        """True when both sides hold the same records in the same order."""
        return not self.parted and self.source.same_content(self.target)


@dataclass(frozen=True, slots=True)
class LapsedRange:
    """A range that could not be read: a log no longer held it when its turn came."""

    range: Range
    reason: Reason
    message: str

    def unverifiable(self) -> Unverifiable:
        """Return it as what cannot be compared."""
        span = self.range
        # At least one, so that it counts: what cannot be read may lie over no source offset at all.
        size = max(1, span.source_to - span.source_from)
        return Unverifiable(self.reason, span.source, span.source_from, span.source_to, size, self.message)


@dataclass(frozen=True, slots=True)
class OpenedStretch:
    """A stretch that differed, record by record.

    Args:
        digests: of both sides, without what is excused.
        findings: every record that is not as it should be, up to a limit.
        excused: records whose absence has a reason.
        unlisted: how many findings there are beyond the limit.
    """

    range: Range
    digests: tuple[Digest, Digest]
    findings: tuple[Finding, ...]
    excused: tuple[Unverifiable, ...] = ()
    unlisted: tuple[Unlisted, ...] = ()


First: TypeAlias = RangeDigests | LapsedRange | OpenedStretch


def tasks(ids: tuple[UUID, UUID], ranges: Sequence[Range], size: int = TASK_RANGES) -> Iterable[Task]:
    """Yield the ranges of one partition as tasks of so many neighbours."""
    begin = 0
    for index in range(1, len(ranges) + 1):
        ends = index == len(ranges) or ranges[index - 1].source_to != ranges[index].source_from
        if ends or index - begin == size:
            yield Task(ids, tuple(ranges[begin:index]))
            begin = index
