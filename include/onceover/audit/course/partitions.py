"""The course of an audit: compare ranges, open what differs together with its neighbours, put it together.

Invariant: a partition's result accounts for every source offset of its bounds: in a range whose digests
stand in the result, or as unverifiable. The watermark stops before the first range that was not right.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

from onceover.audit.checks.result import PartitionResult
from onceover.audit.compare.crossmatch import Sighting, crossmatch, wanted
from onceover.audit.model import DECIDED, Digest, Finding, Mode, Range, Reason, Unverifiable
from onceover.audit.ranges.bounds import Bounds
from onceover.audit.ranges.diverted import NO_LETTERS, DeadLetters
from onceover.audit.ranges.spreading import TargetStretch
from onceover.audit.ranges.tasks import First, LapsedRange, OpenedStretch, RangeDigests, Task, tasks
from onceover.audit.ranges.tiling import Hole
from onceover.model import TopicPartition


class Workers(Protocol):
    """Whoever reads: Spark's executors, or this very process."""

    def compare(self, work: Sequence[Task]) -> Iterable[First]:
        """Yield one answer for each range of every task, in any order."""

    def open(self, work: Sequence[Task]) -> Iterable[First]:
        """Yield one answer for each task, whose one range is a stretch that differed."""

    def seek(self, work: Sequence[Task], contents: frozenset[int]) -> Iterable[Sighting]:
        """Yield where the source holds records of these contents."""


@dataclass(frozen=True, slots=True)
class PairPlan:
    """What is read of one pair of partitions.

    Args:
        bounds: what can be compared.
        ranges: they tile it, or are a sample of that.
        complete: False for a sample.
        holes: source offsets that an operator told the flow to go past.
        untimed: the target stamps records itself.
        letters: what is known of the source partition's dead letters.
        log_start: first offset of the source's log.
        spreading: with a handler, what a task has to know besides; its ranges are left out.
        claims: with a handler, of each range.
        cleaned: one of the topics is compacted.
        repeats: delivery is at_least_once.
        lapsed: as a task has it.
    """

    bounds: Bounds
    ranges: tuple[Range, ...]
    complete: bool = True
    holes: tuple[Hole, ...] = ()
    untimed: bool = False
    letters: DeadLetters = NO_LETTERS
    log_start: int = 0
    spreading: Task | None = None
    claims: tuple[tuple[TargetStretch, ...], ...] = ()
    cleaned: bool = False
    repeats: bool = False
    lapsed: Reason | None = None

    def work(self, ranges: Sequence[Range], size: int) -> Iterator[Task]:
        """Yield tasks for some of its ranges."""
        if self.spreading is not None:
            # The source is read and handled once for all its target partitions.
            of = dict(zip(self.ranges, self.claims, strict=True))
            found = tuple(of[each] for each in ranges)
            if ranges:
                yield self._known(replace(self.spreading, ranges=tuple(ranges), claims=found))
            return
        for task in tasks(self.bounds.ids, ranges, size):
            yield self._known(task)

    def _known(self, task: Task) -> Task:
        """Return a task with what excuses a difference."""
        mark = self.bounds.watermark
        return replace(
            task,
            untimed=self.untimed,
            holes=self.holes,
            letters=self.letters,
            cleaned=self.cleaned,
            repeats=self.repeats,
            lapsed=self.lapsed,
            proven=(0, 0) if mark is None else (mark.offset, 0 if self.spreading else mark.target_offset),
        )

    def everything(self, size: int) -> Iterator[Task]:
        """Yield tasks for all that the source's log holds, up to the bound."""
        bounds = self.bounds
        if self.spreading is not None:
            # What a handler makes is not on the source: nothing there would be recognised.
            return
        pair = bounds.source, self.log_start, bounds.source_from, bounds.target, 0, bounds.target_from
        before = [Range(*pair, bounds.mode)] if self.log_start < bounds.source_from else []
        yield from self.work([*before, *self.ranges], size)


class _Verified(NamedTuple):
    """Up to where everything is right without a gap, on both sides, and the largest timestamp before that."""

    source: int
    target: int
    timestamp_ms: int


def sample(plans: Sequence[PairPlan], count: int, seed: int) -> list[PairPlan]:
    """Return the plans with ``count`` ranges in all, chosen at random; the newest of each partition is in.

    What was copied last is what a failover depends on, and what no earlier audit has seen.
    """
    rng = random.Random(seed)
    last = {plan.ranges[-1] for plan in plans if plan.ranges}
    others = [each for plan in plans for each in plan.ranges if each not in last]
    chosen = last | set(rng.sample(others, max(0, min(len(others), count - len(last)))))
    return [_sampled(plan, chosen) for plan in plans]


