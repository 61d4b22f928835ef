"""Which records of two sequences correspond, kept in order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.compare.matching import EqualRun, kth_occurrences, match
from onceover.audit.records.sketch import Ids

_few = st.lists(st.integers(0, 4), max_size=40)
_SIZE = 6_000
# Ten times what it takes on two shared cores; an algorithm of the square would take hours.
_MAX_CPU_S = 30.0


def _matched(source: Sequence[int], target: Sequence[int]) -> int:
    """Check a matching; return how many it pairs."""
    runs = match(np.array(source, np.int64), np.array(target, np.int64))
    here = there = pairs = 0
    for run in runs:
        assert run.size > 0 and run.source >= here and run.target >= there, "it never crosses"
        here, there = run.source + run.size, run.target + run.size
        assert list(source[run.source : here]) == list(target[run.target : there]), "equal records only"
        pairs += run.size
    return pairs


def _longest_common(source: Sequence[int], target: Sequence[int]) -> int:
    """Return the most that any matching pairs, by the textbook's table."""
    row = [0] * (len(target) + 1)
    for one in source:
        diagonal = 0
        for index, other in enumerate(target, 1):
            diagonal, row[index] = (
                row[index],
                diagonal + 1 if one == other else max(row[index], row[index - 1]),
            )
    return row[-1]


@given(_few, _few)
def test_a_matching_is_complete_exactly_when_both_are_equal(source: list[int], target: list[int]) -> None:
    """And never pairs more than the best one, nor what differs."""
    pairs = _matched(source, target)
    assert (pairs == len(source) == len(target)) == (source == target)
    assert pairs <= _longest_common(source, target)
    assert (pairs > 0) == bool(set(source) & set(target))


@given(st.lists(st.integers(0, 1000), max_size=60, unique=True), st.data())
def test_without_twins_a_matching_is_the_best(source: list[int], data: st.DataObject) -> None:
    """Nothing is called out of order that need not be."""
    target = data.draw(st.permutations(source))
    assert _matched(source, target) == _longest_common(source, target)


@pytest.mark.parametrize("first", range(0, 30, 4))
@pytest.mark.parametrize("twins", [1, 2, 3, 5])
def test_losses_among_twins_are_told_exactly(first: int, twins: int) -> None:
    """Where every record has many twins, two losses and a repeat are three differences and no more."""
    source = [index % twins for index in range(60)]
    target = list(source)
    del target[55], target[first]
    target.insert(40, 9 % twins)
    assert _matched(source, target) == _longest_common(source, target) >= 58


def test_runs_are_as_long_as_they_can_be() -> None:
    """One loss in the middle: two runs."""
    source, target = np.arange(9), np.array([0, 1, 2, 3, 5, 6, 7, 8])
    assert match(source, target) == [EqualRun(0, 0, 4), EqualRun(5, 4, 4)]


@given(_few, _few)
def test_the_kth_stands_beside_the_kth(one: list[int], other: list[int]) -> None:
    """As many of each number as both sides have, each index once."""
    here, there = kth_occurrences(np.array(one, np.int64), np.array(other, np.int64))
    assert [one[index] for index in here] == [other[index] for index in there]
    assert len(set(here.tolist())) == len(set(there.tolist())) == len(here)
    assert len(here) == (Counter(one) & Counter(other)).total()


_RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(np.zeros(_SIZE), np.zeros(_SIZE - 99), id="all-equal"),
        pytest.param(np.arange(_SIZE), np.arange(_SIZE) + _SIZE, id="all-different"),
        pytest.param(np.arange(_SIZE), np.arange(_SIZE)[::-1], id="reversed"),
        pytest.param(np.arange(_SIZE), _RANDOM.permutation(_SIZE), id="shuffled"),
        pytest.param(np.arange(_SIZE) // 2, _RANDOM.permutation(_SIZE) // 2, id="shuffled-twins"),
        pytest.param(_RANDOM.integers(0, 2, _SIZE), _RANDOM.integers(0, 2, _SIZE), id="two-contents"),
        pytest.param(_RANDOM.integers(0, 99, _SIZE), _RANDOM.integers(0, 99, _SIZE), id="many-twins"),
        pytest.param(np.tile([1, 2, 3], _SIZE // 3), np.tile([3, 2, 1], _SIZE // 3), id="periods"),
    ],
)
def test_no_input_takes_long(source: Ids, target: Ids) -> None:
    """Whatever the records: a bound on time, and a valid matching."""
    begun = time.process_time()
    _matched(source.astype(int).tolist(), target.astype(int).tolist())
    assert time.process_time() - begun < _MAX_CPU_S
