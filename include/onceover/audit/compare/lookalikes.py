"""Which missing record and which surplus one are the same record, altered.

Invariant: only what no equal record explains comes here, and every record is paired at most once. Pairing
decides between two honest names for the same difference (ALTERED, or LOST and PHANTOM); no difference
appears or vanishes by it.

A pair needs evidence. Between the same two neighbours: three of four fields equal, or two of which key or
value says something, or any one that does when as many are missing as are surplus there. Elsewhere: three
of four equal, of which key or value says something, and nothing else like it. No key, no value and no
headers say nothing: unrelated records share them.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from onceover.audit.compare.matching import kth_occurrences
from onceover.audit.records.sketch import FIELD_COLUMNS, Ids, Sketch, telling

_ALL: Final = tuple(range(len(FIELD_COLUMNS)))
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, of no structure: the golden ratio's fraction
_CONTENT: Final = (0, 1)  # key and value
_THREE: Final[tuple[tuple[int, ...], ...]] = tuple(combinations(_ALL, 3))
# Without headers and timestamp alone: records of one producer's millisecond share both.
_TWO: Final[tuple[tuple[int, ...], ...]] = tuple(
    each for each in combinations(_ALL, 2) if each[0] in _CONTENT
)


class UnmatchedRecords(NamedTuple):
    """Records of one side that nothing on the other side equals.

    Args:
        numbers: theirs.
        gaps: how many corresponding records stand before each; equal numbers are the same place.
    """

    numbers: Sketch
    gaps: Ids


class Pairs(NamedTuple):
    """Indices into what is missing and what is surplus, side by side."""

    missing: Ids
    surplus: Ids


def lookalikes(missing: UnmatchedRecords, surplus: UnmatchedRecords) -> Pairs:
    """Return which missing record each surplus one is, as far as the evidence goes."""
    work = _Work(missing, surplus)
    for fields in _THREE:
        work.pair_in_place(fields, evidence=())
    for fields in _THREE:
        work.pair_elsewhere(fields)
    for fields in _TWO:
        work.pair_in_place(fields, evidence=_content_of(fields))
    work.pair_by_count()
    return Pairs(np.concatenate(work.missing), np.concatenate(work.surplus))


class _Work:
    """What is still to be paired, and what was."""

    def __init__(self, missing: UnmatchedRecords, surplus: UnmatchedRecords) -> None:
        self._sides = missing, surplus
        self._telling = telling(missing.numbers), telling(surplus.numbers)
        self._open = [np.ones(len(missing.gaps), bool), np.ones(len(surplus.gaps), bool)]
        self.missing: list[Ids] = [np.empty(0, np.int64)]
        self.surplus: list[Ids] = [np.empty(0, np.int64)]

    def pair_in_place(self, fields: tuple[int, ...], evidence: tuple[int, ...]) -> None:
        """Pair those of one place that agree in ``fields``, in their order; see ``_candidates``."""
        here, there = self._candidates(0, evidence), self._candidates(1, evidence)
        if not len(here) or not len(there):
            return
        mine, theirs = self._codes(here, there, fields, place=True)
        one, other = kth_occurrences(mine, theirs)
        self._take(here[one], there[other])

    def pair_elsewhere(self, fields: tuple[int, ...]) -> None:
        """Pair those of any place that agree in ``fields``, where nothing else does."""
        here, there = (self._candidates(side, _content_of(fields)) for side in (0, 1))
        mine, theirs = self._codes(here, there, fields, place=False)
        codes, first, count = np.unique(mine, return_index=True, return_counts=True)
        other_codes, other_first, other_count = np.unique(theirs, return_index=True, return_counts=True)
        _, left, right = np.intersect1d(codes, other_codes, assume_unique=True, return_indices=True)
        single = (count[left] == 1) & (other_count[right] == 1)
        self._take(here[first[left[single]]], there[other_first[right[single]]])

    def pair_by_count(self) -> None:
        """Pair by position where as many are missing as are surplus, if a field of the pair agrees."""
        here, there = np.flatnonzero(self._open[0]), np.flatnonzero(self._open[1])
        gaps, other_gaps = self._sides[0].gaps[here], self._sides[1].gaps[there]
        known, count = np.unique(gaps, return_counts=True)
        other_known, other_count = np.unique(other_gaps, return_counts=True)
        shared, left, right = np.intersect1d(known, other_known, assume_unique=True, return_indices=True)
        balanced = shared[count[left] == other_count[right]]
        here, there = here[np.isin(gaps, balanced)], there[np.isin(other_gaps, balanced)]
        agree = np.zeros(len(here), bool)
        for number, name in enumerate(FIELD_COLUMNS):
            same = self._sides[0].numbers[name][here] == self._sides[1].numbers[name][there]
            agree |= same & self._telling[0][here, number]
        self._take(here[agree], there[agree])

    def _candidates(self, side: int, evidence: tuple[int, ...]) -> Ids:
        """Return what is still open and says something in one of the fields ``evidence``, if any."""
        if not evidence:
            return np.flatnonzero(self._open[side])
        says = self._telling[side][:, list(evidence)].any(axis=1)
        return np.flatnonzero(self._open[side] & says)

    def _codes(self, here: Ids, there: Ids, fields: tuple[int, ...], *, place: bool) -> tuple[Ids, Ids]:
        """Return numbers for both that are equal when all the fields are, and the place if asked.

        And unequal otherwise, but for a chance of 2**-64 a pair: two records that differ would be called
        one that was altered in every field, which says the same in other words.
        """
        columns = [FIELD_COLUMNS[number] for number in fields]
        return self._mixed(0, here, columns, place), self._mixed(1, there, columns, place)

    def _mixed(self, side: int, index: Ids, columns: list[str], place: bool) -> Ids:
        odd = self._sides[side]
        codes = odd.gaps[index].astype(np.uint64) if place else np.zeros(len(index), np.uint64)
        for column in columns:
            codes = (codes ^ odd.numbers[column][index].astype(np.uint64)) * _FACTOR
            codes ^= codes >> np.uint64(32)
        return codes.view(np.int64)

    def _take(self, here: Ids, there: Ids) -> None:
        self._open[0][here] = False
        self._open[1][there] = False
        self.missing.append(here)
        self.surplus.append(there)


def _content_of(fields: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(each for each in fields if each in _CONTENT)
