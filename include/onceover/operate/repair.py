"""Planning the way out for stopped partitions: resume, skip to an offset (docs/operations.md).

``reseed`` has a module of its own, and so has doing what a plan says (``repairapply``). Plans are computed
from live state and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from onceover.clock import now_ms
from onceover.errors import NeedsOperator, OnceoverError, UsageError
from onceover.kafka import calls
from onceover.kafka.admin.topicfacts import may_not_read
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.operate.codes import RepairCode
from onceover.planning import commands
from onceover.planning.approval import ApprovablePlan, Approval, Item, ObjectState, items_of
from onceover.planning.codes import PlanningCode
from onceover.planning.plan import Change, Refusal, restart
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.read import FlowState, read_flow_state
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.layout import check_clusters, never_started
from onceover.state.records.progress import beside, copied_between
from onceover.stops.codes import StopCode
from onceover.stops.record import Stop, readable_stop, stopped_in
from onceover.topics.changes import TopicStep
from onceover.topics.refusals import barred_copy
from onceover.wire.progress import ProgressMeta

RESUME = "resume"
SKIP = "skip-to"
RESEED = "reseed"
# What a change is of that takes a promoted topic back from its clients.
PROMOTION: Final = "promotion"
_NOT_THERE: Final = {"source": StopCode.SOURCE_MISSING, "target": StopCode.TARGET_MISSING}


@dataclass(frozen=True)
class RepairRequest:
    """What is to be done.

    Args:
        action: ``resume``, ``skip-to`` or ``reseed``.
        partition: of the source; None with ``resume`` for every stopped partition of the flow.
        offset: with ``skip-to``, the next source offset to copy.
    """

    action: str
    partition: TopicPartition | None = None
    offset: int | None = None

    def check(self) -> None:
        """Refuse what cannot be meant, before a cluster is asked.

        Raises:
            UsageError: a partition or an offset is missing, or one is given that means nothing.
        """
        if self.action not in (RESUME, SKIP, RESEED):
            raise UsageError(f"there is no action {self.action!r}", expected=f"{RESUME}, {SKIP} or {RESEED}")
        if self.partition is None and self.action != RESUME:
            raise UsageError(f"{self.action} needs a partition", expected="a source topic and its partition")
        if self.action != SKIP:
            if self.offset is not None:
                raise UsageError(f"{self.action} takes no offset", seen=str(self.offset))
        elif self.offset is None or self.offset < 0:
            seen = "none" if self.offset is None else str(self.offset)
            raise UsageError("skip-to needs an offset", expected="the next source offset to copy", seen=seen)


@dataclass(frozen=True)
class Move:
    """Progress to write for a partition.

    Args:
        position: next source offset to copy.
        target_end: end of the target's log beside it.
        anew: the partition was copied from or into a topic that is gone, so its offset map is void.
    """

    position: int
    target_end: int = 0
    anew: bool = False


@dataclass(frozen=True, kw_only=True)
class Repair(ApprovablePlan):
    """A plan for partitions of one flow, computed from live state.

    Args:
        sources: what was asked for.
        enrolment: the topic's record as it is to be; of a target topic that ``steps`` create, without its id.
        moves: progress to write, by source partition.
        steps: the target topic to create or to extend before.
        again: stops that their lane is to look at again, by target partition.
        standing: how the partitions stand, by the names of source and target.
    """

    sources: tuple[TopicPartition, ...]
    enrolment: Enrolment | None = None
    moves: Mapping[TopicPartition, Move] = field(default_factory=dict)
    steps: tuple[TopicStep, ...] = ()
    again: Mapping[TopicPartition, Stop] = field(default_factory=dict)
    standing: Mapping[str, ObjectState] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """First line of the text."""
        return f"{self.operation} {', '.join(map(str, self.sources)) or 'nothing'} of flow {self.flow}"

    def is_done_under(self, approved: Approval) -> bool:
        """Tell whether all that was asked for was written under an approval, whatever would be done now."""
        standing = [self.standing.get(str(tp)) for tp in self.sources]
        return bool(standing) and all(each is not None and approved.has_changed(each) for each in standing)

    @property
    def is_start(self) -> bool:
        """True where applying it acts as a start of the flow: a running copy is fenced."""
        return self.enrolment is not None

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        return {**super().counts, "partitions": len(self.sources)}

    @property
    def items(self) -> tuple[Item, ...]:
        """What a person approves: which objects are changed, at which risk, and where a skip ends."""
        return items_of(self.changes, self.standing, exact=self.operation == SKIP)


@dataclass(frozen=True)
class Situation:
    """A partition as it stands, with everything that its flow's state says.

    Args:
        position: committed next source offset, None without progress; ``meta`` is what stands beside it,
            ``doubt`` why nobody may rely on it.
    """

    state: FlowState
    enrolment: Enrolment
    partition: int
    stop: Stop | None
    position: int | None
    meta: ProgressMeta | None
    doubt: OnceoverError | None

    @property
    def reason(self) -> str:
        """Why something is done about the partition."""
        if self.stop is not None:
            return self.stop.message
        unread = self.enrolment.target_of(self.source) in stopped_in(self.state.others)
        return (
            f"asked for; {'why it is stopped cannot be read' if unread else 'the partition is not stopped'}"
        )

    @property
    def source(self) -> TopicPartition:
        """The partition, of the source."""
        return TopicPartition(self.enrolment.source, self.partition)

    @property
    def copied_between(self) -> tuple[str, str]:
        """The ids of the topics that the partition was copied between until now."""
        return copied_between(self.enrolment, self.partition, self.meta)

    @property
    def standing(self) -> dict[str, ObjectState]:
        """How the partition stands, between the topics that were accepted last."""
        stops = stops_of(self.state)
        return standing_of(stops, self.enrolment, [self.source], self.enrolment.source_id)


def plan_resume(flow: str, target: Cluster, sources: Sequence[TopicPartition] = ()) -> Repair:
    """Plan to ask the running lanes to look at stopped partitions again.

    Args:
        sources: which; none for every stopped partition of the flow, of which a new flow has none.

    Raises:
        UsageError: the flow was never started, or does not copy one of them.
    """
    state = flow_state(flow, target) if sources else target.retry(lambda: read_flow_state(target, flow))
    stops = stops_of(state)
    # Of all of them, those that nobody can read are refused, too: who asks for all means these as well.
    wanted = tuple(sources) or tuple(sorted(stops.keys() | _unreadable(state)))
    asked = _asked(state)
    changes, again, refused = [], {}, []
    standing: dict[str, ObjectState] = {}
    for tp in wanted:
        enrolment = enrolment_of(flow, state, tp)
        stop = stops.get(tp)
        if stop is None:
            refused.append(_not_to_resume(flow, state, tp, enrolment.target_of(tp)))
            continue
        changes.append(Change("look again", str(tp), "stopped", asked, stop.message, "none"))
        again[enrolment.target_of(tp)] = stop
        standing |= standing_of(stops, enrolment, [tp], enrolment.source_id)
    return Repair(
        operation=RESUME,
        flow=flow,
        sources=wanted,
        changes=tuple(changes),
        refused=tuple(refused),
        again=again,
        standing=standing,
    )


def _unreadable(state: FlowState) -> set[TopicPartition]:
    """Return the partitions, of topics that are in the filter, that are stopped and nobody can read why."""
    stopped = stopped_in(state.others)
    active = [enrolment for enrolment in state.enrolled.values() if enrolment.active]
    return {
        tp
        for enrolment in active
        for tp in enrolment.sources()
        if (there := enrolment.target_of(tp)) in stopped and readable_stop(state.others, there) is None
    }


def _asked(state: FlowState) -> str:
    """Return what becomes of a request to look again."""
    try:
        lives = state.run(now_ms()).lives
    except NeedsOperator:
        # Nobody can read when it was seen last. Asked it may be all the same.
        return "checked anew, if the flow runs"
    return "checked anew" if lives else "checked anew when the flow is started"


def _not_to_resume(flow: str, state: FlowState, tp: TopicPartition, target: TopicPartition) -> Refusal:
    if target in stopped_in(state.others):
        return Refusal(
            str(tp),
            StateCode.STATE_UNREADABLE,
            f"what stands under {names.stop_key(*target)} in the flow's state is no stop, so nobody can be "
            "asked to look at it again",
            f"find out who else writes to {names.state_topic(flow)}; {commands.replicate(flow)} starts the "
            "flow anew, which looks at the partition again",
        )
    message, fix = "the partition is not stopped", f"nothing to do; {_status(flow)} shows how it is"
    return Refusal(str(tp), RepairCode.NOT_STOPPED, message, fix)


def plan_skip(
    flow: str, source: Cluster, target: Cluster, tp: TopicPartition, offset: int, since: int = 0
) -> Repair:
    """Plan to go on at ``offset``; offsets in between are left out, or come again when it lies behind.

    Args:
        since: as of ``flow_state``.

    Raises:
        UsageError: the flow was never started, or does not copy the partition.
        NeedsOperator: these are not the flow's clusters.
    """
    situation = situation_of(flow, target, flow_state(flow, target, since), tp)
    check_clusters(situation.state.layout, source.retry(source.cluster_id), target.cluster_id())
    enrolment = situation.enrolment
    here = topic_of(source, tp.topic)
    missing = _missing("source", flow, tp, tp, here)
    there = enrolment.target_of(tp)
    missing = missing or _missing("target", flow, tp, there, topic_of(target, there.topic))
    if here is None or missing is not None:
        return refusing(SKIP, flow, situation, *([missing] if missing else []))
    if target.retry(lambda: may_not_read(target, [there.topic])):
        return refusing(SKIP, flow, situation, barred_copy(str(tp), there.topic))
    # To the high watermark, by which a stop says where the source has lost records, too.
    start, end = log_of(source, [tp], calls.READ_UNCOMMITTED)[tp]
    if not start <= offset <= end:
        message = f"offset {offset} is not in the source's log"
        fix = f"choose an offset from {start} to {end}"
        return refusing(SKIP, flow, situation, Refusal(str(tp), PlanningCode.OUT_OF_RANGE, message, fix))
    old = situation.position
    # Where it was put by somebody else says nothing about what was copied; an offset of a topic that is gone
    # says nothing about this one, of which nothing was.
    of_another = situation.copied_between[0] != str(here.topic_id)
    known = start if of_another else None if situation.doubt else old
    distance = None if known is None else abs(offset - known)
    risk = "none" if offset == known else "repeat" if known is not None and offset < known else "skip"
    change = Change("position", str(tp), old, offset, situation.reason, risk, distance)
    counterpart = enrolment.target_of(tp)
    end = ends_of(target, [counterpart])[counterpart]
    anew = situation.copied_between != enrolment.ids
    return Repair(
        operation=SKIP,
        flow=flow,
        sources=(tp,),
        changes=(change, *taken_back(enrolment), restart()),
        enrolment=enrolment.between(enrolment.source_id, enrolment.target_id, [tp.partition]),
        moves={tp: Move(offset, end, anew)},
        standing=standing_of(stops_of(situation.state), enrolment, [tp], here.topic_id),
    )


# ---- what both kinds of plans say, and read


def taken_back(enrolment: Enrolment) -> list[Change]:
    """Return what placing partitions of a topic does that a switchover has promoted: nothing else says it."""
    if enrolment.promoted is None or not enrolment.is_promoted:
        return []
    why = (
        f"switchover {enrolment.promoted.drill} has given it to clients: once each partition is placed by "
        "hand the flow writes to it again, behind what they have written"
    )
    return [Change(PROMOTION, enrolment.target, "clients'", "taken back", why)]


def flow_state(flow: str, target: Cluster, since: int = 0) -> FlowState:
    """Return the flow's state.

    Args:
        since: the generation that the caller has begun, as of ``read_flow_state``.

    Raises:
        UsageError: the flow was never started.
    """
    state = target.retry(lambda: read_flow_state(target, flow, since))
    if state.layout is None:
        raise never_started(flow, target.alias)
    return state


def situation_of(flow: str, target: Cluster, state: FlowState, tp: TopicPartition) -> Situation:
    """Return how a source partition stands, of a flow whose state was read.

    Raises:
        UsageError: the flow does not copy it.
    """
    enrolment = enrolment_of(flow, state, tp)
    counterpart = enrolment.target_of(tp)
    committed = committed_of(target, flow, [counterpart]).get(counterpart)
    return Situation(
        state,
        enrolment,
        tp.partition,
        stops_of(state).get(tp),
        None if committed is None else committed.offset,
        *beside(committed),
    )


def enrolment_of(flow: str, state: FlowState, tp: TopicPartition) -> Enrolment:
    """Return the record of the topic that a source partition belongs to.

    Raises:
        UsageError: the flow does not copy it.
    """
    for enrolment in state.enrolled.values():
        if tp in enrolment.sources():
            return enrolment
    raise UsageError(
        f"{tp} is not part of flow {flow}",
        code=StateCode.NOT_ENROLLED,
        expected="a source partition that the flow copies",
        resolve=f"{_status(flow)} lists them",
    )


def committed_of(
    target: Cluster, flow: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the progress of target partitions; those without are left out."""
    # Beside a live run the progress is pending again and again (error 88), each time for a moment.
    return dict(target.retry(lambda: target.committed(names.progress_group(flow), list(partitions))))


