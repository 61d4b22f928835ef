"""What would be exported, what would be deleted behind that, and what stands in the way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from onceover.ages import exact_text
from onceover.drills.codes import DrillCode
from onceover.drills.orphans.exporttopic import OrphanOrigin
from onceover.drills.orphans.looks import OrphanLook, OrphanView, TopicShape
from onceover.drills.orphans.positions import PositionOnlyHere
from onceover.drills.orphans.refusals import not_remade, open_refusals, why_kept
from onceover.drills.orphans.terms import OrphanPlace, RebuildTerms
from onceover.model import TopicPartition
from onceover.planning.approval import ApprovablePlan, Item, ObjectState, items_of
from onceover.planning.plan import Change, Refusal, exit_of
from onceover.shown import lined, some

EXPORT: Final = "export"
WRITE: Final = "write"
DELETE: Final = "delete"
FORGET: Final = "forget"
CREATE: Final = "create"
_NAMED: Final = 3
_NO_RETURN: Final = (
    "  ---- point of no return: what follows is done only behind a whole export that was read",
    "       back, and only while nobody writes",
)
_ANEW: Final = "as it is now, for the flow the other way to copy into"
_STILL: Final = "an earlier run has deleted it, and nothing says that it was made again"


class HeldPart(NamedTuple):
    """What of a partition stands in the topic: how many records, and the newest one's source offset.

    Records that were compacted away on the source since are among them.
    """

    records: int
    last: int


NOTHING: Final = HeldPart(0, -1)


@dataclass(frozen=True, kw_only=True)
class OrphansPlan(ApprovablePlan):
    """What an old source holds alone, and what would become of it.

    Args:
        place: where everything is.
        view: what was seen.
        held: what of each partition, from the first orphan on, stands in the topic already.
        rebuild: source topics that would be deleted and made again empty, so that they are copied anew.
        remade: those that were deleted before, and are only made again.
        shapes: how each of both is made.
        standing: how each of these was when it was looked at.
        positions: of groups, in topics that were to be rebuilt, that stand nowhere else.
        forgotten: those of them that would be deleted with their topics.
    """

    place: OrphanPlace
    view: OrphanView
    held: Mapping[OrphanOrigin, HeldPart]
    rebuild: tuple[str, ...] = ()
    remade: tuple[str, ...] = ()
    shapes: Mapping[str, TopicShape] = field(default_factory=dict)
    standing: Mapping[str, ObjectState] = field(default_factory=dict)
    positions: tuple[PositionOnlyHere, ...] = ()
    forgotten: frozenset[PositionOnlyHere] = frozenset()

    @property
    def items(self) -> tuple[Item, ...]:
        """What a person approves: what is exported may have grown since, what is deleted may not."""
        return items_of(self.changes, self.standing)

    @property
    def exit_code(self) -> int:
        """3 when somebody has to decide something, 5 when waiting may help, else 0."""
        return exit_code(self.refused)

    @property
    def orphans(self) -> int:
        """How many records were never copied."""
        return sum(look.tally.records for look in self.view.looks)

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        return {
            **super().counts,
            "orphans": self.orphans,
            "torn": len(self.view.torn),
            "rebuild": len(self.rebuild),
        }

    def document(self) -> dict[str, Any]:
        """Return the plan's JSON."""
        return {
            **super().document(),
            "orphans": self.orphans,
            "topic": self.place.topic,
            "file": str(self.place.file),
            "partitions": [self._partition(look) for look in self.view.looks],
            "torn": [each.document() for each in self.view.torn],
            "not_looked_back_far_enough": [str(tp) for tp in self.view.short],
            "notes": [note.document() for note in self.view.notes if not note.blocks],
            "torn_not_looked_for": list(self.view.unseen),
            "rebuild": list(self.rebuild),
            "made_again": {t: self.shapes[t].document() for t in (*self.rebuild, *self.remade)},
            "positions_only_here": [
                {**each.document(), "forgotten": each in self.forgotten} for each in self.positions
            ],
            "point_of_no_return": DELETE if self.rebuild else None,
        }

    def _partition(self, look: OrphanLook) -> dict[str, Any]:
        tally = look.tally
        return {
            "partition": str(look.source),
            "cut": look.cut,
            "end": look.end,
            "records": tally.records,
            "first": tally.first,
            "last": tally.last,
            "first_ms": tally.first_ms,
            "last_ms": tally.last_ms,
            "bytes": tally.content_bytes,
            "exported": self.held.get(origin_of(look), NOTHING).records,
            "expired_offsets": look.first_wanted - look.cut,
            "aborted_transactions": look.aborted,
            "open_transactions": [
                {
                    "transactional_id": self.view.ids.get(span.producer_id),
                    "producer_id": span.producer_id,
                    "epoch": span.epoch,
                    "first": span.first,
                }
                for span in look.opened
            ],
        }

    def describe(self) -> str:
        """Return the plan as text."""
        place = self.place
        lines = [f"orphans of flow {self.flow}: what {place.source} holds and {place.target} never got"]
        lines += [f"  {note.object}: {note.message}" for note in self.view.notes if not note.blocks]
        lines += [line for look in self.view.looks for line in self._told(look)]
        lines += [f"  {each.describe()}" for each in self.view.torn]
        lines += self._short()
        lines += [
            f"  group {each.group} in {each.topic}: {each.where}; nowhere on {place.target}"
            for each in self.positions
        ]
        for change in self.changes:
            if change.what == DELETE and change.object == self._first_delete:
                lines += _NO_RETURN
            lines += change.describe()
        lines += [f"  refused {r.object}: {r.message}; {r.resolve}" for r in self.refused]
        if not self.changes:
            lines.append("  nothing to export")
        return lined(lines)

    @property
    def _first_delete(self) -> str | None:
        return next((c.object for c in self.changes if c.what == DELETE), None)

    def _told(self, look: OrphanLook) -> list[str]:
        lines = []
        if look.tally.records:
            lines.append(f"  {look.source}: {extent(look)}")
        if look.aborted:
            lines.append(f"  {look.source}: {look.aborted} aborted transactions behind the cut are none")
        if look.first_wanted > look.cut:
            gone = f"offsets {look.cut} to {look.first_wanted - 1}"
            lines.append(f"  {look.source}: {gone} were never copied, and have expired since")
        return lines

    def _short(self) -> list[str]:
        unseen = self.view.unseen
        lines = []
        if unseen:
            lines.append(
                f"  {some(unseen, _NAMED)}: not looked at; what is torn between them and others is not named"
            )
        return lines + self._not_far_enough()

    def _not_far_enough(self) -> list[str]:
        if not self.view.short:
            return []
        return [
            f"  in {some(self.view.short, _NAMED)} not as far back was looked as a transaction may reach: "
            "one whose other part lies there is not named as torn"
        ]


