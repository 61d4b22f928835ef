"""The enrolment record: what makes a topic part of a flow. Pure.

Invariant: enrolled partitions are exactly those whose progress was written in the same transaction;
a partition that is enrolled but has no progress has lost it, and nobody may guess it (G5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from onceover.errors import NeedsOperator
from onceover.model import TopicPartition, lane_of
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.records.value import (
    MALFORMED,
    as_unreadable,
    mapping,
    name,
    named_like,
    partition_number,
    text,
    whole_number,
)

T = TypeVar("T")
VERSION = 1
# The record of a topic is one record of the state, which takes 1 MiB. Compressed it has at most 48 bytes a
# partition, with everything in it (measured); 20 after enrolment alone.
MOST_PARTITIONS: Final = 20_000


class PlacedProgress(NamedTuple):
    """Progress of a partition that the leader has written, at its enrolment or by hand.

    ``generation``: under which; what lanes have written since is of this one or newer. ``offset``: the next
    source offset. ``target_end``: end of what the target's log held then.
    """

    generation: int
    offset: int
    target_end: int


class GaveWay(NamedTuple):
    """That a topic was left to another flow, since when its copies may come back to its source.

    ``generation``: under which that was seen last; ``flow``: to whom.
    """

    generation: int
    flow: str


class Promoted(NamedTuple):
    """That a topic's copy was given to clients to write to: it is a copy no longer.

    ``generation``: under which that was written; ``drill``: the switchover that did it; ``ends``: of the
    copy's log then, by partition number; ``cuts``: up to which source offset each was copied; without, by an
    older release.
    """

    generation: int
    drill: str
    ends: Mapping[int, int]
    cuts: Mapping[int, int] = MappingProxyType({})


class LeftAt(NamedTuple):
    """When a topic was left, by the filter or to another flow: the leader's ``generation`` and clock."""

    generation: int
    at_ms: int


