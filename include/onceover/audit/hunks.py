"""Where two long sequences of record hashes differ, without holding the records. Pure.

Invariant: outside the hunks both sequences are the same, piece by piece and in order. Hunks are small where
little differs: the sides are anchored at records that both hold exactly once (as in patience diff).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Hunk(NamedTuple):
    """``source[source_from:source_to]`` stands where ``target[target_from:target_to]`` does."""

    source_from: int
    source_to: int
    target_from: int
    target_to: int


def hunks(source: Sequence[bytes], target: Sequence[bytes]) -> Iterator[Hunk]:
    """Yield the stretches that differ, in order."""
    at_source = at_target = 0
    for mine, theirs in [*_anchors(source, target), (len(source), len(target))]:
        begin = _same_from(source, target, at_source, at_target, mine, theirs)
        end = _same_until(source, target, mine, theirs, at_source + begin, at_target + begin)
        hunk = Hunk(at_source + begin, mine - end, at_target + begin, theirs - end)
        if hunk.source_from < hunk.source_to or hunk.target_from < hunk.target_to:
            yield hunk
        at_source, at_target = mine, theirs


def _same_from(
    source: Sequence[bytes], target: Sequence[bytes], left: int, right: int, left_end: int, right_end: int
) -> int:
    count, most = 0, min(left_end - left, right_end - right)
    while count < most and source[left + count] == target[right + count]:
        count += 1
    return count


def _same_until(
    source: Sequence[bytes], target: Sequence[bytes], left: int, right: int, left_start: int, right_start: int
) -> int:
    count, most = 0, min(left - left_start, right - right_start)
    while count < most and source[left - 1 - count] == target[right - 1 - count]:
        count += 1
    return count


def _anchors(source: Sequence[bytes], target: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return pairs of places of records that both sides hold once, the most that are in the same order."""
    there = _once(target)
    pairs = [(index, there[piece]) for piece, index in _once(source).items() if piece in there]
    ends: list[int] = []  # smallest target place that a run of so many pairs ends at
    runs: list[int] = []  # the pair that it ends with
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(runs[length - 1] if length else -1)
        if length == len(ends):
            ends.append(place)
            runs.append(number)
        else:
            ends[length], runs[length] = place, number
    chosen, number = [], runs[-1] if runs else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]


def _once(pieces: Sequence[bytes]) -> dict[bytes, int]:
    counts = Counter(pieces)
    return {piece: index for index, piece in enumerate(pieces) if counts[piece] == 1}