def _sampled(plan: PairPlan, chosen: set[Range]) -> PairPlan:
    kept = tuple(each for each in plan.ranges if each in chosen)
    claims = tuple(c for each, c in zip(plan.ranges, plan.claims, strict=False) if each in chosen)
    return replace(plan, ranges=kept, claims=claims, complete=len(kept) == len(plan.ranges))


def compare_partitions(
    plans: Sequence[PairPlan], workers: Workers, task_ranges: int
) -> list[PartitionResult]:
    """Return what both sides hold of every partition, in the order of ``plans``.

    Args:
        workers: who reads.
        task_ranges: neighbouring ranges that one worker reads in one go.

    Raises:
        Retriable: a cluster was away for too long.
    """
    work = [task for plan in plans for task in plan.work(plan.ranges, task_ranges)]
    first = {each.range: each for each in workers.compare(work)} if work else {}
    # By plan: with a handler, source partition n has a plan, and what nobody claims of target partition n.
    regions = [list(regions_of(plan.ranges, first)) for plan in plans]
    again = [
        task
        for plan, parts in zip(plans, regions, strict=True)
        for region in parts
        for task in plan.work([region], 1)
    ]
    opened = {each.range: each for each in workers.open(again)} if again else {}
    found = [
        finding for each in opened.values() if isinstance(each, OpenedStretch) for finding in each.findings
    ]
    contents = wanted(found)
    everything = [task for plan in plans for task in plan.everything(task_ranges)] if contents else []
    seen = workers.seek(everything, contents) if everything else ()
    named = _by_partition(plans, crossmatch(found, seen))
    return [
        _result(plan, first, [opened[region] for region in parts], tuple(named.pop(plan.bounds.source, ())))
        for plan, parts in zip(plans, regions, strict=True)
    ]


def regions_of(ranges: Sequence[Range], first: Mapping[Range, First]) -> Iterator[Range]:
    """Yield the stretches to be opened: ranges that differ, each with both neighbours, joined.

    A border that was proposed wrongly makes two neighbours differ and is settled by opening both.
    """
    begin = end = -1
    for index, each in enumerate(ranges):
        if not _differs(first[each]):
            continue
        low = index - 1 if index > 0 and _joined(ranges, index, first) else index
        high = index + 1 if _joined(ranges, index + 1, first) else index
        if begin >= 0 and low <= end and _contiguous(ranges[begin : high + 1]):
            end = high
            continue
        if begin >= 0:
            yield _span(ranges[begin : end + 1])
            low = max(low, end + 1)
        begin, end = low, high
    if begin >= 0:
        yield _span(ranges[begin : end + 1])


def _differs(answer: First) -> bool:
    return isinstance(answer, RangeDigests) and not answer.agrees


def _joined(ranges: Sequence[Range], index: int, first: Mapping[Range, First]) -> bool:
    """Tell whether a range was read and begins where the one before it ends."""
    if index >= len(ranges) or not _contiguous(ranges[index - 1 : index + 1]):
        return False
    return all(isinstance(first[each], RangeDigests) for each in ranges[index - 1 : index + 1])


def _contiguous(ranges: Sequence[Range]) -> bool:
    return all(
        before.source_to == after.source_from and before.target_to == after.target_from
        for before, after in pairwise(ranges)
    )


def _span(ranges: Sequence[Range]) -> Range:
    return replace(ranges[0], source_to=ranges[-1].source_to, target_to=ranges[-1].target_to)


# ---- putting it together


def _result(
    plan: PairPlan,
    first: Mapping[Range, First],
    opened: Sequence[First],
    findings: tuple[Finding, ...],
) -> PartitionResult:
    bounds = plan.bounds
    pieces = sorted(_pieces(plan, first, opened), key=lambda each: each.range.source_from)
    verified = _verified(plan, pieces, findings)
    before = -1 if bounds.watermark is None else bounds.watermark.offset
    return PartitionResult(
        bounds.source,
        bounds.target,
        bounds.mode,
        bounds.source_from,
        bounds.source_to,
        bounds.target_from,
        bounds.target_to,
        tuple(digest for each in pieces for digest in _digests(each)),
        findings,
        # One source record may be missing in several target partitions, and is told of once.
        tuple(dict.fromkeys((*bounds.unverifiable, *_unverifiable(pieces)))),
        before,
        verified.source,
        verified.timestamp_ms,
        verified.target,
        plan.complete,
        tuple(each for piece in pieces if isinstance(piece, OpenedStretch) for each in piece.unlisted),
        plan.spreading is not None and plan.spreading.unclaimed,
        bounds.begin,
    )


