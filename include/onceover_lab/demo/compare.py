"""How two logs are compared: pure, so that each rule is tested with the smallest history.

Two logs agree when their digests are the same sequence. When they differ, the difference is explained with
the fewest findings: the longest common subsequence is what arrived unchanged, the rest is named.

Which explanation wins when several fit: exact evidence first (the same record elsewhere in this partition, in
another partition, among the source's aborted records), resemblance last (same place, some fields differ).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby

from onceover_lab.demo.verdict import (
    FIELDS,
    CopyFault,
    CopyFaultKind,
    CopyVerdict,
    Log,
    Partition,
    PartitionVerdict,
    fields_of,
)

# Identical records that occur this often on both sides are matched first to first, second to second: trying
# every pair would be quadratic, and which of many equal records was moved cannot be told anyway.
_MAX_PAIRS_PER_DIGEST = 4096

# Which equal fields make a lost and an unexplained record at the same place "one record, altered"; the
# strongest first.
_RESEMBLANCES = ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3), (1,), (0, 3))


@dataclass(slots=True)
class _Alignment:
    """How two logs fit together; all numbers are indexes into the logs."""

    matched: list[tuple[int, int]]
    reordered: list[tuple[int, int]] = field(default_factory=list)
    duplicated: list[tuple[int, int]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


def _candidates(source: Sequence[bytes], target: Sequence[bytes]) -> list[Sequence[int]]:
    """For each target record the source positions it may stand for, in descending order."""
    positions: dict[bytes, list[int]] = defaultdict(list)
    for at in range(len(source) - 1, -1, -1):
        positions[source[at]].append(at)
    often = Counter(target)
    seen: Counter[bytes] = Counter()
    result: list[Sequence[int]] = []
    for digest in target:
        places = positions.get(digest, [])
        if len(places) * often[digest] > _MAX_PAIRS_PER_DIGEST:
            nth = min(seen[digest], len(places) - 1)
            places = [places[len(places) - 1 - nth]]
        seen[digest] += 1
        result.append(places)
    return result


def _longest_common(source: Sequence[bytes], target: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the longest common subsequence as index pairs (source, target): Hunt and Szymanski's method."""
    ends: list[int] = []  # ends[n] = smallest source index at which a common subsequence of length n+1 ends
    chain: list[int] = []  # chain[n] = the node that ends it
    nodes: list[tuple[int, int, int]] = []  # source index, target index, previous node
    for at, places in enumerate(_candidates(source, target)):
        for place in places:
            length = bisect_left(ends, place)
            node = (place, at, chain[length - 1] if length else -1)
            if length == len(ends):
                ends.append(place)
                chain.append(len(nodes))
            else:
                ends[length] = place
                chain[length] = len(nodes)
            nodes.append(node)
    pairs: list[tuple[int, int]] = []
    link = chain[-1] if chain else -1
    while link >= 0:
        place, at, link = nodes[link]
        pairs.append((place, at))
    pairs.reverse()
    return pairs


def _common_prefix(source: Sequence[bytes], target: Sequence[bytes]) -> int:
    length = 0
    for left, right in zip(source, target, strict=False):
        if left != right:
            break
        length += 1
    return length


def _matched(source: Sequence[bytes], target: Sequence[bytes]) -> list[tuple[int, int]]:
    """Longest common subsequence of the whole logs; long equal beginnings cost next to nothing."""
    prefix = _common_prefix(source, target)
    pairs = [(at, at) for at in range(prefix)]
    rest = _longest_common(source[prefix:], target[prefix:])
    return pairs + [(left + prefix, right + prefix) for left, right in rest]


def _align(source: Sequence[bytes], target: Sequence[bytes]) -> _Alignment:
    alignment = _Alignment(_matched(source, target))
    kept_source = {left for left, _ in alignment.matched}
    kept_target = {right for _, right in alignment.matched}
    moved: dict[bytes, deque[int]] = defaultdict(deque)
    first: dict[bytes, int] = {}
    for at, digest in enumerate(source):
        first.setdefault(digest, at)
        if at not in kept_source:
            moved[digest].append(at)
    for at, digest in enumerate(target):
        if at in kept_target:
            continue
        if moved[digest]:
            alignment.reordered.append((moved[digest].popleft(), at))
        elif digest in first:
            alignment.duplicated.append((first[digest], at))
        else:
            alignment.unknown.append(at)
    alignment.lost = sorted(at for places in moved.values() for at in places)
    return alignment


@dataclass(slots=True)
class _Case:
    """One pair of partitions that differ, while its findings are worked out."""

    source: Log
    target: Log
    verdict: PartitionVerdict
    left: list[bytes]
    right: list[bytes]
    alignment: _Alignment

    def report(self, kind: CopyFaultKind, source_at: int | None, target_at: int | None, *fields: str) -> None:
        self.verdict.add(
            CopyFault(
                kind,
                self.source.partition,
                None if source_at is None else self.source.offsets[source_at],
                self.target.partition,
                None if target_at is None else self.target.offsets[target_at],
                fields,
            )
        )


Uncommitted = Callable[[Partition], Set[bytes]]


