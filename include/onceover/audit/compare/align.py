"""The comparer: names every record in which two stretches differ.

Invariant: there are no findings exactly when both stretches hold the same records in the same order.
Presence and multiplicity are counted over contents, so that no loss is cancelled by a repeat, and identical
records that the source holds several times are right as often as it does.

Contents are compared as numbers (``audit.records.sketch``): memory does not depend on payloads, and time is
bounded for any input (``audit.compare.matching``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onceover.audit.compare.lookalikes import UnmatchedRecords, lookalikes
from onceover.audit.compare.matching import EqualRun, kth_occurrences, match
from onceover.audit.model import Finding, FindingKind
from onceover.audit.records.sketch import Ids, Sketch, differing, identities, mark_at, sketch
from onceover.model import TopicPartition

_Mask = npt.NDArray[np.bool_]
_NOTHING = np.empty(0, np.int64)


class _Difference(NamedTuple):
    """Indices into source and target, side by side; -1 where there is no such record."""

    kind: FindingKind
    source: Ids
    target: Ids


@dataclass(frozen=True)
class Alignment:
    """How two stretches differ. Made by ``align``.

    Args:
        pair: source and target partition.
        source: the records there; ``target`` likewise.
        aborted: what the source shows to no reader.
        runs: the records that correspond, in order.
        ids: equal numbers are equal contents, for source, target and aborted.
    """

    pair: tuple[TopicPartition, TopicPartition]
    source: Sketch
    target: Sketch
    aborted: Sketch
    runs: tuple[EqualRun, ...]
    ids: tuple[Ids, Ids, Ids]

    @property
    def same(self) -> bool:
        """True when there is nothing to be found."""
        matched = sum(run.size for run in self.runs)
        return matched == len(self.source) == len(self.target)

    @cached_property
    def counts(self) -> Counter[FindingKind]:
        """How many findings of each kind ``findings`` yields, without making them."""
        return Counter({each.kind: len(each.source) for each in self._differences if len(each.source)})

    def findings(self) -> Iterator[Finding]:
        """Yield every finding, kind by kind, in the order of the log."""
        for difference in self._differences:
            for source, target in zip(difference.source.tolist(), difference.target.tolist(), strict=True):
                yield self._finding(difference.kind, source, target)

    @cached_property
    def _matched(self) -> tuple[_Mask, _Mask]:
        here, there = np.zeros(len(self.source), bool), np.zeros(len(self.target), bool)
        for run in self.runs:
            here[run.source : run.source + run.size] = True
            there[run.target : run.target + run.size] = True
        return here, there

    @cached_property
    def _gaps(self) -> tuple[Ids, Ids]:
        """How many corresponding records stand before each record of source and target."""
        here, there = self._matched
        return np.cumsum(here, dtype=np.int64), np.cumsum(there, dtype=np.int64)

    @cached_property
    def _occurrences(self) -> tuple[Ids, Ids]:
        """How often each content is on the source and on the target."""
        contents = max((int(ids.max()) + 1 for ids in self.ids if len(ids)), default=0)
        return np.bincount(self.ids[0], minlength=contents), np.bincount(self.ids[1], minlength=contents)

    @cached_property
    def _differences(self) -> tuple[_Difference, ...]:
        source_ids, target_ids, aborted_ids = self.ids
        missing, extra = (np.flatnonzero(~matched) for matched in self._matched)
        moved_from, moved_to = kth_occurrences(source_ids[missing], target_ids[extra])
        moved = _Difference(FindingKind.REORDERED, missing[moved_from], extra[moved_to])
        missing, extra = np.delete(missing, moved_from), np.delete(extra, moved_to)
        known = np.isin(target_ids[extra], source_ids)
        repeated, surplus = extra[known], extra[~known]
        leaks = np.isin(target_ids[surplus], aborted_ids)
        leaked, surplus = surplus[leaks], surplus[~leaks]
        here, there = self._gaps
        pairs = lookalikes(
            UnmatchedRecords(self.source[missing], here[missing]),
            UnmatchedRecords(self.target[surplus], there[surplus]),
        )
        lost, phantom = np.delete(missing, pairs.missing), np.delete(surplus, pairs.surplus)
        return (
            _Difference(FindingKind.LOST, lost, np.full(len(lost), -1)),
            _Difference(FindingKind.REPEATED, _first(source_ids, target_ids[repeated]), repeated),
            moved,
            _Difference(FindingKind.ALTERED, missing[pairs.missing], surplus[pairs.surplus]),
            _Difference(FindingKind.PHANTOM, np.full(len(phantom), -1), phantom),
            _Difference(FindingKind.LEAKED, _first(aborted_ids, target_ids[leaked]), leaked),
        )

    def _finding(self, kind: FindingKind, source: int, target: int) -> Finding:
        here = self.aborted if kind is FindingKind.LEAKED else self.source
        mine = mark_at(here, source) if source >= 0 else None
        theirs = mark_at(self.target, target) if target >= 0 else None
        altered = kind is FindingKind.ALTERED and mine is not None and theirs is not None
        return Finding(
            kind,
            self.pair[0],
            int(here["offset"][source]) if mine else None,
            self.pair[1],
            int(self.target["offset"][target]) if theirs else None,
            differing(mine, theirs) if altered and mine and theirs else None,
            self._detail(kind, source, target),
            source_mark=str(mine) if mine else None,
            target_mark=str(theirs) if theirs else None,
        )

    def _detail(self, kind: FindingKind, source: int, target: int) -> str:
        match kind:
            case FindingKind.LOST:
                return f"expected {self._place(source)}"
            case FindingKind.REPEATED:
                here, there = (_times(counts, self.ids[1][target]) for counts in self._occurrences)
                return f"{here} on the source, {there} on the target"
            case FindingKind.REORDERED:
                return f"belongs {self._place(source)}"
            case FindingKind.ALTERED if self._gaps[0][source] != self._gaps[1][target]:
                return f"and belongs {self._place(source)}"
            case FindingKind.LEAKED:
                return "its transaction was aborted on the source"
            case FindingKind.PHANTOM:
                return "nothing on the source is like it"
            case FindingKind.ALTERED | FindingKind.MISROUTED:
                return ""

    def _place(self, source: int) -> str:
        """Say where on the target a record belongs: behind the last before it that corresponds."""
        before = int(self._gaps[0][source])
        if not before:
            return "before every record that corresponds"
        index = int(np.searchsorted(self._gaps[1], before))
        return f"behind target offset {int(self.target['offset'][index])}"


def align(
    source: Sketch,
    target: Sketch,
    pair: tuple[TopicPartition, TopicPartition],
    *,
    aborted: Sketch | None = None,
) -> Alignment:
    """Return how two stretches differ.

    Args:
        source: records of the source that a reader sees, in order; ``target`` likewise.
        pair: source and target partition, for the findings.
        aborted: records of the source's stretch whose transactions were aborted.
    """
    hidden = sketch(()) if aborted is None else aborted
    source_ids, target_ids, aborted_ids = identities(source, target, hidden)
    runs = tuple(match(source_ids, target_ids))
    return Alignment(pair, source, target, hidden, runs, (source_ids, target_ids, aborted_ids))


def _first(known: Ids, wanted: Ids) -> Ids:
    """Return where each wanted number stands first among the known ones."""
    if not len(wanted):
        return _NOTHING
    values, first = np.unique(known, return_index=True)
    return first[np.searchsorted(values, wanted)]


def _times(counts: Ids, content: int) -> str:
    times = int(counts[content])
    return "once" if times == 1 else f"{times} times"