def origin_of(look: OrphanLook) -> OrphanOrigin:
    """Return by which the topic tells the partition from others."""
    return OrphanOrigin(look.topic_id, look.source)


def extent(look: OrphanLook) -> str:
    """Return what of a partition was never copied, as text."""
    tally = look.tally
    times = f"{exact_text(tally.first_ms or 0)} to {exact_text(tally.last_ms or 0)}"
    offsets = f"offsets {tally.first} to {tally.last}"
    return f"{tally.records} records, {offsets}, {times}, {tally.content_bytes} bytes"


def plan_orphans(
    place: OrphanPlace,
    view: OrphanView,
    held: Mapping[OrphanOrigin, HeldPart],
    *,
    rebuild: RebuildTerms | None,
    unmade: Mapping[str, TopicShape] = MappingProxyType({}),
) -> OrphansPlan:
    """Return what would be done.

    Args:
        held: what stands in the topic already.
        rebuild: topics with orphans are to be deleted behind the export, as far as these allow it.
        unmade: topics that were deleted for that, and of which nothing says that they were made again.
    """
    found = _rebuilds(place, view, rebuild)
    changes = [*_exports(place, view.looks, held), *found.changes]
    refused = [*(note for note in view.notes if note.blocks), *open_refusals(place, view), *found.refused]
    remade = {topic: shape for topic, shape in unmade.items() if topic in view.gone}
    if rebuild is None:
        refused += [not_remade(place, topic) for topic in sorted(remade)]
        remade = {}
    changes += [_create(place, topic, shape, _STILL) for topic, shape in sorted(remade.items())]
    return OrphansPlan(
        operation="orphans",
        flow=place.flow,
        changes=tuple(changes),
        refused=tuple(refused),
        place=place,
        view=view,
        held=held,
        rebuild=tuple(found.topics),
        remade=tuple(sorted(remade)),
        shapes={**({} if rebuild is None else rebuild.shapes), **remade},
        standing=found.standing,
        positions=() if rebuild is None else tuple(chain.from_iterable(rebuild.positions.found.values())),
        forgotten=frozenset(found.forgotten),
    )


