"""The seam is exact or there is none: against every way in which a copy can have come to be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.seeding.codes import SeedingCode
from onceover.seeding.seam import NoSeam, RecordPrint, Seam, find_seam


def log(contents: Sequence[object], first: int = 0, step: int = 1) -> list[RecordPrint]:
    """Return records with the given contents; offsets may have holes, as markers leave them."""
    return [RecordPrint(first + i * step, 0, str(content).encode()) for i, content in enumerate(contents)]


def passes(draw: st.DrawFn, size: int) -> tuple[list[int], int]:
    """Return source places in the order of the target, as restarts leave them, and how far they come."""
    target: list[int] = []
    reached = 0
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, reached))
        end = draw(st.integers(begin, size))
        target += range(begin, end)
        reached = max(reached, end)
    return target, reached


@st.composite
def histories(draw: st.DrawFn, alphabet: int) -> tuple[list[int], list[int], int]:
    """Return source contents, target contents, and how many source records are on the target.

    ``alphabet`` 0 makes every record different.
    """
    size = draw(st.integers(1, 12))
    if alphabet:
        source = draw(st.lists(st.integers(1, alphabet), min_size=size, max_size=size))
    else:
        source = list(range(size))
    places, reached = passes(draw, size)
    return source, [source[place] for place in places], reached


@given(history=histories(alphabet=0), step=st.integers(1, 3))
def test_different_records_always_give_the_seam(history: tuple[list[int], list[int], int], step: int) -> None:
    """Whatever was repeated, and whatever holes the offsets have."""
    source, target, reached = history
    if target:
        finding = find_seam(log(source, 7, step), log(target), from_start=True)
        assert isinstance(finding, Seam)
        assert (finding.index, finding.offset) == (reached - 1, 7 + (reached - 1) * step + 1)
        assert finding.repeated == len(target) - reached


@given(history=histories(alphabet=2))
def test_identical_records_give_the_same_content_or_no_answer(
    history: tuple[list[int], list[int], int],
) -> None:
    """Either the target is the source's beginning, record by record, or the seam is the true one."""
    source, target, reached = history
    if target:
        finding = find_seam(log(source), log(target), from_start=True)
        if isinstance(finding, Seam) and target != source[: finding.offset]:
            assert finding.offset == reached
        else:
            assert isinstance(finding, Seam) or finding.code == SeedingCode.AMBIGUOUS


@given(history=histories(alphabet=3), window=st.integers(1, 12))
def test_the_end_of_a_target_gives_a_reading_of_it_or_no_answer(
    history: tuple[list[int], list[int], int], window: int
) -> None:
    """With the beginning out of sight an unbroken end must stand in one place only."""
    source, target, _ = history
    tail = target[-window:]
    if tail:
        finding = find_seam(log(source), log(tail))
        places = [i for i in range(len(source)) if source[i : i + len(tail)] == tail]
        if isinstance(finding, Seam) and places:
            assert places == [finding.offset - len(tail)]
        elif places:
            assert isinstance(finding, NoSeam) and finding.code == SeedingCode.AMBIGUOUS


def test_repeats_of_a_few_are_not_taken_for_a_run_of_many() -> None:
    """The first record twice, or the third and the fourth: going on after the fourth might lose two."""
    for from_start in (True, False):
        finding = find_seam(log([1, 2, 1, 1]), log([1, 1]), from_start=from_start)
        assert isinstance(finding, NoSeam) and finding.code == SeedingCode.AMBIGUOUS


@given(history=histories(alphabet=0), at=st.integers(0, 20), count=st.integers(1, 3))
def test_a_missing_record_is_named(history: tuple[list[int], list[int], int], at: int, count: int) -> None:
    """Records that no pass has brought, between two that one has, are a gap with its offsets."""
    source, target, reached = history
    lost = {place for place in range(at, at + count) if 0 < place < reached - 1}
    kept = [place for place in target if place not in lost]
    if lost and kept and min(kept) < min(lost):
        finding = find_seam(log(source), log(kept))
        assert isinstance(finding, NoSeam)
        assert finding.code in (SeedingCode.GAP, SeedingCode.FOREIGN_RECORD)
        assert (
            finding.code != SeedingCode.GAP
            or f"from offset {min(lost)} to {max(lost)} are missing" in finding.message
        )


def test_a_foreign_record_is_named() -> None:
    """Somebody else has written to the target."""
    finding = find_seam(log("abcd"), log(["a", "b", "x", "c"], 100))
    assert isinstance(finding, NoSeam)
    assert finding.code == SeedingCode.FOREIGN_RECORD and "offset 102" in finding.message


def test_a_restart_that_did_not_come_as_far_again_does_not_lower_the_seam() -> None:
    """Going on where the last run ended would copy d a second time."""
    assert find_seam(log("abcdef"), log("abcdbc")) == Seam(4, 3, 6, 2)


def test_an_anchor_decides_between_identical_records() -> None:
    """An offset sync of MirrorMaker says which source record a target record is."""
    source, target = log("aaaaab"), log("aaa", 50)
    ambiguous = find_seam(source, target)
    assert isinstance(ambiguous, NoSeam) and ambiguous.code == SeedingCode.AMBIGUOUS
    assert find_seam(source, target, anchors={51: 2}) == Seam(4, 3, 3)


@pytest.mark.parametrize("anchors", [{51: 5}, {51: 0}, {40: 2}, {51: 99}])
def test_an_anchor_that_cannot_be_true_decides_nothing(anchors: dict[int, int]) -> None:
    """Another record, a place before the stretch, or offsets out of sight."""
    finding = find_seam(log("aaaaab"), log("aaa", 50), anchors=anchors)
    assert isinstance(finding, NoSeam)


def test_a_target_made_of_one_record_over_and_over_is_ambiguous() -> None:
    """And is answered at once, although the readings are countless."""
    finding = find_seam(log("ab" * 300), log("ab" * 100 + "aa" + "ab" * 100))
    assert isinstance(finding, NoSeam) and finding.code == SeedingCode.AMBIGUOUS
