"""The course of an audit: what is opened together, what a result holds, and where the watermark stops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.checks.result import PartitionResult
from onceover.audit.compare.crossmatch import Sighting
from onceover.audit.course.partitions import (
    PairPlan,
    compare_partitions,
    regions_of,
    sample,
)
from onceover.audit.course.rowcodec import answer_of, answer_row, sighting_of, sighting_row, task_of, task_row
from onceover.audit.model import (
    Digest,
    Finding,
    FindingKind,
    Mode,
    Range,
    Reason,
    Side,
    Unlisted,
    Unverifiable,
)
from onceover.audit.ranges.bounds import Bounds
from onceover.audit.ranges.tasks import First, LapsedRange, OpenedStretch, RangeDigests, Task
from onceover.model import TopicPartition
from onceover.state.records.verified import Watermark

IDS = (UUID(int=1), UUID(int=2))
PAIR = (TopicPartition("a", 0), TopicPartition("b", 0))
WHOLE = Bounds(*PAIR, IDS, Mode.RECORDS, 0, 100, 0, 200)
RANGES = tuple(Range(PAIR[0], 10 * n, 10 * n + 10, PAIR[1], 20 * n, 20 * n + 20) for n in range(10))


def answer(span: Range, *, agrees: bool = True) -> RangeDigests:
    """Return both sides of a range."""
    source, target = (
        Digest(span, side, 10, 7, 8 if agrees or side is Side.SOURCE else 9, 100, 1, span.source_to)
        for side in Side
    )
    return RangeDigests(span, source, target)


class Scripted:
    """Workers whose answers are known; everything crosses as JSON, as with Spark.

    Args:
        wrong: numbers of ranges that differ; ``lapsed`` of those that cannot be read.
        found: what opening a stretch finds, by its first source offset.
        aborted: whether what is sought is of an aborted transaction.
    """

    def __init__(
        self,
        wrong: Iterable[int] = (),
        lapsed: Iterable[int] = (),
        found: dict[int, list[Finding]] | None = None,
        *,
        aborted: bool = False,
    ) -> None:
        self._aborted = aborted
        self.opened: list[Range] = []
        self.sought: list[Range] = []
        self._wrong, self._lapsed, self._found = set(wrong), set(lapsed), found or {}

    def compare(self, work: Sequence[Task]) -> Iterable[First]:
        for task in work:
            assert task_of(task_row(task)) == task
            for span in task.ranges:
                number = span.source_from // 10
                said: First = answer(span, agrees=number not in self._wrong)
                if number in self._lapsed:
                    said = LapsedRange(span, Reason.RETENTION, "gone")
                assert answer_of(answer_row(said)) == said
                yield said

    def open(self, work: Sequence[Task]) -> Iterable[OpenedStretch | LapsedRange]:
        for task in work:
            (span,) = task.ranges
            self.opened.append(span)
            both = answer(span, agrees=not self._found)
            findings = tuple(self._found.get(span.source_from, ()))
            excused = Unverifiable(Reason.SKIPPED, span.source, 1, 2, 1) if span.source_from == 90 else None
            more = (Unlisted(FindingKind.LOST, *PAIR, 7),) if findings else ()
            said = OpenedStretch(
                span, (both.source, both.target), findings, (excused,) if excused else (), more
            )
            assert answer_of(answer_row(said)) == said
            yield said

    def seek(self, work: Sequence[Task], contents: frozenset[int]) -> Iterable[Sighting]:
        self.sought += [span for task in work for span in task.ranges]
        seen = Sighting(min(contents), PAIR[0], 3, self._aborted)
        assert sighting_of(sighting_row(seen)) == seen
        yield seen


def finding(kind: FindingKind = FindingKind.LOST, **marks: str) -> Finding:
    """Return a finding of the pair."""
    return Finding(kind, PAIR[0], 35, PAIR[1], None, **marks)


def compared(workers: Scripted, plan: PairPlan | None = None) -> PartitionResult:
    """Return what comes of one partition."""
    (found,) = compare_partitions([plan or PairPlan(WHOLE, RANGES)], workers, 3)
    return found


def numbers(spans: Iterable[Range]) -> list[tuple[int, int]]:
    """Return which of the ranges are in each span."""
    return [(span.source_from // 10, span.source_to // 10) for span in spans]


def test_everything_that_agrees_is_verified_to_the_end() -> None:
    """Nothing is opened."""
    workers = Scripted()
    result = compared(workers)
    assert workers.opened == []
    assert (result.verified_to, result.verified_target, result.verified_timestamp_ms) == (100, 200, 100)
    assert len(result.digests) == 20


def test_range_that_differs_is_opened_with_both_neighbours() -> None:
    """The stretch's digests stand instead of its ranges', so that a wrong border is no difference."""
    workers = Scripted(wrong=[4])
    result = compared(workers)
    assert numbers(workers.opened) == [(3, 6)]
    assert [d.range.source_from for d in result.digests if d.side is Side.SOURCE] == [
        0,
        10,
        20,
        30,
        60,
        70,
        80,
        90,
    ]
    assert (result.verified_to, result.verified_target) == (100, 200)


def test_neighbours_that_differ_are_opened_as_one() -> None:
    """A border between them may be wrong; far ones stay apart; a record too many stays in its stretch."""
    workers = Scripted(wrong=[0, 1, 3, 8])
    compared(workers)
    assert numbers(workers.opened) == [(0, 5), (7, 10)]


def test_watermark_stops_before_what_is_wrong_or_was_not_read() -> None:
    """What lies behind is proven only together with what lies before."""
    result = compared(Scripted(wrong=[4], found={30: [finding()]}))
    assert (result.verified_to, result.verified_target, len(result.findings)) == (30, 60, 1)
    assert result.by_kind == {"LOST": 8}
    result = compared(Scripted(lapsed=[2]))
    assert (result.verified_to, result.verified_target) == (20, 40)
    assert [(gap.reason, gap.offset_from, gap.offset_to) for gap in result.unverifiable] == [
        (Reason.RETENTION, 20, 30)
    ]


def test_what_a_person_decided_is_told_and_passed() -> None:
    """A skipped record would otherwise hold the watermark for ever."""
    (found,) = compare_partitions([PairPlan(WHOLE, RANGES[9:])], Scripted(wrong=[9]), 3)
    assert [gap.reason for gap in found.unverifiable] == [Reason.SKIPPED]
    plan = PairPlan(replace(WHOLE, begin=90, source_from=90, target_from=180), RANGES[9:])
    assert compared(Scripted(wrong=[9]), plan).verified_to == 100


def test_watermark_of_before_is_kept_unless_the_audit_joins_it() -> None:
    """Never lower; not raised over a stretch that nobody looked at."""
    mark = Watermark(
        offset=60, target_offset=120, source_id=IDS[0], target_id=IDS[1], timestamp_ms=5, at_ms=6
    )
    known = replace(WHOLE, watermark=mark)
    assert (
        compared(Scripted(wrong=[1], found={0: [finding()]}), PairPlan(known, RANGES)).verified_target == 120
    )
    late = replace(known, source_from=80, target_from=160)
    apart = compared(Scripted(), PairPlan(late, RANGES[8:]))
    assert (apart.verified_to, apart.verified_timestamp_ms) == (60, 5)
    gap = Unverifiable(Reason.RETENTION, PAIR[0], 60, 80, 20)
    held = replace(late, unverifiable=(gap,))
    assert compared(Scripted(), PairPlan(held, RANGES[8:])).verified_to == 60
    gone = replace(late, unverifiable=(replace(gap, gone=True),))
    assert compared(Scripted(), PairPlan(gone, RANGES[8:])).verified_to == 100


@pytest.mark.parametrize(
    ("aborted", "kind"), [(False, FindingKind.REPEATED), (True, FindingKind.LEAKED)], ids=["seen", "aborted"]
)
def test_surplus_records_are_sought_on_the_whole_source(aborted: bool, kind: FindingKind) -> None:
    """Also in what an incremental audit does not compare."""
    mark = "0" * 31 + "7:" + ":".join(["0" * 16] * 3) + ":1"
    phantom = finding(FindingKind.PHANTOM, target_mark=mark)
    surplus = replace(phantom, source_offset=None, target_offset=170)
    workers = Scripted(wrong=[9], found={80: [surplus]}, aborted=aborted)
    plan = PairPlan(replace(WHOLE, source_from=80, target_from=160), RANGES[8:], log_start=5)
    result = compared(workers, plan)
    assert [(span.source_from, span.source_to) for span in workers.sought] == [(5, 80), (80, 90), (90, 100)]
    assert [(each.kind, each.source_offset) for each in result.findings] == [(kind, 3)]


def test_plans_of_one_source_partition_keep_their_ranges_apart() -> None:
    """With a handler: what source partition 0 becomes, and what nobody claims of target partition 0."""
    surplus = replace(WHOLE, source_to=0, target_to=40)
    beside = (Range(PAIR[0], 0, 0, PAIR[1], 0, 40),)
    workers = Scripted(wrong=[4], found={30: [finding()]})

    real, other = compare_partitions([PairPlan(WHOLE, RANGES), PairPlan(surplus, beside)], workers, 3)

    assert numbers(workers.opened) == [(3, 6)]
    assert (len(real.findings), len(other.findings)) == (1, 0)
    assert [d.range for d in other.digests] == [*beside, *beside]


def test_what_was_not_asked_for_is_not_proven() -> None:
    """An audit since a time, without one before it: the watermark would speak of the beginning, too."""
    late = replace(WHOLE, source_from=80, target_from=160)
    assert compared(Scripted(), PairPlan(late, RANGES[8:])).verified_to == -1
    assert compared(Scripted(), PairPlan(replace(late, begin=80), RANGES[8:])).verified_to == 100
    gaps = [Unverifiable(Reason.RETENTION, PAIR[0], *each, 1, gone=True) for each in ((30, 80), (0, 30))]
    gone = replace(late, unverifiable=tuple(gaps))
    assert compared(Scripted(), PairPlan(gone, RANGES[8:])).verified_to == 100
    part = replace(late, unverifiable=tuple(gaps[:1]))
    assert compared(Scripted(), PairPlan(part, RANGES[8:])).verified_to == -1


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_opened_stretches_hold_every_difference_and_do_not_overlap(wrong: set[int], lapsed: set[int]) -> None:
    """For any differences, beside ranges that could not be read."""
    first = {each.range: each for each in Scripted(wrong, lapsed).compare([Task(IDS, RANGES)])}
    spans = numbers(regions_of(RANGES, first))
    inside = [number for begin, end in spans for number in range(begin, end)]
    assert len(inside) == len(set(inside))
    assert wrong - lapsed <= set(inside)
    assert not lapsed & set(inside)


def test_sample_keeps_the_newest_range_and_claims_no_more() -> None:
    """What was copied last is what a failover depends on."""
    (plan,) = sample([PairPlan(WHOLE, RANGES)], 4, seed=1)
    assert (len(plan.ranges), plan.ranges[-1], plan.complete) == (4, RANGES[-1], False)
    assert sample([PairPlan(WHOLE, RANGES)], 4, seed=1) == [plan]
    (whole,) = sample([PairPlan(WHOLE, RANGES)], 40, seed=1)
    assert whole.complete
