"""The rows that the suites judge: of every range, partition, stretch and check, and nothing forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.checks import suites
from onceover.audit.checks.result import Area, AuditResult, PartitionResult
from onceover.audit.checks.suiterows import RANGE_COLUMNS, columns_of, suite_rows
from onceover.audit.model import FindingKind, Reason, Row
from tests.support.worlds import audits

_WHOLE = audits.result(
    [
        audits.partition_result(
            0,
            audits.digests(0, 0, 200),
            findings=[audits.finding(FindingKind.LOST)],
            unlisted=[audits.more(FindingKind.LOST, 7)],
            unverifiable=[audits.stretch(Reason.RETENTION, 0, 0, 10)],
        )
    ],
    [audits.check(area, ok=True) for area in Area],
)


def of_topics(result: AuditResult) -> list[Row]:
    """Return the rows of the suite of partitions."""
    return suite_rows(result)[suites.TOPICS]


@pytest.mark.parametrize("suite", suites.SUITES)
def test_rows_have_exactly_the_columns_that_are_judged(suite: str) -> None:
    """A column less would leave a rule without numbers."""
    rows = suite_rows(_WHOLE)[suite]

    assert rows
    assert all(set(row) == set(columns_of(suite)) for row in rows)


def test_ranges_are_joined_by_what_both_sides_share() -> None:
    """What differs between the sides must not be among it."""
    source, target = (digest.as_row() for digest in audits.digests(0, 0, 100, target_records=99))

    assert [source[name] for name in RANGE_COLUMNS] == [target[name] for name in RANGE_COLUMNS]
    assert set(RANGE_COLUMNS) == set(audits.digests(0, 0, 100)[0].range.as_row())


@pytest.mark.parametrize(
    ("stretches", "ranges", "left_out"),
    [
        ([], [(0, 100), (100, 200)], 0),
        ([], [(0, 100)], 100),
        ([], [(10, 100), (120, 200)], 30),
        ([(150, 220)], [(0, 150)], 0),
        ([(0, 120), (90, 100)], [(100, 200)], 0),
        ([(20, 30), (0, 90)], [(100, 200)], 10),
        ([], [], 200),
    ],
    ids=["tiled", "end", "middle", "beyond the end", "overlapping", "inside another", "nothing"],
)
def test_offsets_that_nobody_speaks_of_are_counted(
    stretches: list[tuple[int, int]], ranges: list[tuple[int, int]], left_out: int
) -> None:
    """Compared, or named as unverifiable: what is neither was forgotten."""
    (row,) = of_topics(audits.result([_partition(ranges, stretches)]))

    assert row["unaccounted"] == left_out


_STRETCHES = st.lists(st.tuples(st.integers(-20, 220), st.integers(1, 60)), max_size=8)


@given(_STRETCHES, _STRETCHES)
def test_whatever_the_stretches_each_offset_counts_once(
    ranges: list[tuple[int, int]], stretches: list[tuple[int, int]]
) -> None:
    """As counting one by one would have it."""
    spans = [[(begin, begin + length) for begin, length in each] for each in (ranges, stretches)]

    (row,) = of_topics(audits.result([_partition(*spans)]))

    covered = {offset for span in (*spans[0], *spans[1]) for offset in range(*span)}
    assert row["unaccounted"] == len(set(range(200)) - covered)


def _partition(ranges: list[tuple[int, int]], stretches: list[tuple[int, int]]) -> PartitionResult:
    return audits.partition_result(
        0,
        [digest for begin, end in ranges for digest in audits.digests(0, begin, end)],
        unverifiable=[audits.stretch(Reason.RETENTION, 0, *each) for each in stretches],
    )


def test_sample_leaves_out_what_it_likes() -> None:
    """Nobody claims that a sample covers everything."""
    result = audits.partition_result(0, audits.digests(0, 0, 100), complete=False)

    (row,) = of_topics(audits.result([result]))

    assert row["unaccounted"] is None


def test_phantom_counts_where_it_is_and_stray_ones_get_a_row() -> None:
    """A finding without a source partition, or one that is counted only, must not get lost on its way."""
    inside = audits.partition_result(
        1,
        audits.digests(1, 0, 200),
        findings=[audits.finding(FindingKind.PHANTOM, 1)],
        unlisted=[audits.more(FindingKind.PHANTOM, 12, 1), audits.more(FindingKind.LOST, 3, 1)],
    )
    stray = [audits.finding(FindingKind.PHANTOM, 7)]

    rows = of_topics(audits.result([audits.good_partition(0), inside], stray=stray))

    assert {row["what"]: row["phantom"] for row in rows} == {"orders:0": 0, "orders:1": 13, "orders:7": 1}
    assert sum(row["lost"] for row in rows) == 3


def test_comparison_has_both_sides_in_a_row() -> None:
    """A side that was not read is None, not equal."""
    whole, half = audits.digests(0, 0, 100), audits.digests(0, 100, 200)[:1]

    rows = suite_rows(audits.result([audits.partition_result(0, (*whole, *half))]))[suites.DIGESTS]

    assert [(row["source_records"], row["target_records"], row["both_sides"]) for row in rows] == [
        (100, 100, True),
        (100, None, None),
    ]
