"""Comparing a flow with a handler: the source goes through it again, each target partition by itself.

Invariant: every record that the handler makes is looked for, and every record on the target is looked at:
as claimed by one source partition, or as claimed by none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onceover.audit.compare.excuses import Excuse, RepeatedOutput
from onceover.audit.compare.opening import ComparedPieces, name_differences
from onceover.audit.compare.sides import Sides
from onceover.audit.model import Digest, Range, Reason, Side, Unverifiable
from onceover.audit.ranges.spreading import part
from onceover.audit.ranges.tasks import LapsedRange, OpenedStretch, RangeDigests, Task
from onceover.audit.records.digest import RunningDigest
from onceover.audit.records.expected import Expected, HandlerFailed, HandlerReplay
from onceover.audit.records.recordhash import AuditedRecord
from onceover.errors import Fatal
from onceover.model import TopicPartition


def compare_handled(task: Task, sides: Sides) -> Iterator[RangeDigests | OpenedStretch]:
    """Yield an answer for each range of a source partition; the source is read and handled once."""
    expected = {each.target.partition: RunningDigest() for each in task.ranges}
    failed: list[HandlerFailed] = []
    for outcome in _outcomes(task, sides, task.ranges[0]):
        if isinstance(outcome, HandlerFailed):
            failed.append(outcome)
        elif (running := expected.get(outcome.partition)) is not None:
            running.add_record(outcome.record)
    excused = tuple(_excused(task, task.ranges[0], failed))
    for index, each in enumerate(task.ranges):
        digests = (
            expected[each.target.partition].digest(each, Side.SOURCE),
            _digest(_held(task, sides, index), each, Side.TARGET),
        )
        if excused and _carries(each) and digests[0].same_content(digests[1]):
            yield OpenedStretch(each, digests, (), excused)
        else:
            yield RangeDigests(each, *digests)


def open_handled(task: Task, sides: Sides) -> OpenedStretch | LapsedRange:
    """Name every record of one target partition that is not what the handler makes of the source."""
    (span,) = task.ranges
    if task.handler_changed:
        text = "the flow file was changed since the flow was started: the handler may be another one"
        return LapsedRange(span, Reason.HANDLER_CHANGED, text)
    failed: list[HandlerFailed] = []

    def wanted() -> Iterator[AuditedRecord]:
        for outcome in _outcomes(task, sides, span):
            if isinstance(outcome, HandlerFailed):
                failed.append(outcome)
            elif outcome.partition == span.target.partition:
                yield outcome.record

    def told() -> Iterator[Unverifiable]:
        # By number: the handler is asked more than once.
        found = {each.offset: each for each in failed}
        yield from _excused(task, span, found.values()) if _carries(span) else ()

    def unclaimed() -> Iterator[Excuse]:
        if task.origins:
            yield _repeated(task, sides, span)

    pieces = ComparedPieces(wanted, lambda: _held(task, sides, 0))
    return name_differences(task, span, sides, pieces, told, unclaimed)


def _repeated(task: Task, sides: Sides, span: Range) -> RepeatedOutput:
    """Find out what of a span's records the handler makes of what the source holds: at least once, they may
    be there again, or before their progress is."""
    here = {_content(rec) for rec in _held(task, sides, 0)}
    made: dict[int, tuple[TopicPartition, int]] = {}
    positions = {span.source._replace(partition=number): position for number, position in task.origins}
    for tp in positions:
        for outcome in _outcomes(task, sides, sides.held(span, tp)):
            if isinstance(outcome, Expected) and outcome.partition == span.target.partition:
                content = _content(outcome.record)
                if content in here:
                    made[content] = tp, outcome.record.offset
    return RepeatedOutput(made, positions, task.lapsed)


def _content(record: AuditedRecord) -> int:
    return int.from_bytes(record.hash, "big")


def _outcomes(task: Task, sides: Sides, span: Range) -> Iterator[Expected | HandlerFailed]:
    if span.source_from >= span.source_to:
        return
    if sides.handler is None:
        raise Fatal("a flow with a handler is audited without it")
    replay = HandlerReplay(sides.handler, span.source, task.target_partitions, not task.untimed)
    yield from replay.outcomes(sides.records(task, Side.SOURCE, span))


def _held(task: Task, sides: Sides, index: int) -> Iterator[AuditedRecord]:
    records = sides.records(task, Side.TARGET, task.ranges[index])
    return part(records, task.claims[index], claimed=not task.unclaimed)


def _digest(records: Iterable[AuditedRecord], span: Range, side: Side) -> Digest:
    running = RunningDigest()
    for rec in records:
        running.add_record(rec)
    return running.digest(span, side)


def _carries(span: Range) -> bool:
    """Tell whether the range is the one of its source partition that says what the handler fails on."""
    return span.source.partition == span.target.partition


def _excused(task: Task, span: Range, failed: Iterable[HandlerFailed]) -> Iterator[Unverifiable]:
    for each in failed:
        at, where = each.offset, f"the handler fails on offset {each.offset} ({each.message})"
        doubt = task.letters.doubt(at)
        reason = Reason.HANDLER_FAILED
        if at in task.letters.offsets:
            reason, where = Reason.DEAD_LETTER, f"{where}; it was diverted"
        elif doubt is not None:
            reason, where = doubt.reason, f"{where}; whether it was diverted nobody can tell: {doubt.why}"
        yield Unverifiable(reason, span.source, at, at + 1, 1, where)
