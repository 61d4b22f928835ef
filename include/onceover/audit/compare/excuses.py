"""Differences that have a reason other than a fault: diverted, skipped, cleaned, delivered again. Pure.

Invariant: an excuse never makes anything right. What is excused is left out of what is compared and counted
as unverifiable, with its reason; whatever has no excuse stays a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from onceover.audit.compare.align import Alignment
from onceover.audit.model import Finding, FindingKind, Range, Reason, Unverifiable
from onceover.audit.ranges.diverted import DeadLetters
from onceover.audit.records.recordhash import AuditedRecord
from onceover.audit.records.sketch import Ids, Sketch, is_tombstone, key_number, parse_mark
from onceover.model import TopicPartition

# How many records of an offset and a content are left out: a handler may make several of one.
LeftOut: TypeAlias = Counter[tuple[int, int]]
_MISSING: Final = frozenset({FindingKind.LOST, FindingKind.ALTERED, FindingKind.REORDERED})
_SURPLUS: Final = frozenset(
    {FindingKind.PHANTOM, FindingKind.REPEATED, FindingKind.ALTERED, FindingKind.REORDERED}
)


class Excuse(Protocol):
    """A reason why records may differ."""

    def __call__(self, finding: Finding) -> Unverifiable | None:
        """Return what is to be said instead of a finding; None where the reason is not this one."""


@dataclass
class Excused:
    """Findings as they go by, and what is said instead of some of them.

    Args:
        excuses: asked in this order.
        proven: source and target offset up to which an earlier audit has seen that all is right: what is
            excused before them needs no saying.
        doubts: asked where no excuse is known, and always told: what was right once may be wrong now.

    Attributes:
        told: instead of findings.
        source: records that are left out of what is compared; ``target`` likewise.
    """

    excuses: Sequence[Excuse]
    proven: tuple[int, int] = (0, 0)
    doubts: Sequence[Excuse] = ()
    told: list[Unverifiable] = field(default_factory=list)
    source: LeftOut = field(default_factory=Counter)
    target: LeftOut = field(default_factory=Counter)

    def left(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings that have no excuse."""
        for finding in findings:
            excuse = _first(self.excuses, finding)
            said = excuse or _first(self.doubts, finding)
            if said is None:
                yield finding
                continue
            if finding.source_offset is not None and finding.kind in _MISSING:
                self.source[finding.source_offset, _content(finding.source_mark)] += 1
            if finding.target_offset is not None and finding.kind in _SURPLUS:
                self.target[finding.target_offset, _content(finding.target_mark)] += 1
            if excuse is None or not self._is_proven(finding):
                self.told.append(said)

    def _is_proven(self, finding: Finding) -> bool:
        if finding.target_offset is not None:
            return finding.target_offset < self.proven[1]
        return finding.source_offset is not None and finding.source_offset < self.proven[0]


def _first(excuses: Iterable[Excuse], finding: Finding) -> Unverifiable | None:
    return next((said for excuse in excuses if (said := excuse(finding)) is not None), None)


def _content(mark: str | None) -> int:
    return -1 if mark is None else parse_mark(mark).content


def joined(told: Iterable[Unverifiable]) -> tuple[Unverifiable, ...]:
    """Return neighbours of one reason as one: an operator may skip millions."""
    found: list[Unverifiable] = []
    for each in sorted(told, key=lambda one: (one.reason, one.gone, one.offset_from)):
        last = found[-1] if found else None
        if last is not None and (last.reason, last.gone, last.offset_to) == (
            each.reason,
            each.gone,
            each.offset_from,
        ):
            found[-1] = replace(last, offset_to=each.offset_to, offsets=last.offsets + each.offsets)
        else:
            found.append(each)
    return tuple(found)


def _one(reason: Reason, finding: Finding, offset: int, why: str) -> Unverifiable | None:
    if finding.source is None:
        return None
    return Unverifiable(reason, finding.source, offset, offset + 1, 1, why)


