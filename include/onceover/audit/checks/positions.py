"""Is the flow's position right behind the last record that it has copied? Pure, but for looking at records.

Invariant: the position is judged by the records on both sides. The offset map, which is written by the same
transaction, is asked only where the logs no longer hold the record in question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onceover.audit.checks.evidence import RecordLooks
from onceover.audit.checks.result import Area, Check
from onceover.audit.model import Mode, Side
from onceover.audit.records.recordhash import AuditedRecord
from onceover.model import TopicPartition

NAME: Final = "behind_the_last_copied_record"


@dataclass(frozen=True, slots=True)
class CheckedPosition:
    """What the progress group says about one partition.

    Args:
        source: partition; ``target`` its counterpart.
        start: first source offset of the flow.
        offset: next source offset to copy; None when nothing is committed.
        target_end: target offset behind the last record written up to there; None when unknown.
        map_end: source offset up to which the offset map speaks; None when it holds nothing.
        mode: how the partition is compared.
        copied: source offset behind the last record that the offset map says was copied; None without one.
        hidden: an open transaction hides the last records from readers of the target.
        put_back: an operator has put it amid what was copied, and nothing was copied since.
    """

    source: TopicPartition
    target: TopicPartition
    start: int
    offset: int | None
    target_end: int | None
    map_end: int | None
    mode: Mode = Mode.RECORDS
    copied: int | None = None
    hidden: bool = False
    put_back: bool = False


def check_position(position: CheckedPosition, look: RecordLooks) -> Check:
    """Return whether the flow goes on right behind the last record that is on the target.

    The last record of the source before the position has to be the last record of the target before the end
    that was noted beside it. With a handler, and where compaction or retention took the record, the offset
    map has to reach the position. Records behind what the map says was copied last may have been diverted or
    skipped: whether they rightly were is told by comparing the records. A position that was put back is
    behind no record that was copied last before the flow goes on from it.

    Raises:
        Retriable: a cluster is away.
    """
    if position.offset is None:
        return _made(position, "a committed position", "none", None, "the flow has no progress for it")
    if position.hidden:
        detail = "an open transaction hides the end of the target"
        return _made(position, "the last record before it", str(position.offset), None, detail)
    if position.put_back:
        return _made(
            position, str(position.offset), str(position.offset), True, "an operator has put it there"
        )
    if position.mode is not Mode.HANDLER and position.target_end is not None:
        here = look.last_before(Side.SOURCE, position.source, position.offset)
        there = look.last_before(Side.TARGET, position.target, position.target_end)
        if here is not None and there is not None and here.hash != there.hash:
            here = _copied(position, here, look)
        if here is not None and there is not None:
            if here.hash == there.hash:
                return _made(
                    position, str(here.offset + 1), str(position.offset), True, _between(position, here)
                )
            if position.mode is Mode.RECORDS:
                return _made(position, *_unlike(position, here, there))
    return _by_map(position, look)


def _copied(position: CheckedPosition, here: AuditedRecord, look: RecordLooks) -> AuditedRecord | None:
    """Return the last record that was copied, by the map, when others follow it; None where it tells none."""
    if position.copied is None and position.map_end == position.offset:
        # It speaks of what was diverted or skipped alone, up to there: what it told before has expired.
        return None
    if position.copied is None or position.copied > here.offset:
        return here
    return look.last_before(Side.SOURCE, position.source, position.copied)


def _unlike(
    position: CheckedPosition, here: AuditedRecord, there: AuditedRecord
) -> tuple[str, str, bool, str]:
    detail = (
        f"the last record before the position is {position.source} offset {here.offset}, the last one on the "
        f"target is {position.target} offset {there.offset}, and they are not the same record"
    )
    return "the record before it to be the last on the target", str(position.offset), False, detail


def _by_map(position: CheckedPosition, look: RecordLooks) -> Check:
    offset = position.offset or 0
    reached = position.start if position.map_end is None else position.map_end
    if reached >= offset:
        return _made(position, str(offset), str(offset), True, "the offset map reaches it")
    following = look.first(Side.SOURCE, position.source, reached)
    if following is None or following.offset >= offset:
        return _made(position, str(reached), str(offset), True, "no record lies in between")
    detail = (
        f"what was copied last ends at {reached}, and {position.source} offset {following.offset} is a "
        "record before the position: an operator went past it, or the offset map has lost it"
    )
    return _made(position, str(reached), str(offset), None, detail)


def _between(position: CheckedPosition, last: AuditedRecord) -> str:
    others = (position.offset or 0) - last.offset - 1
    return f"{others} offsets of markers and aborted records behind it" if others else ""


def _made(position: CheckedPosition, expected: str, seen: str, ok: bool | None, detail: str) -> Check:
    return Check(
        area=Area.POSITIONS,
        name=NAME,
        source=position.source,
        expected=expected,
        seen=seen,
        ok=ok,
        offset=position.offset,
        detail=detail,
    )
