"""Where logs have lost at their ends what was copied, or what was proven, as leader epochs tell.

Invariant: nothing that a log does not say itself: in which leader epoch it was once is on record, and where
that epoch has ended is asked of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from onceover.audit.ranges.logs import AskedEnds
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from onceover.state.records.progress import beside
from onceover.state.records.verified import Watermark


class CopiedPair(NamedTuple):
    """What is on record of one pair of partitions.

    Args:
        ids: of the topics that it is copied between.
        committed: the progress; None where there is none.
        mark: what was proven; None for nothing.
    """

    source: TopicPartition
    target: TopicPartition
    ids: tuple[UUID, UUID]
    committed: CommittedOffset | None
    mark: Watermark | None


class _Reached(NamedTuple):
    """In which leader epoch a log was read or written up to an offset."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Parted:
    """Up to where logs still hold what was on record; only those that have lost some of it."""

    sources: Mapping[TopicPartition, int]
    targets: Mapping[TopicPartition, int]

    def of(self, source: TopicPartition, target: TopicPartition) -> tuple[int | None, int | None]:
        """Return that of a source partition and its target; None where nothing tells of a loss."""
        return self.sources.get(source), self.targets.get(target)


def parted(here: AskedEnds, there: AskedEnds, pairs: Iterable[CopiedPair]) -> Parted:
    """Ask the logs of both sides where they have parted from what is on record.

    By what stands beside the progress, and by what the watermark was proven in: an operator may have
    written the progress since.

    Args:
        here: asks the source; ``there`` the target.

    Raises:
        Retriable: a cluster is away.
    """
    known = list(pairs)
    copied = _lost(here, there, (_copied(each) for each in known))
    proven = _lost(here, there, (_proven(each) for each in known))
    return Parted(_lowest(copied.sources, proven.sources), _lowest(copied.targets, proven.targets))


_Records = tuple[tuple[TopicPartition, _Reached], tuple[TopicPartition, _Reached]]


def _copied(pair: CopiedPair) -> _Records | None:
    meta = beside(pair.committed).meta
    if pair.committed is None or meta is None:
        return None
    epoch = calls.NO_EPOCH if meta.target_epoch is None else meta.target_epoch
    there = pair.target, _Reached(epoch, meta.target_end)
    return (pair.source, _Reached(meta.leader_epoch, pair.committed.offset)), there


def _proven(pair: CopiedPair) -> _Records | None:
    mark = pair.mark
    if mark is None or not mark.of(*pair.ids):
        return None
    there = pair.target, _Reached(mark.target_epoch, mark.target_offset)
    return (pair.source, _Reached(mark.source_epoch, mark.offset)), there


def _lost(here: AskedEnds, there: AskedEnds, records: Iterable[_Records | None]) -> Parted:
    known = [each for each in records if each is not None]
    # A source that knows no such epoch is an older copy: nobody tells from where on. A target may have
    # forgotten its epochs, and hold everything.
    sources = {tp: max(0, at) for tp, at in _lost_ends(here, dict(each[0] for each in known)).items()}
    targets = {tp: at for tp, at in _lost_ends(there, dict(each[1] for each in known)).items() if at >= 0}
    return Parted(sources, targets)


def _lost_ends(asked: AskedEnds, reached: Mapping[TopicPartition, _Reached]) -> dict[TopicPartition, int]:
    epochs = {tp: each.epoch for tp, each in reached.items() if each.epoch != calls.NO_EPOCH}
    return {tp: end for tp, end in asked.epoch_ends(epochs).items() if end < reached[tp].offset}


def _lowest(
    one: Mapping[TopicPartition, int], other: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    return {tp: min(each[tp] for each in (one, other) if tp in each) for tp in (*one, *other)}