# ---- decided by a person, or by the flow file


class SkippedSpan(Protocol):
    """Source offsets ``[start, end)``; ``known`` to have been skipped, or not known whether."""

    @property
    def start(self) -> int:
        """First one."""

    @property
    def end(self) -> int:
        """Behind the last one."""

    @property
    def known(self) -> bool:
        """False where nobody knows any more."""


class Decided(NamedTuple):
    """Records that are missing because somebody decided so.

    Args:
        holes: that an operator told the flow to go past.
        diverted: source offsets of records that were diverted.
    """

    holes: Sequence[SkippedSpan]
    diverted: Collection[int]

    def __call__(self, finding: Finding) -> Unverifiable | None:
        """Excuse what is missing, and nothing else."""
        at = finding.source_offset
        if finding.kind is not FindingKind.LOST or at is None:
            return None
        if at in self.diverted:
            return _one(Reason.DEAD_LETTER, finding, at, "they are not on the target: they were diverted")
        hole = next((hole for hole in self.holes if hole.start <= at < hole.end), None)
        if hole is None:
            return None
        if hole.known:
            why = "they are not on the target: the flow was told to go past them"
            return _one(Reason.SKIPPED, finding, at, why)
        why = "they are not on the target: lost, or skipped by hand before the offset map's first record"
        return _one(Reason.NOT_IN_MAP, finding, at, why)

    def among(self, offsets: Ids) -> npt.NDArray[np.bool_]:
        """Tell which source offsets were decided against."""
        found = np.isin(offsets, np.fromiter(self.diverted, np.int64, len(self.diverted)))
        for hole in self.holes:
            found |= (offsets >= hole.start) & (offsets < hole.end)
        return found


class MayBeDiverted(NamedTuple):
    """Records that are missing, and that a dead letter may name which nobody can read.

    Args:
        letters: what is known of their partition's dead letters.
    """

    letters: DeadLetters

    def __call__(self, finding: Finding) -> Unverifiable | None:
        """Excuse what is missing, and nothing else."""
        at = finding.source_offset
        if finding.kind is not FindingKind.LOST or at is None:
            return None
        doubt = self.letters.doubt(at)
        if doubt is None:
            return None
        why = f"they are not on the target: lost, or diverted, and {doubt.why}"
        return _one(doubt.reason, finding, at, why)


def told_apart(findings: Iterable[Finding], decided: Sequence[Excuse]) -> Iterator[Finding]:
    """Yield findings, a pair by likeness as two where its record on the source was decided against.

    That one was never copied, so what is like it on the target is something else. So it is where nobody can
    tell whether it was decided against: what is wrong on the target is wrong either way.
    """
    for finding in findings:
        if finding.kind is FindingKind.ALTERED and _first(decided, finding.halves()[0]) is not None:
            yield from finding.halves()
        else:
            yield finding


class Repeats(NamedTuple):
    """Records that at_least_once has delivered more than once.

    Args:
        places: where the source holds each content that is surplus here, its last offset.
        position: next source offset to copy.
        lapsed: why the source no longer holds records that may have been sent before their progress.
    """

    places: Mapping[int, int]
    position: int
    lapsed: Reason | None = None

    def __call__(self, finding: Finding) -> Unverifiable | None:
        """Excuse one more copy of what the source holds."""
        at = None
        if finding.kind is FindingKind.REPEATED:
            at = finding.source_offset
        elif finding.kind is FindingKind.PHANTOM and finding.target_mark is not None:
            at = self.places.get(parse_mark(finding.target_mark).content)
            if at is None:
                return self._sent_ahead(finding)
        if at is None:
            return None
        if at >= self.position:
            return _one(Reason.NOT_COPIED_YET, finding, at, "they are there before their progress is")
        why = "delivered again: by the flow, as at_least_once may, or by somebody else"
        return _one(Reason.AT_LEAST_ONCE, finding, at, why)

    def _sent_ahead(self, finding: Finding) -> Unverifiable | None:
        """Excuse what may be a copy of a record that the source has lost before its progress was written."""
        if self.lapsed is None or finding.source is None:
            return None
        why = "sent before their progress, or somebody else's: the source has lost what was to be copied"
        # Of the target alone: nobody knows which source offset it was.
        return Unverifiable(self.lapsed, finding.source, self.position, self.position, 1, why)


