"""Which records of two sequences correspond, kept in order.

Invariant: a matching pairs equal records only, each at most once, and never crosses. So it is complete
exactly when both sequences are equal, and whatever it leaves unpaired is a difference for certain: a poor
matching can only name a difference in more words than needed, never hide or invent one.

The cost is bounded for any input. Runs at both ends go first, then records that occur once on each side
hold the rest in place (the longest increasing run of them, patience diff); between them a shortest edit
script (Myers 1986) is looked for with a fixed number of steps, and where that is not enough the k-th
occurrences stand for each other. O(n log n) time for each of a fixed number of rounds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from onceover.audit.records.sketch import Ids

# Beyond these a shortest edit script is given up: steps grow with the square of the differences.
_EDITS: Final = 128
_STEPS_EACH: Final = 8
_STEPS_LEAST: Final = 2_000
# Each round splits what is left at new fixed points; sequences that need more were made to need more.
_ROUNDS: Final = 24


class EqualRun(NamedTuple):
    """``size`` neighbours that are equal on both sides, from these indices on."""

    source: int
    target: int
    size: int


class _Gap(NamedTuple):
    source: int
    source_end: int
    target: int
    target_end: int
    round: int

    @property
    def empty(self) -> bool:
        return self.source >= self.source_end or self.target >= self.target_end


def match(source: Ids, target: Ids) -> list[EqualRun]:
    """Return runs of corresponding records, in order.

    Args:
        source: numbers that are equal exactly when records are; ``target`` likewise.
    """
    found: list[EqualRun] = []
    gaps = [_Gap(0, len(source), 0, len(target), 0)]
    while gaps:
        gap = _without_ends(gaps.pop(), source, target, found)
        if gap.empty or gap.round == _ROUNDS:
            continue
        here, there = source[gap.source : gap.source_end], target[gap.target : gap.target_end]
        runs = _fixed_points(here, there)
        if not runs:
            script = _shortest_edit(here.tolist(), there.tolist())
            if script is not None:
                found += [
                    EqualRun(gap.source + run.source, gap.target + run.target, run.size) for run in script
                ]
                continue
            runs = _increasing(*kth_occurrences(here, there))
        if runs:
            gaps += _between(gap, runs, found)
    return sorted(found)


def kth_occurrences(one: Ids, other: Ids) -> tuple[Ids, Ids]:
    """Return indices into both such that the k-th of each number stands beside the k-th on the other side.

    In the order of ``one``; what is surplus on a side is left out.
    """
    ranked_one, ranked_other = _ranks(one), _ranks(other)
    # One number for (value, rank): values are renumbered to be dense, ranks are below the larger length.
    values, dense = np.unique(np.concatenate([one, other]), return_inverse=True)
    width = max(len(one), len(other), 1)
    if len(values) * width >= 1 << 62:
        raise OverflowError("sequences too long to be compared at once")
    mine = dense[: len(one)].astype(np.int64) * width + ranked_one
    theirs = dense[len(one) :].astype(np.int64) * width + ranked_other
    _, here, there = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    order = np.argsort(here)
    return here[order], there[order]


def _ranks(values: Ids) -> Ids:
    """Return how many equal ones stand before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.ones(len(values), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    index = np.arange(len(values))
    begins = np.maximum.accumulate(np.where(new, index, 0)) if len(values) else index
    ranks = np.empty(len(values), np.int64)
    ranks[order] = index - begins
    return ranks


def _without_ends(gap: _Gap, source: Ids, target: Ids, found: list[EqualRun]) -> _Gap:
    """Pair what is equal at both ends; return what is left between."""
    here, there = source[gap.source : gap.source_end], target[gap.target : gap.target_end]
    head = _equal_head(here, there)
    if head:
        found.append(EqualRun(gap.source, gap.target, head))
    tail = _equal_head(here[head:][::-1], there[head:][::-1])
    if tail:
        found.append(EqualRun(gap.source_end - tail, gap.target_end - tail, tail))
    return _Gap(gap.source + head, gap.source_end - tail, gap.target + head, gap.target_end - tail, gap.round)


def _equal_head(one: Ids, other: Ids) -> int:
    size = min(len(one), len(other))
    different = one[:size] != other[:size]
    first = int(np.argmax(different)) if size else 0
    return first if size and different[first] else size


def _between(gap: _Gap, runs: list[EqualRun], found: list[EqualRun]) -> Iterator[_Gap]:
    """Add the runs, which count from the gap's beginning; yield what lies around them."""
    source, target = gap.source, gap.target
    for run in runs:
        at = EqualRun(gap.source + run.source, gap.target + run.target, run.size)
        found.append(at)
        yield _Gap(source, at.source, target, at.target, gap.round + 1)
        source, target = at.source + at.size, at.target + at.size
    yield _Gap(source, gap.source_end, target, gap.target_end, gap.round + 1)


def _fixed_points(here: Ids, there: Ids) -> list[EqualRun]:
    """Return the longest increasing run of records that occur once on each side."""
    mine, at_mine, count_mine = np.unique(here, return_index=True, return_counts=True)
    theirs, at_theirs, count_theirs = np.unique(there, return_index=True, return_counts=True)
    mine, at_mine = mine[count_mine == 1], at_mine[count_mine == 1]
    theirs, at_theirs = theirs[count_theirs == 1], at_theirs[count_theirs == 1]
    _, left, right = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    source, target = at_mine[left], at_theirs[right]
    order = np.argsort(source)
    return _increasing(source[order], target[order])


def _increasing(source: Ids, target: Ids) -> list[EqualRun]:
    """Return a longest part of pairs, sorted by source, whose targets increase; neighbours as one run."""
    if len(target) > 1 and not (np.diff(target) > 0).all():
        kept = np.array(_longest_increasing(target.tolist()), np.int64)
        source, target = source[kept], target[kept]
    if not len(source):
        return []
    breaks = np.flatnonzero((np.diff(source) != 1) | (np.diff(target) != 1)) + 1
    begins = np.concatenate([[0], breaks])
    sizes = np.diff(np.concatenate([begins, [len(source)]]))
    columns = source[begins].tolist(), target[begins].tolist(), sizes.tolist()
    return [EqualRun(*each) for each in zip(*columns, strict=True)]


def _longest_increasing(values: list[int]) -> list[int]:
    """Return the indices of a longest strictly increasing subsequence."""
    lowest: list[int] = []
    at: list[int] = []
    before = [-1] * len(values)
    for index, value in enumerate(values):
        length = bisect_left(lowest, value)
        if length == len(lowest):
            lowest.append(value)
            at.append(index)
        else:
            lowest[length] = value
            at[length] = index
        if length:
            before[index] = at[length - 1]
    chain = []
    index = at[-1]
    while index >= 0:
        chain.append(index)
        index = before[index]
    return chain[::-1]


def _shortest_edit(here: list[int], there: list[int]) -> list[EqualRun] | None:
    """Return the runs that a shortest edit script keeps, or None when it takes too many steps."""
    steps = _STEPS_LEAST + _STEPS_EACH * (len(here) + len(there))
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(len(here) + len(there), _EDITS) + 1):
        history.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            begin, _ = _step(furthest, diagonal, edits)
            x = begin
            y = x - diagonal
            while x < len(here) and y < len(there) and here[x] == there[y]:
                x += 1
                y += 1
            furthest[diagonal] = x
            if x >= len(here) and y >= len(there):
                return _kept(history, len(here), len(there))
            steps -= 1 + x - begin
        if steps < 0:
            return None
    return None


def _step(furthest: dict[int, int], diagonal: int, edits: int) -> tuple[int, bool]:
    """Return where the diagonal is entered, and whether from above, by one more of the target."""
    down = diagonal == -edits or (
        diagonal != edits and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
    )
    return (furthest[diagonal + 1], True) if down else (furthest[diagonal - 1] + 1, False)


def _kept(history: list[dict[int, int]], x: int, y: int) -> list[EqualRun]:
    """Walk an edit script back to its beginning; return its runs of equal records."""
    runs = []
    for edits in range(len(history) - 1, -1, -1):
        furthest = history[edits]
        diagonal = x - y
        begin, down = _step(furthest, diagonal, edits)
        if x > begin:
            runs.append(EqualRun(begin, begin - diagonal, x - begin))
        x = begin if down else begin - 1
        y = x - (diagonal + 1 if down else diagonal - 1)
    return runs[::-1]
