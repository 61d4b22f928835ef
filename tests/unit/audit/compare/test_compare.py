"""Comparing ranges as they stream by: the digests are equal exactly when the records are."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.compare.compare import Cursor, compare
from onceover.audit.course.rowcodec import answer_of, answer_row
from onceover.audit.model import ComparedAs, Range, Side
from onceover.audit.ranges.tasks import RangeDigests
from onceover.audit.records.batches import Batch
from onceover.audit.records.reader import ReadBatch
from onceover.model import TopicPartition
from tests.support.raw.mutations import Content
from tests.unit.audit.stored import batches, stored

# With the compiled code and without it.
pytestmark = pytest.mark.usefixtures("both_ways")
PAIR = (TopicPartition("a", 0), TopicPartition("b", 0))
contents = st.lists(
    st.builds(
        Content,
        st.none() | st.binary(max_size=2),
        st.none() | st.binary(max_size=2),
        st.just(()),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


def log(records: Sequence[Content], cuts: Sequence[int], base: int) -> list[Batch]:
    """Return the records as batches that end at the cuts."""
    borders = sorted({0, len(records), *(cut % len(records) for cut in cuts)})
    parts = [stored(records[a:b], base=base + a) for a, b in pairwise(borders) if a < b]
    return batches(*parts)


def reads(found: Sequence[Batch], aborted: Sequence[Batch] = ()) -> Generator[ReadBatch]:
    """Yield batches as a reader does."""
    for batch in aborted:
        yield ReadBatch(batch, aborted=True)
    for batch in found:
        yield ReadBatch(batch, aborted=False)


def span(source: tuple[int, int], target: tuple[int, int]) -> Range:
    """Return a range."""
    return Range(PAIR[0], *source, PAIR[1], *target)


@given(contents, st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)), st.integers(0, 20))
def test_same_records_agree_however_they_are_batched(
    records: list[Content], mine: list[int], theirs: list[int], border: int
) -> None:
    """Also across a border of ranges that no batch ends at; aborted batches are not seen."""
    middle, end = border % len(records), len(records)
    hidden = Content(b"aborted", None, (), 9)
    source = Cursor(reads(log(records, mine, 0), log([hidden], [], 0)), 0)
    target = Cursor(reads(log(records, theirs, 50)), 50)
    first = compare(span((0, middle), (50, 50 + middle)), source, target)
    second = compare(span((middle, end), (50 + middle, 50 + end)), source, target)
    assert first.same
    assert second.same
    assert (first.source.records, second.target.records) == (middle, end - middle)


@given(contents, contents, st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_digests_agree_only_for_the_same_records(
    records: list[Content], others: list[Content], mine: list[int], theirs: list[int]
) -> None:
    """Whatever differs: number, order, a null for an empty value, a timestamp."""
    whole = span((0, len(records)), (0, len(others)))
    source, target = Cursor(reads(log(records, mine, 0)), 0), Cursor(reads(log(others, theirs, 0)), 0)
    assert compare(whole, source, target).same == (records == others)


def test_equal_batches_are_not_decoded() -> None:
    """Their bytes are compared and hashed; one that differs is opened, and those behind it are not."""
    records = [Content(b"k", b"%d" % n, (), n) for n in range(9)]
    whole = span((0, 9), (70, 79))
    right = compare(
        whole, Cursor(reads(log(records, [3, 6], 0)), 0), Cursor(reads(log(records, [3, 6], 70)), 70)
    )
    assert (right.same, right.source.compared) == (True, ComparedAs.BYTES)
    mixed = compare(
        whole, Cursor(reads(log(records, [3, 6], 0)), 0), Cursor(reads(log(records, [6], 70)), 70)
    )
    assert (mixed.same, mixed.source.compared, mixed.target.compared) == (
        True,
        ComparedAs.MIXED,
        ComparedAs.MIXED,
    )


def test_timestamps_are_left_out_where_the_target_makes_its_own() -> None:
    """LogAppendTime: everything else is compared."""
    here = [Content(b"k", b"v", (), 1)]
    there = [Content(b"k", b"v", (), 2)]
    for timed in (True, False):
        source = Cursor(reads(log(here, [], 0)), 0, timed=timed)
        target = Cursor(reads(log(there, [], 0)), 0, timed=timed)
        assert compare(span((0, 1), (0, 1)), source, target).same is not timed


def test_records_before_the_start_and_behind_the_end_belong_to_no_range() -> None:
    """A batch may reach over both."""
    records = [Content(None, b"%d" % n, (), n) for n in range(6)]
    compared = compare(
        span((2, 4), (0, 2)),
        Cursor(reads(log(records, [], 0)), 2),
        Cursor(reads(log(records[2:4], [], 0)), 0),
    )
    assert compared.same
    assert [compared.source.records, compared.source.side] == [2, Side.SOURCE]
    whole = Cursor(reads(log(records, [], 0)), 2), Cursor(reads(log(records, [], 0)), 0)
    assert not compare(span((2, 6), (0, 6)), *whole).same, "two records belong to another range"


def test_a_record_that_differs_is_remembered_whatever_the_digests_say() -> None:
    """They save time; against what was seen they are not believed."""
    one, other = Content(b"k", b"1", (), 1), Content(b"k", b"2", (), 1)
    whole = span((0, 1), (0, 1))
    found = compare(whole, Cursor(reads(log([one], [], 0)), 0), Cursor(reads(log([other], [], 0)), 0))
    assert found.parted and not found.same
    alike = RangeDigests(whole, found.source, replace(found.source, side=Side.TARGET), found.parted)
    assert alike.source.same_content(alike.target)
    assert not alike.agrees
    back = answer_of(answer_row(alike))
    assert isinstance(back, RangeDigests) and not back.agrees
