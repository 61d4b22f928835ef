"""What one worker does with one task: read both sides, compare, and open what differs.

Invariant: memory is bounded by batches while ranges are compared, and by numbers (``audit.records.sketch``),
not by records, while a stretch is opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from onceover.audit.compare.compare import compare
from onceover.audit.compare.crossmatch import Sighting
from onceover.audit.compare.opening import ComparedPieces, name_differences
from onceover.audit.compare.sides import Sides
from onceover.audit.model import Mode, Range, Side
from onceover.audit.ranges.tasks import First, LapsedRange, OpenedStretch, RangeDigests, Task
from onceover.audit.records.batches import Unreadable
from onceover.audit.records.reader import Gone
from onceover.audit.records.refusals import MayNotRead, said


def compare_task(task: Task, sides: Sides) -> Iterator[First]:
    """Yield an answer for each range of the task, in order; both sides are read once, in one go."""
    left = list(task.ranges)
    while left:
        try:
            for answer in _compared(replace(task, ranges=tuple(left)), sides):
                yield answer
                left.pop(0)
        except MayNotRead as error:
            # Nor may the rest of it be.
            yield from (LapsedRange(each, error.reason, said(error)) for each in left)
            return
        except (Gone, Unreadable) as error:
            yield LapsedRange(left.pop(0), error.reason, said(error))


def _compared(task: Task, sides: Sides) -> Iterator[RangeDigests | OpenedStretch]:
    if task.ranges[0].mode is Mode.HANDLER:
        # Arrow takes a while to load, which flows without a handler do not pay.
        from onceover.audit.compare.handled import compare_handled

        yield from compare_handled(task, sides)
        return
    first, last = task.ranges[0], task.ranges[-1]
    whole = replace(first, source_to=last.source_to, target_to=last.target_to)
    source, target = (sides.cursor(task, side, whole) for side in Side)
    try:
        for each in task.ranges:
            compared = compare(each, source, target)
            yield RangeDigests(each, compared.source, compared.target, compared.parted)
    finally:
        source.close()
        target.close()


# ---- opening


def open_task(task: Task, sides: Sides) -> OpenedStretch | LapsedRange:
    """Name every record that is not as it should be in the task's one range."""
    (span,) = task.ranges
    try:
        return _opened(task, span, sides)
    except (Gone, Unreadable) as error:
        return LapsedRange(span, error.reason, said(error))


def _opened(task: Task, span: Range, sides: Sides) -> OpenedStretch | LapsedRange:
    if span.mode is Mode.HANDLER:
        from onceover.audit.compare.handled import open_handled

        return open_handled(task, sides)
    pieces = ComparedPieces(
        lambda: sides.records(task, Side.SOURCE, span), lambda: sides.records(task, Side.TARGET, span)
    )
    return name_differences(task, span, sides, pieces)


# ---- looking for surplus records


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