def _nothing(_partition: Partition) -> Set[bytes]:
    return frozenset()


def compare_logs(pairs: Iterable[tuple[Log, Log]], uncommitted: Uncommitted = _nothing) -> CopyVerdict:
    """Compare source and target logs pair by pair, then what is unexplained across all pairs.

    Args:
        pairs: (source, target) logs of all partitions that records may have gone to.
        uncommitted: digests of *all* records of a source partition, aborted and open ones included; asked
            only when the target shows records that the source never committed.
    """
    verdicts: list[PartitionVerdict] = []
    cases: list[_Case] = []
    for source, target in pairs:
        verdict = PartitionVerdict(
            source.partition, target.partition, len(source), len(target), notes=source.notes + target.notes
        )
        verdicts.append(verdict)
        if source.broker_stamped and target.broker_stamped:
            verdict.notes.append("both brokers stamp records themselves: timestamps are not compared")
            source, target = source.without_timestamps(), target.without_timestamps()
        if source.digests != target.digests:
            left, right = source.items(), target.items()
            cases.append(_Case(source, target, verdict, left, right, _align(left, right)))
    _find_misrouted(cases)
    for case in cases:
        _find_within(case, uncommitted)
    return CopyVerdict(tuple(verdicts))


def _find_misrouted(cases: Sequence[_Case]) -> None:
    """Match records lost here with records that turned up, unchanged, in another partition."""
    lost: dict[bytes, deque[tuple[_Case, int]]] = defaultdict(deque)
    for case in cases:
        for at in case.alignment.lost:
            lost[case.left[at]].append((case, at))
    for case in cases:
        still_unknown: list[int] = []
        for at in case.alignment.unknown:
            waiting = lost.get(case.right[at])
            if not waiting:
                still_unknown.append(at)
                continue
            origin, origin_at = waiting.popleft()
            origin.alignment.lost.remove(origin_at)
            case.verdict.add(
                CopyFault(
                    CopyFaultKind.MISROUTED,
                    origin.source.partition,
                    origin.source.offsets[origin_at],
                    case.target.partition,
                    case.target.offsets[at],
                )
            )
        case.alignment.unknown = still_unknown


def _find_within(case: _Case, uncommitted: Uncommitted) -> None:
    alignment = case.alignment
    for source_at, target_at in alignment.reordered:
        case.report(CopyFaultKind.REORDERED, source_at, target_at)
    for source_at, target_at in alignment.duplicated:
        case.report(CopyFaultKind.DUPLICATED, source_at, target_at)
    if alignment.unknown:
        never_committed = uncommitted(case.source.partition)
        for at in alignment.unknown:
            if case.right[at] in never_committed:
                case.report(CopyFaultKind.ABORTED_VISIBLE, None, at)
        alignment.unknown = [at for at in alignment.unknown if case.right[at] not in never_committed]
    for source_at, target_at in _pair_altered(case):
        pairs = zip(FIELDS, fields_of(case.left[source_at]), fields_of(case.right[target_at]), strict=True)
        case.report(
            CopyFaultKind.ALTERED, source_at, target_at, *(name for name, was, is_ in pairs if was != is_)
        )
    for at in alignment.lost:
        case.report(CopyFaultKind.LOST, at, None)
    for at in alignment.unknown:
        case.report(CopyFaultKind.PHANTOM, None, at)


def _by_gap(indexes: Sequence[int], matched: Sequence[int]) -> dict[int, list[int]]:
    """Group indexes by how many matched records come before them."""
    return {gap: list(group) for gap, group in groupby(indexes, lambda at: bisect_left(matched, at))}


def _pair_altered(case: _Case) -> list[tuple[int, int]]:
    """Take out of lost and unknown what is one record with changed fields; return the pairs in order."""
    alignment = case.alignment
    lost = _by_gap(alignment.lost, [left for left, _ in alignment.matched])
    unknown = _by_gap(alignment.unknown, [right for _, right in alignment.matched])
    pairs: list[tuple[int, int]] = []
    for gap in lost.keys() & unknown.keys():
        pairs += _pair_in_gap(case, lost[gap], unknown[gap])
    paired_lost = {left for left, _ in pairs}
    paired_unknown = {right for _, right in pairs}
    alignment.lost = [at for at in alignment.lost if at not in paired_lost]
    alignment.unknown = [at for at in alignment.unknown if at not in paired_unknown]
    return sorted(pairs)


def _pair_in_gap(case: _Case, lost: list[int], unknown: list[int]) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for kept in _RESEMBLANCES:
        waiting: dict[tuple[bytes, ...], deque[int]] = defaultdict(deque)
        for at in lost:
            waiting[_project(case.left[at], kept)].append(at)
        unpaired: list[int] = []
        for at in unknown:
            resembling = waiting.get(_project(case.right[at], kept))
            if resembling:
                pairs.append((resembling.popleft(), at))
            else:
                unpaired.append(at)
        unknown = unpaired
        lost = sorted(at for places in waiting.values() for at in places)
    return pairs


def _project(digest: bytes, kept: Sequence[int]) -> tuple[bytes, ...]:
    fields = fields_of(digest)
    return tuple(fields[index] for index in kept)
