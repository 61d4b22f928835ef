"""What one worker does with one task: read both sides, compare, and open what differs.

Invariant: memory is bounded by batches while ranges are compared, and by numbers (``audit.sketch``), not by
records, while a stretch is opened or the latest values of a compacted partition are told apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from onceover.audit.align import align
from onceover.audit.batches import Unreadable
from onceover.audit.compare import compare
from onceover.audit.crossmatch import Sighting
from onceover.audit.digest import Running
from onceover.audit.latest import LatestValues
from onceover.audit.listing import listing
from onceover.audit.model import Digest, Finding, FindingKind, Mode, Range, Reason, Side, Unverifiable
from onceover.audit.reader import Gone
from onceover.audit.sides import Sides
from onceover.audit.sketch import sketch
from onceover.audit.work import First, Lapsed, Opened, Same, Task
from onceover.model import TopicPartition


def compare_task(task: Task, sides: Sides) -> Iterator[First]:
    """Yield an answer for each range of the task, in order; both sides are read once, in one go."""
    left = list(task.ranges)
    while left:
        try:
            for answer in _compared(replace(task, ranges=tuple(left)), sides):
                yield answer
                left.pop(0)
        except (Gone, Unreadable) as error:
            yield Lapsed(left.pop(0), error.reason, _text(error))


def _compared(task: Task, sides: Sides) -> Iterator[Same | Opened]:
    if task.ranges[0].mode is Mode.HANDLER:
        # Arrow takes a while to load, which flows without a handler do not pay.
        from onceover.audit.handled import compare_handled

        yield from compare_handled(task, sides)
        return
    if task.ranges[0].mode is Mode.LATEST_PER_KEY:
        for each in task.ranges:
            latest = _latest(task, each, sides)
            yield Same(each, *(values.digest(each, side) for side, values in latest.items()))
        return
    first, last = task.ranges[0], task.ranges[-1]
    whole = replace(first, source_to=last.source_to, target_to=last.target_to)
    source, target = (sides.cursor(task, side, whole) for side in Side)
    try:
        for each in task.ranges:
            compared = compare(each, source, target)
            yield Same(each, compared.source, compared.target)
    finally:
        source.close()
        target.close()


def _latest(task: Task, span: Range, sides: Sides) -> dict[Side, LatestValues]:
    found = {}
    for side in Side:
        found[side] = LatestValues(timed=not task.untimed)
        found[side].add(sides.records(task, side, span))
    return found


def _text(error: Gone | Unreadable) -> str:
    """Say what cannot be compared, and where; what resolves it is the reason's affair."""
    return "; ".join(text for text in (error.message, error.where, error.expected, error.seen) if text)


# ---- opening


def open_task(task: Task, sides: Sides) -> Opened | Lapsed:
    """Name every record that is not as it should be in the task's one range."""
    (span,) = task.ranges
    try:
        return _opened(task, span, sides)
    except (Gone, Unreadable) as error:
        return Lapsed(span, error.reason, _text(error))


def _opened(task: Task, span: Range, sides: Sides) -> Opened | Lapsed:
    if span.mode is Mode.HANDLER:
        from onceover.audit.handled import open_handled

        return open_handled(task, sides)
    if span.mode is Mode.LATEST_PER_KEY:
        latest = _latest(task, span, sides)
        findings = latest[Side.SOURCE].findings(latest[Side.TARGET], (span.source, span.target))
        digests = latest[Side.SOURCE].digest(span, Side.SOURCE), latest[Side.TARGET].digest(span, Side.TARGET)
        named = listing(span, findings, sides.max_findings)
        return Opened(span, digests, named.findings, unlisted=named.unlisted)
    timed = not task.untimed
    alignment = align(
        sketch(sides.records(task, Side.SOURCE, span), timed=timed),
        sketch(sides.records(task, Side.TARGET, span), timed=timed),
        (span.source, span.target),
        aborted=sketch(sides.aborted(task, span), timed=timed),
    )
    excused: list[Unverifiable] = []
    if task.holes or task.dead_letter:
        named = listing(span, _kept(task, span, alignment.findings(), excused), sides.max_findings)
    else:
        named = listing(span, alignment.findings(), sides.max_findings, alignment.counts)
    without = {offset for each in excused for offset in range(each.offset_from, each.offset_to)}
    digests = (
        _digest(task, Side.SOURCE, span, sides, without),
        _digest(task, Side.TARGET, span, sides, ()),
    )
    return Opened(span, digests, named.findings, tuple(excused), named.unlisted)


def _digest(task: Task, side: Side, span: Range, sides: Sides, without: Collection[int]) -> Digest:
    running = Running()
    for rec in sides.records(task, side, span):
        if rec.offset not in without:
            running.add_record(rec)
    return running.digest(span, side)


def _kept(
    task: Task, span: Range, findings: Iterable[Finding], excused: list[Unverifiable]
) -> Iterator[Finding]:
    """Yield what is wrong; add records whose absence was decided by a person or by the flow file."""
    for finding in findings:
        reason, at = _decided(task, finding), finding.source_offset
        if reason is not None and at is not None:
            # Neighbours as one: an operator may skip millions.
            joins = excused and (excused[-1].reason, excused[-1].offset_to) == (reason, at)
            start = excused.pop().offset_from if joins else at
            excused.append(_excused(reason, span.source, start, at + 1))
        else:
            yield finding


def _excused(reason: Reason, source: TopicPartition, start: int, end: int) -> Unverifiable:
    where = "the flow was told to go past them" if reason is Reason.SKIPPED else "they were diverted"
    text = f"offsets [{start}, {end}) are not on the target: {where}"
    return Unverifiable(reason, source, start, end, end - start, text)


def _decided(task: Task, finding: Finding) -> Reason | None:
    if finding.kind is not FindingKind.LOST or finding.source_offset is None:
        return None
    if finding.source_offset in task.dead_letter:
        return Reason.DEAD_LETTER
    if any(hole.start <= finding.source_offset < hole.end for hole in task.holes):
        return Reason.SKIPPED
    return None


# ---- looking for strange records


def seek_task(task: Task, sides: Sides, contents: Collection[int]) -> Iterator[Sighting]:
    """Yield where the task's ranges of the source hold records of these contents, aborted ones too."""
    for span in task.ranges:
        try:
            for rec, aborted in sides.everything(task, span):
                content = int.from_bytes(rec.hash, "big")
                if content in contents:
                    yield Sighting(content, span.source, rec.offset, aborted)
        except (Gone, Unreadable):
            continue
