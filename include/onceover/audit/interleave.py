"""A target partition that several source partitions write into, taken apart again.

What one source partition gives to one target partition stays in its order; how several are interleaved is
nobody's promise (docs/handlers.md). So each record of the target is dealt to the source partition that it
comes from, and each of these is compared alone.

Invariant: dealing gives every record of the target to exactly one source partition, so that nothing is
hidden. Contents that several source partitions give are dealt by the places that their neighbours leave
them, the most urgent first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onceover.audit.align import Alignment, align
from onceover.audit.sketch import Ids, Sketch, identities
from onceover.model import TopicPartition


class _Claim(NamedTuple):
    """A source partition waits for a record of this content, between two places of the target."""

    earliest: int
    latest: int
    owner: int


def align_interleaved(
    expected: Mapping[TopicPartition, Sketch], target: Sketch, partition: TopicPartition
) -> Iterator[Alignment]:
    """Yield how what each source partition gives to a target partition differs from what is there.

    Args:
        expected: by source partition, in the order of its offsets; a record that comes of another has its
            offset.
        target: everything in the target partition.
        partition: of the target.
    """
    if len(expected) == 1:
        ((source, numbers),) = expected.items()
        yield align(numbers, target, (source, partition))
        return
    owners = _deal(list(expected.values()), target, _default(list(expected), partition))
    for number, (source, numbers) in enumerate(expected.items()):
        yield align(numbers, target[owners == number], (source, partition))


def _default(sources: Sequence[TopicPartition], partition: TopicPartition) -> int:
    """Return whose a record is that is nobody's: the source partition's of the same number."""
    same = (number for number, source in enumerate(sources) if source.partition == partition.partition)
    return next(same, 0)


def _deal(expected: Sequence[Sketch], target: Sketch, default: int) -> Ids:
    """Return for each record of the target the number of the source partition that it is from."""
    *sources, there = identities(*expected, target)
    if not len(there):
        return np.empty(0, np.int64)
    contents = max(int(each.max()) + 1 for each in (*sources, there) if len(each))
    giving = np.zeros(contents, np.int64)
    owner_of = np.full(contents, default, np.int64)
    for number, ids in enumerate(sources):
        known = np.unique(ids)
        giving[known] += 1
        owner_of[known] = number
    owners = owner_of[there]
    shared = giving > 1
    claims: dict[int, list[_Claim]] = {}
    for number, ids in enumerate(sources):
        for content, claim in _claims(number, ids, there, shared):
            claims.setdefault(content, []).append(claim)
    places = np.flatnonzero(shared[there])
    by_content: dict[int, list[int]] = {}
    for place in places.tolist():
        by_content.setdefault(int(there[place]), []).append(place)
    for content, at in by_content.items():
        for place, owner in zip(at, _settle(claims[content], at), strict=True):
            owners[place] = owner
    return owners


def _claims(number: int, ids: Ids, there: Ids, shared: npt.NDArray[np.bool_]) -> Iterator[tuple[int, _Claim]]:
    """Yield what a source partition claims of shared contents, bounded by its own records around them."""
    if not shared[ids].any():
        return
    at = {content: place for place, content in reversed(list(enumerate(there.tolist())))}
    latest = [len(there)] * len(ids)
    bound = len(there)
    for index in range(len(ids) - 1, -1, -1):
        latest[index] = bound
        if not shared[ids[index]]:
            bound = min(bound, at.get(int(ids[index]), bound))
    earliest = -1
    for index, content in enumerate(ids.tolist()):
        if shared[content]:
            yield content, _Claim(earliest, latest[index], number)
        else:
            earliest = max(earliest, at.get(content, earliest))


def _settle(claims: Sequence[_Claim], places: Sequence[int]) -> list[int]:
    """Return an owner for each place: of the claims that have begun and not ended, the one that ends first.

    A claim that ended without a place is a loss, and takes none that is another's; a place without a claim
    is a repeat, and goes to whoever gives this content.
    """
    begins = sorted(claims)
    waiting: list[tuple[int, int]] = []
    owners = []
    taken = 0
    for place in places:
        while taken < len(begins) and begins[taken].earliest < place:
            heappush(waiting, (begins[taken].latest, begins[taken].owner))
            taken += 1
        while waiting and waiting[0][0] < place:
            heappop(waiting)
        owners.append(heappop(waiting)[1] if waiting else begins[min(taken, len(begins) - 1)].owner)
    return owners