@dataclass(frozen=True)
class Enrolment:
    """One topic of the flow.

    Args:
        source: source topic.
        target: target topic.
        source_id: topic id of the source topic when it was enrolled, or when an operator's change of a
            partition's progress accepted another one.
        target_id: the same of the target topic.
        start: first source offset of each partition, by number; its length is the partition count.
        at_ms: when it was enrolled.
        active: False when the topic has left the filter: it is not copied, and keeps its progress.
        since: generation of a partition's ``reseed`` into or from another topic of the same name: what
            older generations wrote into the offset map is about topics that are gone.
        changed: id of the approval under which a partition's progress was written by hand the last time.
        former: ids of the topics that a partition was copied between, where they are others than those
            above: its neighbour was accepted with new ones, and it was not.
        placed: where a partition's progress was written by the leader the last time; without it by an
            older release.
        gave_way: to whom the topic was left, None where it was not, or by an older release. Positions that
            are older than that are none to go on from.
        left: when a topic that is not active was left; None also by an older release.
        promoted: by which switchover its copy was given to clients; None where it is a copy.
        begun: partitions of which ``placed`` says where their copy began, at ``start``: what the target held
            before is nobody's. Not those that were put somewhere amid their copy, or by an older release.
    """

    source: str
    target: str
    source_id: UUID
    target_id: UUID
    start: Mapping[int, int]
    at_ms: int
    active: bool = True
    since: Mapping[int, int] = field(default_factory=dict)
    changed: Mapping[int, str] = field(default_factory=dict)
    former: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    placed: Mapping[int, PlacedProgress] = field(default_factory=dict)
    gave_way: GaveWay | None = None
    left: LeftAt | None = None
    promoted: Promoted | None = None
    begun: frozenset[int] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return the value written under ``topic/<target>``."""
        value: dict[str, Any] = {
            "v": VERSION,
            "source": self.source,
            "target": self.target,
            "source_id": str(self.source_id),
            "target_id": str(self.target_id),
            "partitions": len(self.start),
            "start": {str(p): offset for p, offset in sorted(self.start.items())},
            "at_ms": self.at_ms,
            "active": self.active,
            "since": {str(p): generation for p, generation in sorted(self.since.items())},
            "changed": {str(p): approval for p, approval in sorted(self.changed.items())},
            "former": {str(p): list(ids) for p, ids in sorted(self.former.items())},
            "placed": {str(p): list(placed) for p, placed in sorted(self.placed.items())},
            "begun": sorted(self.begun),
        }
        if self.gave_way is not None:
            value["gave_way"] = list(self.gave_way)
        if self.left is not None:
            value["left"] = list(self.left)
        if self.promoted is not None:
            generation, drill, *offsets = self.promoted
            numbered = [{str(p): at for p, at in sorted(by_number.items())} for by_number in offsets]
            value["promoted"] = [generation, drill, *numbered]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Enrolment:
        """Read what ``to_json`` wrote.

        Raises:
            NeedsOperator: written by another version, or not an enrolment.
        """
        value = mapping(value, "enrolment")
        if value.get("v") != VERSION:
            raise NeedsOperator(
                "an enrolment was written by another version of Onceover",
                code=StateCode.STATE_VERSION,
                expected=f"version {VERSION}",
                seen=f"version {value.get('v')}",
            )
        try:
            return cls(
                name(value["source"]),
                name(value["target"]),
                UUID(text(value["source_id"])),
                UUID(text(value["target_id"])),
                _by_partition(value["start"], whole_number),
                whole_number(value["at_ms"]),
                bool(value.get("active", True)),
                _by_partition(value.get("since", {}), whole_number),
                _by_partition(value.get("changed", {}), text),
                _by_partition(value.get("former", {}), _ids),
                _by_partition(value.get("placed", {}), lambda at: PlacedProgress(*map(whole_number, at))),
                _gave_way(value.get("gave_way")),
                LeftAt(*map(whole_number, value["left"])) if "left" in value else None,
                _promoted(value.get("promoted")),
                frozenset(map(whole_number, value.get("begun", ()))),
            )
        except MALFORMED as error:
            raise as_unreadable(error, "enrolment") from error

    @property
    def ids(self) -> tuple[str, str]:
        """Ids of the topics, as they were accepted last."""
        return str(self.source_id), str(self.target_id)

    def ids_of(self, partition: int) -> tuple[str, str]:
        """Return the ids of the topics that a partition was copied between, as far as the leader knows."""
        return self.former.get(partition, self.ids)

    def approval(self, partition: int) -> str:
        """Return under which an operator has put a partition the last time; empty where nobody has."""
        return self.changed.get(partition, "")

    def placed_by_hand(self, partition: int) -> PlacedProgress | None:
        """Return where an operator has put a partition the last time; None where nobody has."""
        return self.placed.get(partition) if partition in self.changed else None

    def placed_by_an_older_release(self, partition: int) -> bool:
        """Tell whether an operator has put a partition somewhere, and nothing says where and when."""
        return partition in self.changed and partition not in self.placed

    def began(self, partition: int) -> int | None:
        """Return where the target's log ended when the copy of a partition began at its ``start``.

        None where it was put elsewhere since, or by an older release.
        """
        placed = self.placed.get(partition) if partition in self.begun else None
        return None if placed is None else placed.target_end

    def begun_with(
        self, placed: Mapping[int, PlacedProgress], anew: Collection[int], start: Mapping[int, int]
    ) -> frozenset[int]:
        """Return ``begun`` for who places partitions of the topic.

        Args:
            anew: those of them that are copied between other topics from then on, or were not copied yet.
            start: of each, as it will be.
        """
        nobodys = {p for p in placed if p in anew or p not in self.start or self._is_given_away(p)}
        return (self.begun - placed.keys()) | {p for p in nobodys if placed[p].offset == start.get(p)}

    def _is_given_away(self, partition: int) -> bool:
        """Tell whether the topic was given away, and this partition was not placed by hand since."""
        marks = [mark.generation for mark in (self.gave_way, self.promoted) if mark is not None]
        placed = self.placed.get(partition)
        return bool(marks) and (0 if placed is None else placed.generation) <= max(marks)

    @property
    def waits_to_be_placed(self) -> bool:
        """Tell whether the topic was given away, and a partition was not placed by hand since.

        Given away: left to another flow, or to the clients that write to its copy.
        """
        return any(map(self._is_given_away, self.start))

    @property
    def is_promoted(self) -> bool:
        """Tell whether clients write to its copy, as far as this flow knows."""
        return self.promoted is not None and self.waits_to_be_placed

    def is_promoted_since(self, other: Enrolment) -> bool:
        """Tell whether clients write to its copy, and do so since later than to that of ``other``.

        By two clocks, which may differ; but where one of both has copied what clients have written behind
        the promotion of the other one, its own promotion is the later one, whatever these say.

        Args:
            other: the record of a flow the other way, about the topic that this one copies from.
        """
        if self.promoted is None or other.promoted is None or self.left is None or other.left is None:
            return False
        if not (self.is_promoted and other.is_promoted) or other.has_gone_on_behind(self):
            return False
        return self.has_gone_on_behind(other) or self.left.at_ms > other.left.at_ms

    def has_gone_on_behind(self, other: Enrolment) -> bool:
        """Tell whether more was copied by its promotion than the copy of ``other`` held by that one's."""
        if self.promoted is None or other.promoted is None or other.target_id != self.source_id:
            return False
        ends = other.promoted.ends
        return any(cut > ends.get(number, cut) for number, cut in self.promoted.cuts.items())

    def is_still(self, before: Enrolment) -> bool:
        """Tell whether the topic is copied as it was, with progress that nobody but its lanes has moved.

        More partitions make it no other copy.
        """
        same = (self.source, self.target, self.source_id, self.target_id, self.active, self.promoted)
        then = (before.source, before.target, before.source_id, before.target_id, before.active)
        by_hand = ("start", "since", "changed", "former", "placed")
        return same == (*then, before.promoted) and all(
            getattr(self, of).get(number) == getattr(before, of).get(number)
            for of in by_hand
            for number in before.start
        )

    def as_promoted(
        self, drill: str, now: LeftAt, ends: Mapping[int, int], cuts: Mapping[int, int]
    ) -> Enrolment:
        """Return the record of a topic whose copy, which ends there, clients write to from now on.

        Whenever the record that it is made of is from: of one that had been left before, too.
        """
        promoted = Promoted(now.generation, drill, ends, cuts)
        return replace(self, active=False, gave_way=None, left=now, promoted=promoted)

    def leaving(self, now: LeftAt) -> Enrolment:
        """Return the record of a topic that is not copied for now."""
        return replace(self, active=False, left=now) if self.active else self

    def left_to(self, flow: str, now: LeftAt) -> Enrolment:
        """Return the record of a topic that is another flow's for now."""
        marked = self.active or not self.waits_to_be_placed
        gave_way = GaveWay(now.generation, flow) if marked else self.gave_way
        return replace(self.leaving(now), gave_way=gave_way)

    def after(self, flow: str, until_ms: int) -> Enrolment:
        """Return the record, as ``flow`` copied the topic back until then: perhaps since it was left."""
        given = self.gave_way or self.promoted
        if self.active or self.left is None or given is not None or until_ms <= self.left.at_ms:
            return self
        return replace(self, gave_way=GaveWay(self.left.generation, flow))

    def back(self) -> Enrolment:
        """Return the record of a topic that is copied again."""
        return replace(self, active=True, gave_way=None, left=None, promoted=None)

    def between(self, source_id: UUID, target_id: UUID, partitions: Collection[int]) -> Enrolment:
        """Return the record with these partitions copied between these topics; others keep theirs."""
        now = str(source_id), str(target_id)
        others = {p: self.ids_of(p) for p in self.start if p not in partitions}
        former = {p: ids for p, ids in others.items() if ids != now}
        return replace(self, source_id=source_id, target_id=target_id, former=former)

    def sources(self) -> list[TopicPartition]:
        """Return the enrolled source partitions."""
        return [TopicPartition(self.source, p) for p in sorted(self.start)]

    def target_of(self, source: TopicPartition) -> TopicPartition:
        """Return the target partition that ``source`` is copied to: the same number."""
        return TopicPartition(self.target, source.partition)