class RepeatedOutput(NamedTuple):
    """Output of a handler that at_least_once has delivered more than once, or before its progress.

    Args:
        made: of which source partition and offset a content is made that stands here.
        positions: next source offset to copy, by source partition.
        lapsed: why the source no longer holds all that something may be made of.
    """

    made: Mapping[int, tuple[TopicPartition, int]]
    positions: Mapping[TopicPartition, int]
    lapsed: Reason | None = None

    def __call__(self, finding: Finding) -> Unverifiable | None:
        """Excuse what the handler makes of a record that the source holds."""
        if finding.kind is not FindingKind.PHANTOM or finding.target_mark is None:
            return None
        content = parse_mark(finding.target_mark).content
        if content not in self.made:
            return Repeats({}, 0, self.lapsed)(finding)
        source, offset = self.made[content]
        return Repeats({content: offset}, self.positions[source])(replace(finding, source=source))


# ---- taken by a log cleaner


class CompactedSide(NamedTuple):
    """What one side of a compacted partition holds.

    Args:
        offsets: of all that its log still holds in the stretch, rising: records, and what no reader sees.
        latest: the last offset of each key, by ``sketch.key_number``, up to the present end of the log.
    """

    offsets: Ids
    latest: Mapping[int, int]


def held(
    stretch: Iterable[AuditedRecord], behind: Iterable[AuditedRecord], hidden: Iterable[int] = ()
) -> CompactedSide:
    """Return what a side holds.

    Args:
        stretch: the records that are compared; ``behind`` those that came later.
        hidden: offsets of the stretch that hold a transaction's marker or an aborted record: nothing that
            a reader has ever seen was there, so no cleaner has taken it.
    """
    offsets, latest = list(hidden), {}
    for rec in stretch:
        offsets.append(rec.offset)
        latest[key_number(rec.key)] = rec.offset
    for rec in behind:
        latest[key_number(rec.key)] = rec.offset
    return CompactedSide(np.unique(np.array(offsets, np.int64)), latest)


class _Gap(NamedTuple):
    """Offsets between two records that correspond to others, both exclusive."""

    low: int
    high: int

    def missing(self, offsets: Ids) -> int:
        """Return how many of its offsets hold nothing: a cleaner leaves such, and so does nothing else."""
        inside = np.searchsorted(offsets, self.high) - np.searchsorted(offsets, self.low, side="right")
        return self.high - self.low - 1 - int(inside)


