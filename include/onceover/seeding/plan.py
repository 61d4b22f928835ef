"""Which positions a seeding writes, and what that repeats or skips (docs/seeding.md, KIP-656). Pure.

Invariants: no offset is written that the source's log does not hold; progress that exists is replaced only
where the operator said so; a topic that is not enrolled yet is seeded whole or not at all, because an
enrolled partition without progress counts as lost (G5); nor is one that was given away, and has grown
meanwhile, without what it has grown by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.errors import OnceoverError
from onceover.kafka.ports import TopicInfo
from onceover.model import TopicPartition
from onceover.operate.repair import taken_back
from onceover.planning import commands
from onceover.planning.approval import ApprovablePlan, Item, ObjectState, items_of
from onceover.planning.codes import PlanningCode
from onceover.planning.plan import Change, Refusal, exit_of, restart
from onceover.seeding.codes import SeedingCode
from onceover.shown import lined
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import UNREAD
from onceover.stops.codes import StopCode
from onceover.topics.plan import TopicPlan
from onceover.topics.refusals import NOT_OURS
from onceover.wire.progress import CopiedLast

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
REFUSE: Final = "refuse"


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One source partition as it is now, and its counterpart on the target.

    Args:
        source: source partition; ``target`` its counterpart.
        start: first offset of the source's log; ``lso`` and ``end`` its LSO and high watermark.
        position: committed progress of the flow, None where there is none.
        target_start: first offset of the target's log; ``target_end`` its LSO; 0 without a topic.
        between: ids of the topics that the progress is about, None where nothing tells.
        doubt: why nobody may rely on the progress, None where it may be.
    """

    source: TopicPartition
    target: TopicPartition
    start: int
    lso: int
    end: int
    position: int | None = None
    target_start: int = 0
    target_end: int = 0
    between: tuple[str, str] | None = None
    doubt: OnceoverError | None = None

    @property
    def target_held(self) -> int:
        """Offsets in the target's log, markers included."""
        return self.target_end - self.target_start


@dataclass(frozen=True, kw_only=True)
class SeatedTopic:
    """One source topic in scope, with a seat for each partition that may be seeded.

    Args:
        source: the source topic.
        target: name of its copy; ``copy`` the target topic, None while it does not exist.
        enrolment: what the flow's state says, None when it is not enrolled.
        seats: of an enrolled topic only the enrolled partitions; of one that was given away, and waits to be
            placed, those too that both sides have by now.
    """

    source: TopicInfo
    target: str
    copy: TopicInfo | None
    enrolment: Enrolment | None
    seats: tuple[Seat, ...]


@dataclass(frozen=True)
class SeedOffset:
    """The offset that an origin names for a source partition.

    Args:
        offset: next source offset to copy.
        reason: where it comes from.
        risk: as in ``Change``, where the origin knows what was copied, whatever the progress says; None
            lets the situation tell.
        records: offsets that the risk concerns.
        target_end: end of what the flow has written to the target, None for the end of its log.
        named: somebody has written down this very number, which nothing moves while it is thought over.
        otherwise: what the operator can do where it cannot be written; None for what the options of ``seed``
            do about it.
        last: what was copied last before it from this very source, where the origin has that, too.
    """

    offset: int
    reason: str
    risk: str | None = None
    records: int | None = None
    target_end: int | None = None
    named: bool = False
    otherwise: str | None = None
    last: CopiedLast = UNREAD


@dataclass(frozen=True)
class SeedOffsets:
    """What an origin knows: offsets, and what it cannot answer by source partition."""

    offsets: Mapping[TopicPartition, SeedOffset] = field(default_factory=dict)
    refused: Mapping[TopicPartition, Refusal] = field(default_factory=dict)
    remarks: tuple[Refusal, ...] = ()


@dataclass(frozen=True)
class Choice:
    """What the operator said about open questions.

    Args:
        replace: write although there is progress already.
        missing: for partitions of a named topic that the origin does not name: ``earliest``, ``latest``
            or ``refuse``.
    """

    replace: bool = False
    missing: str = REFUSE


@dataclass(frozen=True)
class SeededPosition:
    """Progress to write: next source offset, the end of the target's log, and what was read last before."""

    seat: Seat
    offset: int
    target_end: int
    last: CopiedLast = UNREAD