@dataclass
class _Rebuilds:
    """Topics that would be deleted and made again, and why others would not."""

    topics: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    standing: dict[str, ObjectState] = field(default_factory=dict)
    forgotten: list[PositionOnlyHere] = field(default_factory=list)


def _rebuilds(place: OrphanPlace, view: OrphanView, terms: RebuildTerms | None) -> _Rebuilds:
    """Return what would become of the topics with orphans; nothing where none are to be rebuilt."""
    found = _Rebuilds()
    if terms is None:
        return found
    notes: dict[str, list[Refusal]] = {}
    for note in view.notes:
        if note.blocks:
            notes.setdefault(_topic_of(note.object), []).append(note)
    for topic, looks in orphaned(view).items():
        problem = why_kept(place, topic, looks, view, notes, terms)
        if problem is not None:
            found.refused.append(problem)
            continue
        found.topics.append(topic)
        delete = _delete(place, topic, looks)
        only_here = terms.positions.found.get(topic, ())
        found.forgotten += only_here
        forget = [_forget(place, each) for each in only_here]
        found.changes += [delete, *forget, _create(place, topic, terms.shapes[topic], _ANEW)]
        found.standing |= {c.object: ObjectState(e.where) for c, e in zip(forget, only_here, strict=True)}
        ends = ", ".join(f"{look.source.partition} at {look.end}" for look in looks)
        found.standing[delete.object] = ObjectState(f"topic {looks[0].topic_id}, its partitions end {ends}")
    return found


def orphaned(view: OrphanView) -> dict[str, list[OrphanLook]]:
    """Return the topics with orphans, each with all its partitions that were looked at."""
    found: dict[str, list[OrphanLook]] = {}
    for look in view.looks:
        found.setdefault(look.source.topic, []).append(look)
    return {t: looks for t, looks in found.items() if any(look.tally.records for look in looks)}


def _exports(
    place: OrphanPlace, looks: Sequence[OrphanLook], held: Mapping[OrphanOrigin, HeldPart]
) -> list[Change]:
    changes = []
    for look in looks:
        already = held.get(origin_of(look), NOTHING)
        if look.tally.last is not None and look.tally.last > already.last:
            there = f"; up to offset {already.last} they are there already" if already.records else ""
            changes.append(
                Change(EXPORT, str(look.source), place.source, place.topic, f"{extent(look)}{there}")
            )
    count = sum(look.tally.records for look in looks)
    if count:
        reason = "all that the topic holds, read back from it"
        changes.append(Change(WRITE, str(place.file), None, "a line for each record", reason))
    return changes


def _delete(place: OrphanPlace, topic: str, looks: Sequence[OrphanLook]) -> Change:
    return Change(
        DELETE,
        _named(place.source, topic),
        f"{len(looks)} partitions",
        None,
        f"flow {place.back} copies it anew from {place.target}",
        "destructive",
        sum(look.end - look.start for look in looks),
    )


def _forget(place: OrphanPlace, only_here: PositionOnlyHere) -> Change:
    return Change(
        FORGET,
        f"{_named(place.source, only_here.topic)}, group {only_here.group}",
        only_here.where,
        None,
        f"it has none on {place.target}, and is given up",
        "skip",
    )


def _create(place: OrphanPlace, topic: str, shape: TopicShape, reason: str) -> Change:
    return Change(CREATE, f"{_named(place.source, topic)}, empty", None, str(shape), reason)


def topic_of(change: Change) -> str:
    """Return the topic that a change deletes or creates, or that holds what it forgets."""
    return change.object.removeprefix("topic ").partition(" ")[0]


def _named(alias: str, topic: str) -> str:
    return f"topic {topic} on {alias}"


def _topic_of(partition: str) -> str:
    return partition.rpartition(":")[0] or partition


def exit_code(refused: Iterable[Refusal]) -> int:
    """Return what the command line returns where something is left: 5 where only time is missing. Pure."""
    return exit_of(refused, passing={DrillCode.ORPHANS_OPEN})


def partitions_of(looks: Iterable[OrphanLook]) -> dict[TopicPartition, int]:
    """Return where each partition ended when it was looked at."""
    return {look.source: look.end for look in looks}
