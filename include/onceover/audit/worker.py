"""What one worker does with one task: read both sides, compare, and open what differs.

Invariant: memory is bounded by batches while ranges are compared, and by hashes (not by records) while a
stretch is opened; only records that differ are held whole, and of those a bounded number.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onceover.audit.batches import Unreadable
from onceover.audit.compare import Cursor, compare
from onceover.audit.digest import Running
from onceover.audit.hunks import hunks
from onceover.audit.model import Digest, Finding, FindingKind, Range, Reason, Side, Unverifiable
from onceover.audit.reader import Gone, Read, Stretch, read_batches
from onceover.audit.record import Rec
from onceover.audit.work import First, Lapsed, Opened, Same, Task
from onceover.kafka.cluster import Cluster

# Of one stretch, on each side. Whoever copied more wrongly than this needs no longer list.
MAX_RECORDS: Final = 100_000


@dataclass(frozen=True)
class Sides:
    """Both clusters, as one task reads them."""

    source: Cluster
    target: Cluster

    def cursor(self, task: Task, side: Side, span: Range) -> Cursor:
        """Return one side's records of a span."""
        return Cursor(
            self.reads(task, side, span), self._stretch(task, side, span).start, timed=not task.untimed
        )

    def reads(self, task: Task, side: Side, span: Range) -> Generator[Read]:
        """Yield one side's batches of a span."""
        cluster = self.source if side is Side.SOURCE else self.target
        return read_batches(cluster, self._stretch(task, side, span))

    def _stretch(self, task: Task, side: Side, span: Range) -> Stretch:
        if side is Side.SOURCE:
            return Stretch(span.source, task.ids[0], span.source_from, span.source_to)
        return Stretch(span.target, task.ids[1], span.target_from, span.target_to)


def compare_task(task: Task, sides: Sides) -> Iterator[First]:
    """Yield an answer for each range of the task, in order; both sides are read once, in one go."""
    whole = replace(task.ranges[0], source_to=task.ranges[-1].source_to, target_to=task.ranges[-1].target_to)
    source, target = (sides.cursor(task, side, whole) for side in Side)
    done = 0
    try:
        for each in task.ranges:
            compared = compare(each, source, target)
            done += 1
            yield Same(each, compared.source, compared.target)
    except (Gone, Unreadable) as error:
        failed = error
    else:
        return
    finally:
        source.close()
        target.close()
    yield Lapsed(task.ranges[done], _reason(failed), failed.message)
    if done + 1 < len(task.ranges):
        yield from compare_task(replace(task, ranges=task.ranges[done + 1 :]), sides)


def open_task(task: Task, sides: Sides, *, show_payload: bool = False) -> Opened | Lapsed:
    """Name every record that is not as it should be in the task's one range."""
    (span,) = task.ranges
    try:
        return _open(task, span, sides, show_payload=show_payload)
    except (Gone, Unreadable) as error:
        return Lapsed(span, _reason(error), error.message)


def _reason(error: Gone | Unreadable) -> Reason:
    return error.reason if isinstance(error, Gone) else Reason.UNREADABLE


# ---- opening


def _open(task: Task, span: Range, sides: Sides, *, show_payload: bool) -> Opened:
    here, there = ([rec.hash for rec in _records(task, side, span, sides)] for side in Side)
    differing = list(hunks(here, there))
    mine = _picked(task, Side.SOURCE, span, sides, [(hunk.source_from, hunk.source_to) for hunk in differing])
    theirs = _picked(
        task, Side.TARGET, span, sides, [(hunk.target_from, hunk.target_to) for hunk in differing]
    )
    findings = [
        *(Finding(FindingKind.LOST, span.source, rec.offset, None, None) for rec in mine),
        *(Finding(FindingKind.PHANTOM, None, None, span.target, rec.offset) for rec in theirs),
    ]
    kept, excused = _excuse(task, span, findings)
    missing = {each.source_offset for each in findings} - {each.source_offset for each in kept}
    digests = (
        _digest(task, Side.SOURCE, span, sides, missing),
        _digest(task, Side.TARGET, span, sides, frozenset()),
    )
    return Opened(span, digests, tuple(kept), tuple(excused))


def _records(task: Task, side: Side, span: Range, sides: Sides) -> Iterator[Rec]:
    cursor = sides.cursor(task, side, span)
    end = span.source_to if side is Side.SOURCE else span.target_to
    try:
        while (rec := cursor.record(end)) is not None:
            yield rec
    finally:
        cursor.close()


def _picked(
    task: Task, side: Side, span: Range, sides: Sides, places: Sequence[tuple[int, int]]
) -> list[Rec]:
    """Return the records at these places of a span, in order, and no more than ``MAX_RECORDS``."""
    found: list[Rec] = []
    wanted = iter(places)
    begin, end = next(wanted, (0, 0))
    for index, rec in enumerate(_records(task, side, span, sides)):
        while index >= end and (following := next(wanted, None)) is not None:
            begin, end = following
        if index >= end or len(found) == MAX_RECORDS:
            break
        if index >= begin:
            found.append(rec)
    return found


def _digest(task: Task, side: Side, span: Range, sides: Sides, without: Iterable[int | None]) -> Digest:
    running, excused = Running(), set(without)
    for rec in _records(task, side, span, sides):
        if rec.offset not in excused:
            running.add_record(rec)
    return running.digest(span, side)


def _excuse(task: Task, span: Range, findings: Iterable[Finding]) -> tuple[list[Finding], list[Unverifiable]]:
    """Part what is wrong from records whose absence was decided by a person or by the flow file."""
    kept, excused = [], []
    for finding in findings:
        reason = _decided(task, finding)
        if reason is None or finding.source_offset is None:
            kept.append(finding)
            continue
        at = finding.source_offset
        text = (
            "the flow was told to go past it"
            if reason is Reason.SKIPPED
            else "it is in the dead-letter topic"
        )
        excused.append(Unverifiable(reason, span.source, at, at + 1, 1, f"offset {at} is not copied: {text}"))
    return kept, excused


def _decided(task: Task, finding: Finding) -> Reason | None:
    if finding.kind is not FindingKind.LOST or finding.source_offset is None:
        return None
    if finding.source_offset in task.dead_letter:
        return Reason.DEAD_LETTER
    if any(hole.start <= finding.source_offset < hole.end for hole in task.holes):
        return Reason.SKIPPED
    return None