def log_of(
    source: Cluster, partitions: Sequence[TopicPartition], isolation: int = calls.READ_COMMITTED
) -> dict[TopicPartition, tuple[int, int]]:
    """Return where the logs of existing source partitions begin and end."""
    starts = source.retry(lambda: source.list_offsets(partitions, calls.EARLIEST))
    ends = source.retry(lambda: source.list_offsets(partitions, calls.LATEST, isolation))
    return {tp: (starts[tp], ends[tp]) for tp in partitions}


def topic_of(cluster: Cluster, name: str) -> TopicInfo | None:
    """Return a topic as it is now, None when it does not exist."""
    return cluster.retry(lambda: cluster.topics([name])).get(name)


def ends_of(
    target: Cluster, partitions: Sequence[TopicPartition], isolation: int = calls.READ_COMMITTED
) -> dict[TopicPartition, int]:
    """Return the ends of existing target partitions."""
    return dict(target.retry(lambda: target.list_offsets(partitions, calls.LATEST, isolation)))


def refusing(operation: str, flow: str, situation: Situation, *refusals: Refusal) -> Repair:
    """Return a plan that does nothing, and why."""
    sources, standing = (situation.source,), situation.standing
    return Repair(operation=operation, flow=flow, sources=sources, refused=refusals, standing=standing)


