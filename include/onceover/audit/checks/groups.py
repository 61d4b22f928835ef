"""Do consumer groups stand at the exact record on the target? Pure.

Invariant: only positions that Onceover wrote are judged: what a group has committed there itself is its own
affair. Right means that the first record it would read there is the first it has not read on the source;
what lies before it counts as repeated, what lies behind it as skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onceover.audit.checks.result import Area, Check
from onceover.audit.records.recordhash import AuditedRecord
from onceover.model import TopicPartition

NAME: Final = "at_the_exact_record"


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a group stands on the target, and what is there.

    Args:
        group: its name.
        source: partition it comes from; ``target`` the one it stands in.
        given: what it had committed on the source when it was moved.
        current: what is committed on the target.
        translated: target offset that the map gives for ``given``; None where it does not cover it.
        meets: first record on the target at or after ``current``.
        ought: first record on the target at or after ``translated``.
        next: first record on the source at or after ``given``.
        comparable: records on both sides have to be equal (no handler, no compaction).
        came_later: what follows ``current`` was copied after the group was moved: it had read further than
            was copied then.
        at_ends: both sides wait at the very end of their logs for what comes next.
    """

    group: str
    source: TopicPartition
    target: TopicPartition
    given: int
    current: int
    translated: int | None
    meets: AuditedRecord | None
    ought: AuditedRecord | None
    next: AuditedRecord | None
    comparable: bool = True
    came_later: bool = False
    at_ends: bool = False


def check_group(standing: GroupPosition) -> Check:
    """Return whether the group would go on with the record it has not read."""
    if standing.translated is None:
        return _by_content(standing)
    meets = None if standing.meets is None else standing.meets.offset
    ought = None if standing.ought is None else standing.ought.offset
    if meets != ought:
        # At the end there is no record: the positions themselves tell how far it is.
        here = standing.current if meets is None or ought is None else meets
        wanted = standing.translated if meets is None or ought is None else ought
        return _wrong(standing, here, wanted)
    if standing.comparable and not _same(standing):
        detail = (
            f"it would read the record at {meets}, which is not the one at {standing.given} on the source"
        )
        return _made(standing, str(standing.translated), ok=False, detail=detail)
    return _made(standing, str(standing.translated), ok=True)


def _same(standing: GroupPosition) -> bool:
    # Not copied yet, or no longer held by the source: the map alone has told.
    if standing.meets is None or standing.next is None:
        return True
    return standing.meets.hash == standing.next.hash


def _by_content(standing: GroupPosition) -> Check:
    """Judge without the map, which no longer reaches back so far."""
    if standing.at_ends:
        # As in a partition that was never written to, of which the map has nothing to tell.
        return _made(standing, "the end of the log, as on the source", ok=True)
    known = standing.meets is not None and standing.next is not None
    if standing.comparable and known and _same(standing):
        return _made(standing, f"the record at {standing.given} on the source", ok=True)
    detail = (
        f"the offset map does not cover {standing.given}, where it was moved from; once it has moved on "
        "there, groups apply sets it in place again"
    )
    return _made(standing, "a covered offset", ok=None, detail=detail)


def _wrong(standing: GroupPosition, here: int, wanted: int) -> Check:
    skipped, repeated = max(0, here - wanted), max(0, wanted - here)
    if repeated and standing.came_later:
        detail = f"at the end of what was copied when it was moved; {repeated} offsets have come since"
        return _made(standing, str(standing.translated), ok=True, detail=detail)
    said = f"skip {skipped}" if skipped else f"read {repeated} again"
    detail = f"it would {said} (in offsets, markers included)"
    return _made(
        standing, str(standing.translated), ok=False, skipped=skipped, repeated=repeated, detail=detail
    )


def _made(
    standing: GroupPosition,
    expected: str,
    *,
    ok: bool | None,
    skipped: int = 0,
    repeated: int = 0,
    detail: str = "",
) -> Check:
    return Check(
        area=Area.GROUPS,
        name=NAME,
        source=standing.source,
        expected=expected,
        seen=str(standing.current),
        ok=ok,
        group=standing.group,
        offset=standing.given,
        skipped=skipped,
        repeated=repeated,
        detail=detail,
    )