@dataclass(frozen=True)
class Cleaned:
    """Records that a log cleaner can have taken from one side.

    It takes a record when a later one of its key is in the log, and a tombstone after some time; nothing
    else, and it leaves an offset without a record. So a difference is excused only where the side that lacks
    the record has such an offset at its place.

    Args:
        alignment: how both sides differ.
        span: what is compared.
        source: what the source holds; ``target`` likewise.
        decided: what was never to be on the target: no cleaner has had to take it from there.
        keyed: False when the source's keys say nothing about the target's: a handler made those.
    """

    alignment: Alignment
    span: Range
    source: CompactedSide
    target: CompactedSide
    decided: Decided
    keyed: bool = True

    def __call__(self, finding: Finding) -> Unverifiable | None:
        """Excuse what can have been taken; a finding about both sides only if both can."""
        here, there = finding.source_offset, finding.target_offset
        if finding.source is None or finding.kind is FindingKind.LEAKED:
            return None
        if finding.kind in _MISSING and (here is None or not self._from_target(finding, here)):
            return None
        if finding.kind in _SURPLUS and (there is None or not self._from_source(finding, there)):
            return None
        if finding.kind in _MISSING and here is not None:
            why = "the target no longer holds them, or never did: a cleaner takes what a later value replaces"
            return _one(Reason.COMPACTED_HISTORY, finding, here, why)
        gap = self._source_gap(there or 0)
        why = f"the source no longer holds what would be target offset {there}: its cleaner can have taken it"
        low, high = gap.low + 1, gap.high
        return Unverifiable(Reason.COMPACTED_HISTORY, finding.source, low, high, 1, why, gone=True)

    def _from_target(self, finding: Finding, offset: int) -> bool:
        """Tell whether the target's cleaner can have taken the record of a source offset."""
        index = int(np.searchsorted(self._pairs[0], offset))
        gap = self._gap(index, 1)
        if gap.missing(self.target.offsets) < self._crowd(0, index):
            return False
        return self._superseded(0, self.target, finding.source_mark, gap)

    def _from_source(self, finding: Finding, offset: int) -> bool:
        """Tell whether the source's cleaner can have taken the record of a target offset."""
        gap = self._source_gap(offset)
        if gap.missing(self.source.offsets) < 1:
            return False
        if not self.keyed:
            return True
        if gap.missing(self.source.offsets) < self._crowd(1, int(np.searchsorted(self._pairs[1], offset))):
            return False
        return self._superseded(1, self.source, finding.target_mark, gap)

    def _superseded(self, side: int, held: CompactedSide, mark: str | None, gap: _Gap) -> bool:
        """Tell whether a later record of the same key is what a cleaner kept in ``held``."""
        key = parse_mark(mark or "").key
        latest = held.latest.get(key)
        if latest is None:
            return self._deleted(side, key)
        return latest > gap.low

    def _source_gap(self, offset: int) -> _Gap:
        return self._gap(int(np.searchsorted(self._pairs[1], offset)), 0)

    def _gap(self, index: int, side: int) -> _Gap:
        pairs = self._pairs[side]
        begin, end = (
            (self.span.target_from, self.span.target_to)
            if side
            else (self.span.source_from, self.span.source_to)
        )
        low = int(pairs[index - 1]) if index else begin - 1
        return _Gap(low, int(pairs[index]) if index < len(pairs) else end)

    def _crowd(self, side: int, index: int) -> int:
        """Return how many records of a side correspond to none at one place."""
        return self._crowds[side].get(index, 0)

    def _deleted(self, side: int, key: int) -> bool:
        """Tell whether a side's last record of a key is a tombstone."""
        return key in self._tombstones[side]

    @cached_property
    def _pairs(self) -> tuple[Ids, Ids]:
        """The offsets of records that correspond, side by side."""
        here, there = self.alignment.source["offset"], self.alignment.target["offset"]
        runs = self.alignment.runs
        return (
            np.concatenate([here[r.source : r.source + r.size] for r in runs] or [np.empty(0, np.int64)]),
            np.concatenate([there[r.target : r.target + r.size] for r in runs] or [np.empty(0, np.int64)]),
        )

    @cached_property
    def _crowds(self) -> tuple[dict[int, int], dict[int, int]]:
        found: list[dict[int, int]] = []
        for numbers, pairs in zip((self.alignment.source, self.alignment.target), self._pairs, strict=True):
            alone = numbers["offset"][~np.isin(numbers["offset"], pairs)]
            if numbers is self.alignment.source:
                alone = alone[~self.decided.among(alone)]
            places, counts = np.unique(np.searchsorted(pairs, alone), return_counts=True)
            found.append(dict(zip(places.tolist(), counts.tolist(), strict=True)))
        return found[0], found[1]

    @cached_property
    def _tombstones(self) -> tuple[set[int], set[int]]:
        return _deleted_keys(self.alignment.source), _deleted_keys(self.alignment.target)


def _deleted_keys(numbers: Sketch) -> set[int]:
    last = dict(zip(numbers["key"].tolist(), is_tombstone(numbers).tolist(), strict=True))
    return {key for key, deleted in last.items() if deleted}