def _missing(
    side: str, flow: str, tp: TopicPartition, one: TopicPartition, info: TopicInfo | None
) -> Refusal | None:
    """Return why a partition cannot go on where it is: one of its sides is not there."""
    if info is not None and one.partition in info.partitions:
        return None
    what = f"{side} topic {one.topic}" if info is None else f"{side} partition {one}"
    return Refusal(str(tp), _NOT_THERE[side], f"{what} does not exist", commands.reseed(flow, tp))


def stops_of(state: FlowState) -> dict[TopicPartition, Stop]:
    """Return the stopped partitions of topics that are in the filter, by source partition.

    Without those whose stop cannot be read: they are no concern of the others.
    """
    found = {}
    for enrolment in state.enrolled.values():
        for tp in enrolment.sources() if enrolment.active else ():
            stop = readable_stop(state.others, enrolment.target_of(tp))
            if stop is not None:
                found[tp] = stop
    return found


def standing_of(
    stops: Mapping[TopicPartition, Stop],
    enrolment: Enrolment | None,
    sources: Iterable[TopicPartition],
    source_id: UUID,
) -> dict[str, ObjectState]:
    """Return how partitions of a topic stand, for what is approved about them.

    Args:
        stops: of the flow.
        enrolment: the topic's record, None while there is none.
        source_id: of the source topic as it is now.
    """
    found: dict[str, ObjectState] = {}
    for tp in sources:
        stop = stops.get(tp)
        told = f"{stop.code if stop else 'not stopped'}, source topic {source_id}"
        changed = "" if enrolment is None else enrolment.changed.get(tp.partition, "")
        found[str(tp)] = ObjectState(told, changed)
        if enrolment is not None:
            found[str(enrolment.target_of(tp))] = found[str(tp)]
    return found


def _status(flow: str) -> str:
    return commands.command("status", flow)