def _gave_way(value: Sequence[object] | None) -> GaveWay | None:
    if value is None:
        return None
    generation, flow = value
    return GaveWay(whole_number(generation), name(flow))


def _promoted(value: Sequence[object] | None) -> Promoted | None:
    if value is None:
        return None
    generation, drill, ends, *cuts = value
    by_number = [ends, *cuts]
    if len(by_number) > 2 or not all(isinstance(each, Mapping) for each in by_number):
        raise TypeError("offsets of a promoted copy")
    offsets = (_by_partition(each, whole_number) for each in by_number if isinstance(each, Mapping))
    return Promoted(whole_number(generation), text(drill), *offsets)


def _by_partition(value: Mapping[str, Any], read: Callable[[Any], T]) -> dict[int, T]:
    return {partition_number(number): read(each) for number, each in value.items()}


def _ids(value: Iterable[object]) -> tuple[str, str]:
    one, two = value
    return text(one), text(two)


def read_enrolments(state: Mapping[str, Any]) -> dict[str, Enrolment]:
    """Return the enrolments among the values of the state's first partition, by target topic.

    Raises:
        NeedsOperator: one is none, or is under another topic's key.
    """
    return named_like(state, names.enrolment_key(""), Enrolment.from_json, lambda each: each.target)


def owned(
    enrolments: Iterable[Enrolment], lane: int, lanes: int, *, active: bool = True
) -> dict[TopicPartition, Enrolment]:
    """Return the source partitions that ``lane`` copies, with their topic's enrolment.

    Args:
        active: False for those it would copy if their topic had not left the filter.
    """
    return {
        source: enrolment
        for enrolment in enrolments
        if enrolment.active is active
        for source in enrolment.sources()
        if lane_of(source, lanes) == lane
    }