def _pieces(
    plan: PairPlan, first: Mapping[Range, First], opened: Sequence[First]
) -> Iterator[First | OpenedStretch]:
    """Yield what is known of each stretch, the opened ones instead of the ranges in them."""
    yield from opened
    for each in plan.ranges:
        if not any(_holds(other.range, each) for other in opened):
            yield first[each]


def _holds(outer: Range, inner: Range) -> bool:
    # What a handler makes of the same source offsets lies in several target partitions.
    return (
        outer.target == inner.target
        and outer.source_from <= inner.source_from
        and inner.source_to <= outer.source_to
        and outer.target_from <= inner.target_from
        and inner.target_to <= outer.target_to
    )


def _digests(piece: First | OpenedStretch) -> tuple[Digest, ...]:
    match piece:
        case RangeDigests(_, source, target):
            return source, target
        case OpenedStretch():
            return piece.digests
        case LapsedRange():
            return ()


def _unverifiable(pieces: Iterable[First | OpenedStretch]) -> Iterator[Unverifiable]:
    """Yield what could not be compared; neighbours that were refused in the same words as one."""
    lapsed: Unverifiable | None = None
    for piece in pieces:
        if isinstance(piece, LapsedRange):
            found = piece.unverifiable()
            if lapsed is not None and _goes_on(lapsed, found):
                offsets = lapsed.offsets + found.offsets
                found = replace(lapsed, offset_to=found.offset_to, offsets=offsets)
            elif lapsed is not None:
                yield lapsed
            lapsed = found
        elif isinstance(piece, OpenedStretch):
            yield from piece.excused
    if lapsed is not None:
        yield lapsed


def _goes_on(before: Unverifiable, after: Unverifiable) -> bool:
    same = (before.reason, before.message) == (after.reason, after.message)
    return same and before.offset_to == after.offset_from


def _right(piece: First | OpenedStretch) -> bool:
    match piece:
        case RangeDigests():
            return piece.agrees
        case OpenedStretch():
            wrong = piece.findings or piece.unlisted
            return not wrong and all(each.reason in DECIDED or each.gone for each in piece.excused)
        case LapsedRange():
            return False


def _verified(
    plan: PairPlan, pieces: Sequence[First | OpenedStretch], findings: Sequence[Finding]
) -> _Verified:
    bounds, mark = plan.bounds, plan.bounds.watermark
    best = _Verified(-1, -1, -1)
    if mark is not None:
        best = _Verified(mark.offset, mark.target_offset, mark.timestamp_ms)
    # What nobody looked at, because only what came later was asked for, is not proven by what came later.
    if not bounds.joins or not _accounted(bounds, bounds.begin if mark is None else mark.offset):
        return best
    # What a source record became is in several ranges: all of them, or nothing is known of it.
    whole = plan.complete and not findings and all(map(_right, pieces))
    if bounds.mode is Mode.HANDLER and not whole:
        return best
    source, target, timestamp_ms = bounds.source_from, bounds.target_from, best.timestamp_ms
    for piece in pieces:
        if piece.range.source_from > source or not _right(piece):
            break
        source, target = piece.range.source_to, piece.range.target_to
        timestamp_ms = max([timestamp_ms, *(digest.last_timestamp_ms for digest in _digests(piece))])
    if bounds.mode is Mode.HANDLER:
        # The pieces lie in all partitions of the target; a watermark tells of the one of its own number.
        target = bounds.target_to
    return max(best, _Verified(source, target, timestamp_ms))


def _accounted(bounds: Bounds, offset: int) -> bool:
    """Tell whether the source no longer holds anything that lies between ``offset`` and the bounds.

    What it holds and nobody could compare stays unproven: it is named again the next time.
    """
    for gap in sorted(bounds.unverifiable, key=lambda each: each.offset_from):
        if gap.gone and gap.offset_from <= offset:
            offset = max(offset, gap.offset_to)
    return offset >= bounds.source_from


def _by_partition(
    plans: Sequence[PairPlan], findings: Iterable[Finding]
) -> dict[TopicPartition, list[Finding]]:
    """Return findings by the source partition they belong to: their own, or the counterpart's."""
    owners = {plan.bounds.target: plan.bounds.source for plan in plans}
    found: dict[TopicPartition, list[Finding]] = {}
    for finding in findings:
        owner = finding.source
        if owner is None and finding.target is not None:
            owner = owners.get(finding.target)
        if owner is not None:
            found.setdefault(owner, []).append(finding)
    return found