@dataclass(frozen=True, kw_only=True)
class SeedPlan(ApprovablePlan):
    """What a seeding does.

    Args:
        topics: topics with positions to write.
        positions: the progress to write, by source partition.
        topic_plan: target topics to create or to extend before.
        untouched: topics in scope that the origin does not name: they keep their progress, and without any
            the flow itself decides where they begin.
        standing: how the partitions stand, by the names of source partitions.
        named: source partitions whose offsets somebody has written down.
    """

    topics: tuple[SeatedTopic, ...] = ()
    positions: Mapping[TopicPartition, SeededPosition] = field(default_factory=dict)
    topic_plan: TopicPlan | None = None
    untouched: tuple[str, ...] = ()
    standing: Mapping[str, ObjectState] = field(default_factory=dict)
    named: frozenset[str] = frozenset()

    @property
    def items(self) -> tuple[Item, ...]:
        """What a person approves: which objects are changed, at which risk; and where to, if that is named.

        What is read from a live cluster moves on while somebody thinks it over.
        """
        each = (items_of([c], self.standing, exact=c.object in self.named) for c in self.changes)
        return tuple(item for items in each for item in items)

    @property
    def exit_code(self) -> int:
        """3 while something is refused that somebody has to decide about, 5 where it cannot be read now."""
        return exit_of(self.refused, passing={SeedingCode.UNREADABLE})

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        return {**super().counts, "positions": len(self.positions)}

    def document(self) -> dict[str, object]:
        """Return the plan's JSON."""
        return {**super().document(), "untouched": list(self.untouched)}

    def describe(self) -> str:
        """Return the plan as text."""
        lines = super().describe().split("\n")
        if self.untouched:
            lines.append(f"  left as they are, the origin does not name them: {', '.join(self.untouched)}")
        return lined(lines)


def plan_seed(
    operation: str,
    flow: str,
    topics: Sequence[SeatedTopic],
    seeds: SeedOffsets,
    topic_plan: TopicPlan,
    choice: Choice,
    *,
    extra: Iterable[Change] = (),
) -> SeedPlan:
    """Return what is written and what is refused.

    Args:
        operation: ``seed`` or ``adopt``.
        topics: in scope and wanted, as they are now.
        topic_plan: what creating the copies takes; its refusals count for topics that are not enrolled.
        extra: changes that precede the positions, made only when there are positions.
    """
    planning = _Planning(flow, seeds, choice, topic_plan)
    for topic in topics:
        planning.topic(topic)
    seated = {topic.source.name for topic in planning.seated}
    steps = tuple(step for step in topic_plan.steps if step.source in seated)
    changes: list[Change] = []
    if planning.positions:
        changes = [*(step.change for step in steps), *extra, *planning.changes, restart()]
    return SeedPlan(
        operation=operation,
        flow=flow,
        changes=tuple(changes),
        refused=(*planning.refused, *seeds.remarks),
        topics=tuple(planning.seated),
        positions=planning.positions,
        topic_plan=TopicPlan(operation=operation, flow=flow, steps=steps),
        untouched=tuple(planning.untouched),
        named=frozenset(str(tp) for tp in planning.positions if tp in planning.named),
    )


