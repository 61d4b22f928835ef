"""Series for the plots: nothing is lost on the way into a picture."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.checks.evidence import Commit
from onceover.audit.model import Digest, Side
from onceover.audit.report.timeline import MAX_POINTS, ages, committed, histogram
from tests.support.worlds.audits import at, digests


def _dated(begin_ms: int, length_ms: int, records: int) -> list[Digest]:
    return [
        replace(each, records=records, first_timestamp_ms=begin_ms, last_timestamp_ms=begin_ms + length_ms)
        for each in digests(0, 0, 100)
    ]


@given(
    st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 10**10), st.integers(1, 10**6)), min_size=1),
    st.integers(1, 90),
)
def test_bars_add_up_to_the_records(ranges: list[tuple[int, int, int]], bars: int) -> None:
    """Every record is in some bar, whatever the ranges' times."""
    found = histogram([digest for each in ranges for digest in _dated(*each)], bars)

    assert found is not None
    expected = sum(records for *_, records in ranges)
    for side in Side:
        assert len(found[side]) == bars
        assert abs(sum(found[side]) - expected) <= 1e-3 * bars * len(ranges) + 1e-9 * expected


def test_sides_that_differ_differ_in_the_bars() -> None:
    """The picture shows where records are missing."""
    source, target = _dated(1000, 99, 100)
    found = histogram([source, replace(target, records=99)], 10)

    assert found is not None
    assert found["source"] == [10.0] * 10
    assert found["target"] == [9.9] * 10


def test_ranges_without_records_have_no_picture() -> None:
    """Nothing to draw."""
    assert histogram([]) is None
    assert histogram(_dated(1000, 10, 0)) is None
    assert committed([]) is None


def test_age_is_commit_time_minus_record_time() -> None:
    """Interpolated inside of the range that holds the commit's end."""
    ranges = _dated(1_000, 1_000, 100)
    commits = [Commit(at(0), 50, 50, 1_700), Commit(at(0), 100, 50, 2_300)]

    assert ages(ranges, commits) == [(1_700, 200), (2_300, 300)]


def test_commits_outside_of_what_was_compared_have_no_age() -> None:
    """Another partition, an earlier offset, a later one, none at all."""
    ranges = [replace(each, range=replace(each.range, source_from=50)) for each in _dated(1_000, 10, 5)]
    commits = [
        Commit(at(1), 60, 1, 9),
        Commit(at(0), 50, 1, 9),
        Commit(at(0), 101, 1, 9),
        Commit(at(0), 60, 0, 9),
    ]

    assert ages(ranges, commits) == []


def test_points_are_thinned_out() -> None:
    """More of them than pixels say nothing new."""
    commits = [Commit(at(0), 1 + i % 100, 1, 5_000 + i) for i in range(3 * MAX_POINTS)]

    assert len(ages(_dated(1_000, 10, 5), commits)) == MAX_POINTS


def test_commits_add_up() -> None:
    """Every record is in the bar of its commit."""
    found = committed([Commit(at(0), i, 2, 1_000 + 7 * i) for i in range(50)], 10)

    assert found is not None
    assert (len(found["records"]), sum(found["records"]), found["begin_ms"]) == (10, 100, 1_000)
