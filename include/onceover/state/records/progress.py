"""What stands beside the position of a partition, and whether the position may be believed. Pure.

Invariant: a position counts only with metadata of ours that was written beside this very number. Whoever
moves the offsets of the progress group with a tool for groups is noticed (G5): such a tool drops the
metadata, or keeps or copies what was written beside another position; or it puts back both, as they were
once: then records of ours follow on the target (``resume.beyond``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from onceover.errors import NeedsOperator
from onceover.kafka.calls import NO_EPOCH, CommittedOffset, OffsetToCommit
from onceover.model import TopicPartition
from onceover.state.codes import StateCode
from onceover.state.records.enrolment import Enrolment, LeftAt
from onceover.wire.progress import NOBODY, CopiedLast, ProgressMeta, PromotedMark

# What stands beside a position behind which nobody of ours has read: a lane has nothing to compare with.
UNREAD: Final = CopiedLast(NO_EPOCH, None)


class PositionNote(NamedTuple):
    """What stands beside a position.

    Args:
        meta: the metadata; None where there is none of ours, or none that belongs to the position.
        doubt: why the position cannot be believed; None where it can, and where there is no progress at all.
    """

    meta: ProgressMeta | None
    doubt: NeedsOperator | None


def beside(committed: CommittedOffset | None) -> PositionNote:
    """Return what stands beside a position, or why nobody may rely on it."""
    if committed is None:
        return PositionNote(None, None)
    try:
        meta = ProgressMeta.decode(committed.metadata)
    except NeedsOperator as error:
        return PositionNote(None, error)
    if meta is None:
        return PositionNote(None, _foreign("the flow's own metadata beside it", "none"))
    if meta.position is not None and meta.position != committed.offset:
        seen = f"metadata that was written beside offset {meta.position}"
        return PositionNote(None, _foreign(f"metadata written beside offset {committed.offset}", seen))
    return PositionNote(meta, None)


def newest_of(progress: Iterable[CommittedOffset]) -> int:
    """Return the newest generation that has written some of these positions; 0 where nothing tells of one."""
    metas = [beside(committed).meta for committed in progress]
    return max((meta.generation for meta in metas if meta is not None), default=0)


def copied_between(enrolment: Enrolment, partition: int, meta: ProgressMeta | None) -> tuple[str, str]:
    """Return the ids of the topics that a partition was copied between: its offset map is about them.

    Args:
        meta: what stands beside its position; without it, what the leader has written counts.
    """
    return enrolment.ids_of(partition) if meta is None else (meta.source_topic_id, meta.target_topic_id)


def first_progress(
    enrolment: Enrolment, offset: int, generation: int, target_end: int = 0, last: CopiedLast = UNREAD
) -> OffsetToCommit:
    """Return the progress of a partition that is written beside its topic's record, not by a lane.

    Args:
        offset: next source offset to copy.
        generation: of the leader that writes it.
        target_end: end of the target's log beside it.
        last: what another flow has copied last before this offset, from the same source topic.
    """
    meta = ProgressMeta(
        source_topic_id=str(enrolment.source_id),
        target_topic_id=str(enrolment.target_id),
        leader_epoch=last.leader_epoch,
        target_end=target_end,
        generation=generation,
        instance=NOBODY,
        position=offset,
        batch=last.batch,
    )
    return OffsetToCommit(offset, last.leader_epoch, meta.encode())


def promoted_progress(
    enrolment: Enrolment, progress: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, OffsetToCommit]:
    """Return the progress of a topic that is promoted, by target partition: as it was, marked with that.

    In the same transaction as the topic's record: where that is lost, the mark tells of it.
    """
    promoted, left = enrolment.promoted, enrolment.left
    found: dict[TopicPartition, OffsetToCommit] = {}
    for tp in map(enrolment.target_of, enrolment.sources()):
        committed = progress.get(tp)
        meta = beside(committed).meta
        if promoted is None or left is None or committed is None or meta is None:
            continue
        mark = PromotedMark(promoted.drill, left.at_ms, promoted.ends[tp.partition])
        told = replace(meta, generation=promoted.generation, position=committed.offset, promoted=mark)
        found[tp] = OffsetToCommit(committed.offset, committed.leader_epoch, told.encode())
    return found


def promoted_again(
    enrolment: Enrolment, progress: Mapping[TopicPartition, CommittedOffset]
) -> Enrolment | None:
    """Return the record of a topic as it was promoted; None where its record tells of that, or nothing does.

    A mark of before the partition was placed the last time is one that the group's coordinator has told late,
    or tells again: the copy was taken back since.

    Args:
        progress: by target partition, with the marks that ``promoted_progress`` has made.
    """
    newest = 0 if enrolment.promoted is None else enrolment.promoted.generation
    found: PromotedMark | None = None
    ends, cuts = dict[int, int](), dict[int, int]()
    for tp in map(enrolment.target_of, enrolment.sources()):
        committed = progress.get(tp)
        meta = beside(committed).meta
        if committed is None or meta is None or meta.promoted is None or meta.generation < newest:
            continue
        placed = enrolment.placed.get(tp.partition)
        if placed is not None and placed.generation >= meta.generation:
            continue
        if meta.generation > newest:
            newest, found, ends, cuts = meta.generation, meta.promoted, {}, {}
        ends[tp.partition], cuts[tp.partition] = meta.promoted.end, committed.offset
    if found is None:
        return None
    return enrolment.as_promoted(found.drill, LeftAt(newest, found.at_ms), ends, cuts)


def put_back(known_end: int, found: int) -> NeedsOperator:
    """Return why a position cannot be believed though it stands beside what was written with it once.

    Args:
        known_end: end of the copy that it tells of.
        found: offset on the target of a later batch of ours.
    """
    return NeedsOperator(
        "the partition's progress is an older one: somebody has put it back, or the target's "
        "__consumer_offsets has lost its end",
        code=StateCode.PROGRESS_FOREIGN,
        expected=f"no record of the flow behind target offset {known_end}",
        seen=f"one at {found}: an older position was put back, or is told again, with its metadata",
    )


def _foreign(expected: str, seen: str) -> NeedsOperator:
    return NeedsOperator(
        "somebody else has changed the partition's progress",
        code=StateCode.PROGRESS_FOREIGN,
        expected=expected,
        seen=seen,
    )
