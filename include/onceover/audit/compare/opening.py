"""Opening a stretch that differs: every record that is not as it should be, by name, or with its excuse.

Invariant: what is left when excused records are taken out of both sides is digested once more, so that the
digests of an opened stretch agree exactly when nothing in it is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from onceover.audit.compare.align import Alignment, align
from onceover.audit.compare.excuses import (
    Cleaned,
    CompactedSide,
    Decided,
    Excuse,
    Excused,
    LeftOut,
    MayBeDiverted,
    Repeats,
    held,
    joined,
    told_apart,
)
from onceover.audit.compare.listing import listing
from onceover.audit.compare.sides import Sides
from onceover.audit.model import Digest, FindingKind, Mode, Range, Side, Unverifiable
from onceover.audit.ranges.tasks import OpenedStretch, Task
from onceover.audit.records.digest import RunningDigest
from onceover.audit.records.recordhash import AuditedRecord
from onceover.audit.records.sketch import sketch


class ComparedPieces(NamedTuple):
    """What is compared, as often as it is asked for.

    Args:
        source: the records that the target should hold, each with the source offset it comes from.
        target: the records that it holds.
    """

    source: Callable[[], Iterator[AuditedRecord]]
    target: Callable[[], Iterator[AuditedRecord]]


def name_differences(
    task: Task,
    span: Range,
    sides: Sides,
    pieces: ComparedPieces,
    told: Callable[[], Iterable[Unverifiable]] = tuple,
    unclaimed: Callable[[], Iterable[Excuse]] = tuple,
) -> OpenedStretch:
    """Return what differs in a stretch, and what is excused.

    Args:
        told: what is unverifiable besides, asked when the pieces were read.
        unclaimed: excuses for what no source partition claims, asked where there is something.

    Raises:
        Gone, Unreadable: as ``read_batches``.
    """
    timed = not task.untimed
    alignment = align(
        sketch(pieces.source(), timed=timed),
        sketch(pieces.target(), timed=timed),
        (span.source, span.target),
        aborted=sketch(sides.aborted(task, span), timed=timed),
    )
    known = Decided(task.holes, task.letters.offsets)
    decided = [known] if known.holes or known.diverted else []
    doubts = [MayBeDiverted(task.letters)] if task.letters.hidden or task.letters.unread else []
    others = () if alignment.same else unclaimed()
    excuses = [*decided, *_excuses(task, span, sides, alignment, known), *others]
    excused = Excused(excuses, task.proven, doubts)
    # Without an excuse to be asked, findings that are not listed need not be made.
    counts = None if excuses or doubts else alignment.counts
    found = told_apart(alignment.findings(), [*decided, *doubts])
    named = listing(span, excused.left(found), sides.max_findings, counts)
    digests = (
        _digest(pieces.source(), excused.source, span, Side.SOURCE),
        _digest(pieces.target(), excused.target, span, Side.TARGET),
    )
    said = joined((*excused.told, *told()))
    return OpenedStretch(span, digests, named.findings, said, named.unlisted)


def _excuses(
    task: Task, span: Range, sides: Sides, alignment: Alignment, decided: Decided
) -> Iterator[Excuse]:
    if alignment.same:
        return
    if task.cleaned:
        here, there = (_held(task, span, sides, side) for side in Side)
        yield Cleaned(alignment, span, here, there, decided, keyed=span.mode is not Mode.HANDLER)
    if task.repeats and not task.unclaimed:
        yield Repeats(_places(task, span, sides, alignment), span.source_to, task.lapsed)


def _held(task: Task, span: Range, sides: Sides, side: Side) -> CompactedSide:
    hidden = sides.hidden(task, side, span)
    return held(sides.records(task, side, span), sides.later(task, side, span), hidden)


def _places(task: Task, span: Range, sides: Sides, alignment: Alignment) -> dict[int, int]:
    """Return where the source holds what is surplus here: a repeat may come long after its original."""
    if not alignment.counts[FindingKind.PHANTOM] or span.mode is Mode.HANDLER:
        return {}
    every = sides.whole(task, span)
    return {int.from_bytes(rec.hash, "big"): rec.offset for rec, aborted in every if not aborted}


def _digest(records: Iterable[AuditedRecord], without: LeftOut, span: Range, side: Side) -> Digest:
    left, running = Counter(without), RunningDigest()
    for rec in records:
        place = rec.offset, int.from_bytes(rec.hash, "big")
        if left[place]:
            left[place] -= 1
        else:
            running.add_record(rec)
    return running.digest(span, side)
