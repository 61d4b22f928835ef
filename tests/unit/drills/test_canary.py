"""Numbered records: every way in which a reader can go wrong is told apart from going on exactly."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.drills.canary import ABORTED, PARTITIONS, Canary, by_partition, judge

DRILL = "d1"


def values(*numbers: int, drill: str = DRILL) -> list[bytes]:
    return [Canary(drill, number).encode()[1] for number in numbers]


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, PARTITIONS - 1))
def test_who_goes_on_with_its_next_record_is_exact(total: int, first: int, partition: int) -> None:
    """Whatever the numbers are, of one partition."""
    met = [number for number in range(first, total) if number % PARTITIONS == partition]
    verdict = judge(DRILL, partition, first, total, values(*met))
    assert verdict.exact
    assert verdict.expected == len(met)


@given(st.lists(st.integers(0, 20).map(lambda n: 2 * n)))
def test_nothing_but_the_right_order_is_exact(met: list[int]) -> None:
    """A reader that has met anything else, in any other order, is not."""
    assert judge(DRILL, 0, 6, 20, values(*met)).exact == (met == [6, 8, 10, 12, 14, 16, 18])


def test_what_is_wrong_is_told_apart() -> None:
    """Missing, repeated, read before, out of order, of another drill, aborted, or no canary."""
    assert judge(DRILL, 0, 0, 8, values(0, 4, 6)).missing == (2,)
    assert judge(DRILL, 0, 0, 8, values(0, 2, 2, 4, 6)).repeated == (2,)
    assert judge(DRILL, 0, 4, 8, values(2, 4, 6)).repeated == (2,)
    assert judge(DRILL, 0, 0, 8, values(0, 4, 2, 6)).misplaced == 1
    assert judge(DRILL, 0, 0, 4, [*values(0, 2), *values(0, drill="d0")]).misplaced == 1
    assert judge(DRILL, 0, 0, 4, [*values(0, 2), Canary(DRILL, 2, ABORTED).encode()[1]]).misplaced == 1
    assert judge(DRILL, 0, 0, 4, [*values(0, 2), b"[1", None, b"{}"]).misplaced == 3
    assert judge(DRILL, 0, 0, 4, values(0, 2, 4)).misplaced == 1


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "[]", '"x"', "9" * 5000])
def test_a_number_that_is_none_is_no_canary(number: str) -> None:
    """Whoever writes into the canaries' topic is told apart, and breaks nothing."""
    assert Canary.decode(f'{{"drill":"d1","number":{number},"kind":"committed"}}'.encode()) is None
    assert Canary.decode(b"[" * 200_000) is None


def test_a_hundred_thousand_are_judged_at_once() -> None:
    """It is part of what clients would wait for."""
    met = values(*range(0, 100_000, 2))
    began_s = time.process_time()
    assert judge(DRILL, 0, 0, 100_000, met).exact
    assert time.process_time() - began_s < 5


def test_numbers_are_written_where_they_say() -> None:
    """Each partition gets its own, in order, with the number as key."""
    written = by_partition(Canary(DRILL, number) for number in range(5))
    assert {p: [key for key, _ in records] for p, records in written.items()} == {
        0: [b"0", b"2", b"4"],
        1: [b"1", b"3"],
    }