class _Planning:
    def __init__(self, flow: str, seeds: SeedOffsets, choice: Choice, topic_plan: TopicPlan) -> None:
        self._flow = flow
        self._seeds = seeds
        self._choice = choice
        self._enrol = frozenset(topic_plan.enrol)
        self._blocked: dict[str, list[Refusal]] = {}
        for refusal in topic_plan.refused:
            self._blocked.setdefault(refusal.object, []).append(refusal)
        self.seated: list[SeatedTopic] = []
        self.positions: dict[TopicPartition, SeededPosition] = {}
        self.named = {tp for tp, seed in seeds.offsets.items() if seed.named}
        self.changes: list[Change] = []
        self.refused: list[Refusal] = []
        self.untouched: list[str] = []

    def topic(self, topic: SeatedTopic) -> None:
        named = {seat.source for seat in topic.seats} & (
            self._seeds.offsets.keys() | self._seeds.refused.keys()
        )
        if not named:
            self.untouched.append(topic.source.name)
            return
        if topic.enrolment is None and any(seat.position is not None for seat in topic.seats):
            self.refused.append(_state_lost(topic))
            return
        if topic.enrolment is None and topic.source.name not in self._enrol:
            self.refused += self._blocked.get(topic.source.name, [_not_ready(self._flow, topic)])
            return
        if taken := self._others(topic):
            self.refused += taken
            return
        if topic.enrolment is not None and (gone := _copy_gone(self._flow, topic)):
            self.refused.append(gone)
            return
        found: dict[TopicPartition, SeededPosition] = {}
        changes: list[Change] = []
        refused: list[Refusal] = []
        halved = False
        for seat in topic.seats:
            answer = self._seat(seat, topic)
            if isinstance(answer, Refusal):
                refused.append(answer)
                halved |= _is_new(seat, topic)
            elif answer is not None:
                seed, change = answer
                end = seat.target_end if seed.target_end is None else seed.target_end
                found[seat.source] = SeededPosition(seat, seed.offset, end, seed.last)
                changes.append(change)
        self.refused += refused
        if found and not halved:
            self.seated.append(topic)
            self.positions |= found
            self.changes += changes
            self.changes += [] if topic.enrolment is None else taken_back(topic.enrolment)

    def _others(self, topic: SeatedTopic) -> list[Refusal]:
        """Return why an enrolled topic that is not copied is another flow's, or may be."""
        if topic.enrolment is None or topic.enrolment.active:
            return []
        return [r for r in self._blocked.get(topic.source.name, []) if r.code in NOT_OURS]

    def _seat(self, seat: Seat, topic: SeatedTopic) -> tuple[SeedOffset, Change] | Refusal | None:
        """Return what is written for one partition; None where nothing has to be."""
        source = seat.source
        seed = self._seeds.offsets.get(source)
        if seed is None:
            refusal = self._seeds.refused.get(source)
            seed = None if refusal else self._without_seed(seat)
            if seed is None:
                return refusal or (None if seat.position is not None else _nothing_named(seat, topic))
        if not seat.start <= seed.offset <= seat.end:
            return _out_of_range(seat, seed)
        waits = topic.enrolment is not None and topic.enrolment.waits_to_be_placed
        if copied_up_to(topic, seat) == seed.offset and not waits:
            return None
        risk, records, note = _consequence(topic, seat, seed)
        if seat.position is not None and not self._choice.replace:
            return _progress_exists(seat, seed, _effect(risk, records) + note)
        replaces = "" if seat.position is None else "; replaces the progress that is there"
        reason = f"{seed.reason}{replaces}{note}"
        change = Change("position", str(source), seat.position, seed.offset, reason, risk, records)
        return seed, change

    def _without_seed(self, seat: Seat) -> SeedOffset | None:
        if seat.position is not None:
            return None
        if seat.start == seat.end:
            return SeedOffset(seat.end, "the source partition is empty")
        if self._choice.missing == EARLIEST:
            return SeedOffset(seat.start, "not named by the origin: from the start of the log, as asked")
        if self._choice.missing == LATEST:
            return SeedOffset(seat.lso, "not named by the origin: from the end of the log, as asked")
        return None


def _is_new(seat: Seat, topic: SeatedTopic) -> bool:
    """Tell whether the flow has never copied a partition."""
    return topic.enrolment is None or seat.source.partition not in topic.enrolment.start


def made_anew(topic: SeatedTopic, seat: Seat) -> tuple[bool, bool]:
    """Tell whether source and target of a partition are other topics by now than the flow has copied between.

    Args:
        seat: one of the topic's.
    """
    if topic.enrolment is None:
        return False, False
    source, target = seat.between or topic.enrolment.ids_of(seat.source.partition)
    return source != str(topic.source.topic_id), (
        topic.copy is not None and target != str(topic.copy.topic_id)
    )


def copied_up_to(topic: SeatedTopic, seat: Seat) -> int | None:
    """Return the progress; None where there is none, nobody may rely on it, or it is about topics gone."""
    return None if seat.doubt or any(made_anew(topic, seat)) else seat.position


def risk_of(offset: int, end: int) -> tuple[str, int | None]:
    """Return risk, and offsets it concerns, of going on at ``offset`` where the copy ends at ``end``."""
    distance = offset - end
    return "skip" if distance > 0 else "repeat" if distance else "none", abs(distance) or None


