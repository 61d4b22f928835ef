"""Findings of different stretches that are one and the same record.

A comparer that sees one stretch calls a record LOST where it should be and PHANTOM where it is. Put side by
side by content, such a pair is one record in another partition (MISROUTED) or elsewhere in its own
(REORDERED), and a PHANTOM that the source does hold is a copy too many (REPEATED), or LEAKED when its
transaction was aborted there.

Invariant: a finding changes its name only for a record of equal content, or for one that differs in a
single field where nothing else is like it; each side of each finding is used at most once, and none
vanishes but into the pair that explains it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from onceover.audit.model import Finding, FindingKind, Side
from onceover.audit.records.sketch import RecordMark, differing, parse_mark
from onceover.model import TopicPartition

# Which finding gives its missing record, and which its surplus one, in this order: the pair that explains
# most goes first. An ALTERED is a pair made by likeness, which equality overrules.
_EXPLAINED = (
    (FindingKind.LOST, FindingKind.PHANTOM),
    (FindingKind.LOST, FindingKind.REPEATED),
    (FindingKind.LOST, FindingKind.ALTERED),
    (FindingKind.ALTERED, FindingKind.PHANTOM),
    (FindingKind.ALTERED, FindingKind.ALTERED),
)


class Sighting(NamedTuple):
    """A record of the source whose content a finding asked for; ``aborted`` when no reader sees it."""

    content: int
    source: TopicPartition
    offset: int
    aborted: bool = False


@dataclass(eq=False)
class _Open:
    """A finding in the course of being explained.

    ``missing`` and ``surplus`` say whether its record on the source, or on the target, is still without
    an equal one.
    """

    finding: Finding
    missing: bool
    surplus: bool
    here: RecordMark | None
    there: RecordMark | None

    @property
    def is_lost(self) -> bool:
        """True while nothing, or only a faint likeness, explains the record on the source."""
        return self.missing and (self.finding.kind is FindingKind.LOST or not self.surplus or self._faint)

    @property
    def is_phantom(self) -> bool:
        """True while nothing, or only a faint likeness, explains the record on the target."""
        if self.finding.kind is FindingKind.REPEATED:
            return False
        is_phantom = self.finding.kind is FindingKind.PHANTOM
        return self.surplus and (is_phantom or not self.missing or self._faint)

    @property
    def _faint(self) -> bool:
        """True for an ALTERED that was paired by its place: more than one field differs."""
        return self.finding.field is not None and "," in self.finding.field


def wanted(findings: Iterable[Finding]) -> frozenset[int]:
    """Return the contents that should be looked for on the whole source: those of every PHANTOM.

    The copy of a range at another place is surplus to the stretch it is in; only a look at all of the
    source tells it from records that never were there.
    """
    return frozenset(
        parse_mark(each.target_mark).content
        for each in findings
        if each.kind is FindingKind.PHANTOM and each.target_mark is not None
    )


def crossmatch(findings: Iterable[Finding], seen: Iterable[Sighting] = ()) -> list[Finding]:
    """Return the findings with those that belong together made one, in the order of source and target.

    Args:
        findings: of every stretch of an audit.
        seen: where the source holds what ``wanted`` asked for.
    """
    work = [_opened(each) for each in findings]
    named: list[Finding] = []
    for missing_kind, surplus_kind in _EXPLAINED:
        named += _pair(
            [each for each in work if each.finding.kind is missing_kind and each.missing],
            [each for each in work if each.finding.kind is surplus_kind and each.surplus],
        )
    named += _pair_alike(work)
    places: dict[int, list[Sighting]] = defaultdict(list)
    for sighting in sorted(seen):
        places[sighting.content].append(sighting)
    for each in work:
        named += _left(each, places)
    return sorted(named, key=_order)


def _opened(finding: Finding) -> _Open:
    kind = finding.kind
    here = parse_mark(finding.source_mark) if finding.source_mark else None
    there = parse_mark(finding.target_mark) if finding.target_mark else None
    if kind is FindingKind.ALTERED:
        known = here is not None and there is not None
        return _Open(finding, known, known, here, there)
    missing = kind is FindingKind.LOST and here is not None
    surplus = kind in (FindingKind.PHANTOM, FindingKind.REPEATED) and there is not None
    return _Open(finding, missing, surplus, here, there)


def _pair(lost: list[_Open], extra: list[_Open]) -> Iterator[Finding]:
    """Yield what records that are missing here and surplus there are, when their contents are equal."""
    waiting: dict[int, deque[_Open]] = defaultdict(deque)
    for each in lost:
        if each.here is not None:
            waiting[each.here.content].append(each)
    for other in extra:
        queue = waiting.get(other.there.content) if other.there is not None else None
        if queue and queue[0] is not other:
            yield _one(queue.popleft(), other)


def _pair_alike(work: list[_Open]) -> Iterator[Finding]:
    """Yield those elsewhere that lack a single field, where nothing else is like them."""
    for fields in combinations(range(len(RecordMark._fields) - 1), 3):
        lost = _singles(work, Side.SOURCE, fields)
        extra = _singles(work, Side.TARGET, fields)
        for likeness, each in lost.items():
            other = extra.get(likeness)
            if other is not None and other is not each:
                yield _one(each, other)


def _singles(work: list[_Open], side: Side, fields: tuple[int, ...]) -> dict[tuple[int, ...], _Open]:
    """Return what is lost (source) or a phantom (target) by three of its fields, where those are unique."""
    found: dict[tuple[int, ...], _Open | None] = {}
    for each in work:
        mark = each.here if side is Side.SOURCE else each.there
        is_open = each.is_lost if side is Side.SOURCE else each.is_phantom
        if is_open and mark is not None and mark.tells(fields):
            likeness = tuple(mark.fields[field] for field in fields)
            found[likeness] = None if likeness in found else each
    return {likeness: each for likeness, each in found.items() if each is not None}


def _one(lost: _Open, extra: _Open) -> Finding:
    """Return the one record that both are."""
    lost.missing = extra.surplus = False
    here, there = lost.finding, extra.finding
    # Through a handler one target partition may hold records of several source partitions.
    same_place = here.target == there.target
    fields = differing(lost.here, extra.there) if lost.here and extra.there else ""
    kind = FindingKind.MISROUTED
    if same_place:
        kind = FindingKind.ALTERED if fields else FindingKind.REORDERED
    return Finding(
        kind,
        here.source,
        here.source_offset,
        there.target,
        there.target_offset,
        fields or None,
        f"belongs into another part of {here.target}" if same_place else f"belongs into {here.target}",
        source_mark=here.source_mark,
        target_mark=there.target_mark,
    )


def _left(each: _Open, places: Mapping[int, list[Sighting]]) -> Iterator[Finding]:
    """Yield what is left of a finding when its pairs are named."""
    finding = each.finding
    match finding.kind:
        case FindingKind.ALTERED if each.here and each.there and not (each.missing and each.surplus):
            lost, surplus = finding.halves()
            if each.missing:
                yield lost
            if each.surplus:
                yield _surplus(surplus, each.there, places)
        case FindingKind.PHANTOM if each.surplus:
            yield _surplus(finding, each.there, places)
        case FindingKind.LOST if not each.missing and each.here is not None:
            return
        case FindingKind.PHANTOM | FindingKind.REPEATED if not each.surplus and each.there is not None:
            return
        case _:
            yield finding


def _surplus(finding: Finding, mark: RecordMark | None, places: Mapping[int, list[Sighting]]) -> Finding:
    """Return a PHANTOM, or the REPEATED or LEAKED that it is when the source holds such a record."""
    found = places.get(mark.content) if mark is not None else None
    if not found:
        return finding
    # What a reader sees explains more than what none does; then what is nearer.
    place = min(found, key=lambda each: (each.aborted, each.source != finding.source))
    elsewhere = "" if place.source == finding.source else ", in another partition"
    what = "a copy of a record that is on the source"
    if place.aborted:
        what = "its transaction was aborted on the source"
    return replace(
        finding,
        kind=FindingKind.LEAKED if place.aborted else FindingKind.REPEATED,
        source=place.source,
        source_offset=place.offset,
        detail=f"{what}{elsewhere}",
    )


def _order(finding: Finding) -> tuple[str, int, int, int, str]:
    tp = finding.source or finding.target or TopicPartition("", -1)
    source = -1 if finding.source_offset is None else finding.source_offset
    target = -1 if finding.target_offset is None else finding.target_offset
    return tp.topic, tp.partition, source, target, str(finding.kind)