def _consequence(topic: SeatedTopic, seat: Seat, seed: SeedOffset) -> tuple[str, int | None, str]:
    """Return risk, offsets it concerns, and what is to be said beside it."""
    source, target = made_anew(topic, seat)
    note = "" if seat.doubt is None else f"; {seat.doubt.message}"
    note += f"; source topic {seat.source.topic} was made anew since it was copied" if source else ""
    note += (
        f"; target topic {seat.target.topic} was made anew, what was copied before is gone" if target else ""
    )
    # Before the progress, which may be an older one that was put back: only lanes can tell.
    if seed.risk is not None:
        return seed.risk, seed.records, note
    if (known := copied_up_to(topic, seat)) is not None:
        return *risk_of(seed.offset, known), note
    # What the old copy holds is of the old source.
    if seat.target_held and (target or not source):
        note += (
            f"; the target's log holds {seat.target_held} offsets, which are kept and were not compared: "
            f"what they hold from source offset {seed.offset} on comes again, what they lack of the offsets "
            "before never comes"
        )
        return "repeat", None, note
    before = seed.offset - seat.start
    return ("skip", before, note) if before else ("none", None, note)


def _effect(risk: str, records: int | None) -> str:
    if risk == "none":
        return "would repeat and skip nothing"
    return f"would {risk} {'an unknown number of' if records is None else records} offsets"


def _copy_gone(flow: str, topic: SeatedTopic) -> Refusal | None:
    """Return why an enrolled topic takes no position: there is nothing that it could stand beside."""
    numbers = topic.copy.partitions if topic.copy else {}
    for seat in topic.seats:
        if seat.target.partition not in numbers:
            whole = StopCode.TARGET_SHRUNK if topic.copy else StopCode.TARGET_MISSING
            message = f"target partition {seat.target} does not exist any more"
            return Refusal(str(seat.source), whole, message, commands.reseed(flow, seat.source))
    return None


def _not_ready(flow: str, topic: SeatedTopic) -> Refusal:
    return Refusal(
        topic.source.name,
        SeedingCode.NOT_READY,
        "its copy cannot be prepared at the moment",
        f"see {commands.command('topics', 'plan', flow)}, then plan again",
    )


def _state_lost(topic: SeatedTopic) -> Refusal:
    # Generations would begin anew, and what the progress and the map say of older ones would seem newer.
    return Refusal(
        topic.source.name,
        SeedingCode.STATE_LOST,
        "the flow has progress for it, but its state knows nothing of it: the state topic was deleted",
        "give the flow a new name and seed that: docs/operations.md says how",
    )


def _nothing_named(seat: Seat, topic: SeatedTopic) -> Refusal:
    whole = (
        f"; {seat.source.topic} is taken in whole, so none of it is seeded" if _is_new(seat, topic) else ""
    )
    return Refusal(
        str(seat.source),
        SeedingCode.NO_OFFSET,
        f"the origin names other partitions of the topic, but not this one{whole}",
        "say where it begins with `--missing earliest` or `--missing latest`, or name it in a file",
    )


def _out_of_range(seat: Seat, seed: SeedOffset) -> Refusal:
    return Refusal(
        str(seat.source),
        PlanningCode.OUT_OF_RANGE,
        f"offset {seed.offset} ({seed.reason}) is not in the source's log, which runs from {seat.start} to "
        f"{seat.end}: what lies outside is gone, or was never there",
        seed.otherwise or f"name an offset from {seat.start} to {seat.end} with `--from file:...`",
    )


def _progress_exists(seat: Seat, seed: SeedOffset, effect: str) -> Refusal:
    position = seat.position or 0
    if seat.doubt is not None:
        return Refusal(
            str(seat.source),
            SeedingCode.PROGRESS_EXISTS,
            f"{seat.doubt.message}: it stands at source offset {position}",
            seed.otherwise or "add `--replace` to write it anew",
        )
    return Refusal(
        str(seat.source),
        SeedingCode.PROGRESS_EXISTS,
        f"the flow has copied it up to source offset {position}; going on at {seed.offset} ({seed.reason}) "
        f"{effect}",
        seed.otherwise or "add `--replace` if that is meant",
    )
