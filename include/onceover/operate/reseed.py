"""Planning ``reseed``: accept the topics as they are now and copy a partition from its start.

Invariants: a target topic that is missing, or too small, is made whole by the same plan, so nobody has to
create topics by hand; where the target topic is another one than was enrolled, every partition of it has
lost its copy, and all of them are in the plan: one alone would leave the others with positions (or none)
that speak of records which are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from onceover.clock import now_ms
from onceover.kafka import calls
from onceover.kafka.admin.topicfacts import may_not_read
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.operate.codes import RepairCode
from onceover.operate.repair import (
    RESEED,
    Move,
    Repair,
    Situation,
    committed_of,
    ends_of,
    flow_state,
    log_of,
    refusing,
    situation_of,
    standing_of,
    stops_of,
    taken_back,
    topic_of,
)
from onceover.planning import commands
from onceover.planning.plan import Change, Refusal, restart
from onceover.state.codes import StateCode
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.layout import check_clusters
from onceover.state.records.managed import read_managed
from onceover.state.records.progress import beside, copied_between
from onceover.stops.codes import StopCode
from onceover.topics.changes import AddPartitions, TopicStep
from onceover.topics.plan import TopicPlan, plan_topics
from onceover.topics.refusals import barred_copy
from onceover.topics.scope import Rules
from onceover.topics.view import TopicReader


@dataclass(frozen=True)
class TopicMaking:
    """How target topics are made.

    Args:
        rules: which topics are in, what they are called, how many partitions they have.
        sync_configs: whether a topic that is created gets the source's configuration.
    """

    rules: Rules
    sync_configs: bool = True


@dataclass(frozen=True)
class _Sides:
    source: TopicInfo
    target: TopicInfo | None


def plan_reseed(
    flow: str, source: Cluster, target: Cluster, tp: TopicPartition, making: TopicMaking, since: int = 0
) -> Repair:
    """Plan to accept the topics as they are now and copy the partition from its start.

    Args:
        since: as of ``flow_state``.

    Raises:
        UsageError: the flow was never started, or does not copy the partition.
        NeedsOperator: these are not the flow's clusters.
    """
    state = flow_state(flow, target, since)
    check_clusters(state.layout, source.retry(source.cluster_id), target.cluster_id())
    if (before := _taken_from(state, tp)) is not None:
        return _taken_out(flow, tp, before)
    situation = situation_of(flow, target, state, tp)
    old = situation.enrolment
    here = topic_of(source, tp.topic)
    if here is None:
        return refusing(RESEED, flow, situation, _source_missing(flow, tp))
    if tp.partition not in here.partitions:
        return _take_out(flow, tp, situation, here)
    if target.retry(lambda: may_not_read(target, [old.target])):
        return refusing(RESEED, flow, situation, barred_copy(str(tp), old.target))
    sides = _Sides(here, topic_of(target, old.target))
    topics = _made_whole(flow, source, target, situation, sides, making)
    if topics.refused:
        return refusing(RESEED, flow, situation, *topics.refused)
    is_same = sides.target is not None and sides.target.topic_id == old.target_id
    wanted = [tp] if is_same else [each for each in old.sources() if each.partition in here.partitions]
    return _copied_anew(flow, source, target, situation, sides, wanted, topics.steps)


def _copied_anew(
    flow: str,
    source: Cluster,
    target: Cluster,
    situation: Situation,
    sides: _Sides,
    wanted: list[TopicPartition],
    steps: tuple[TopicStep, ...],
) -> Repair:
    """Return the plan that copies partitions again from where the source's log begins now.

    Args:
        wanted: the partitions; ``steps`` what makes or extends the target topic before.
    """
    old, logs = situation.enrolment, log_of(source, wanted)
    numbers = frozenset() if sides.target is None else sides.target.partitions.keys()
    existing = [old.target_of(each) for each in wanted if each.partition in numbers]
    held = ends_of(target, existing)
    # What a running copy has in hand may be there, too, by the time that it is fenced.
    kept = ends_of(target, existing, calls.READ_UNCOMMITTED)
    committed = committed_of(target, flow, [old.target_of(each) for each in wanted])
    changes = [step.change for step in steps]
    for each in wanted:
        counterpart = old.target_of(each)
        at = committed.get(counterpart)
        changes += _changes(each, None if at is None else at.offset, old, logs[each], situation.reason)
        if kept.get(counterpart):
            changes.append(_kept(counterpart, kept[counterpart]))
    start = _starts(old, sides.source, {each: start for each, (start, _) in logs.items()})
    target_id = old.target_id if sides.target is None else sides.target.topic_id
    enrolment = replace(old, start=start, at_ms=now_ms()).between(
        sides.source.topic_id, target_id, [each.partition for each in wanted]
    )

    def moved(each: TopicPartition) -> Move:
        counterpart = old.target_of(each)
        copied = copied_between(old, each.partition, beside(committed.get(counterpart)).meta)
        anew = sides.target is None or copied != enrolment.ids
        return Move(logs[each][0], held.get(counterpart, 0), anew)

    return Repair(
        operation=RESEED,
        flow=flow,
        sources=tuple(wanted),
        changes=(*changes, *taken_back(old), restart()),
        enrolment=enrolment,
        moves={each: moved(each) for each in wanted},
        steps=steps,
        standing=standing_of(stops_of(situation.state), old, wanted, sides.source.topic_id),
    )


def _changes(
    tp: TopicPartition, position: int | None, old: Enrolment, log: tuple[int, int], reason: str
) -> Iterable[Change]:
    start, end = log
    yield Change("position", str(tp), position, start, reason, "repeat", end - start)
    gone = start - old.start[tp.partition]
    if gone > 0 and position is not None:
        why = "the source has deleted them since they were copied; what the target lost of them is lost"
        yield Change("not copied again", str(tp), old.start[tp.partition], start, why, "skip", gone)


def _kept(target: TopicPartition, end: int) -> Change:
    why = "records that are there already will be there twice unless the topic is deleted first"
    return Change("target", str(target), f"{end} offsets", "kept, the copy follows them", why, "repeat", end)


def _take_out(flow: str, tp: TopicPartition, situation: Situation, source: TopicInfo) -> Repair:
    """Return the plan for a partition that the source topic does not have any more."""
    old = situation.enrolment
    why = f"{situation.reason}; {tp.topic} has {len(source.partitions)} partitions now"
    change = Change("partition", str(tp), "enrolled", "taken out of the flow", why, "none")
    return Repair(
        operation=RESEED,
        flow=flow,
        sources=(tp,),
        changes=(change, restart()),
        enrolment=replace(old, start={p: at for p, at in old.start.items() if p != tp.partition}),
        standing=standing_of(stops_of(situation.state), old, [tp], source.topic_id),
    )


def _taken_from(state: FlowState, tp: TopicPartition) -> Enrolment | None:
    """Return the record of a topic that a reseed has taken a partition out of; None where none has."""
    records = (e for e in state.enrolled.values() if e.source == tp.topic)
    return next((e for e in records if tp.partition in e.changed and tp.partition not in e.start), None)


def _taken_out(flow: str, tp: TopicPartition, record: Enrolment) -> Repair:
    """Return the plan for a partition that is taken out already: nothing is left to do."""
    why = "an earlier reseed has taken it out of the flow"
    fix = "nothing to do; where the source has it again, a start of the flow takes it in"
    return Repair(
        operation=RESEED,
        flow=flow,
        sources=(tp,),
        refused=(Refusal(str(tp), StateCode.NOT_ENROLLED, why, fix, blocks=False),),
        standing=standing_of({}, record, [tp], record.source_id),
    )


def _made_whole(
    flow: str, source: Cluster, target: Cluster, situation: Situation, sides: _Sides, making: TopicMaking
) -> TopicPlan:
    """Return what creating the target topic, or giving it enough partitions, takes."""
    old = situation.enrolment
    if sides.target is not None:
        there = len(sides.target.partitions)
        needed = making.rules.target_partitions(len(sides.source.partitions))
        more = AddPartitions(old.source, old.target, there, needed)
        return TopicPlan(operation=RESEED, flow=flow, steps=(more,) if there < needed else ())
    reader = TopicReader(flow, source, target)
    try:
        view = source.retry(
            lambda: reader.read(
                making.rules,
                # Planned as a new topic: what is enrolled under its name is gone.
                {name: each for name, each in situation.state.enrolled.items() if name != old.target},
                read_managed(situation.state.owned),
                sync_configs=making.sync_configs,
            )
        )
    finally:
        reader.close()
    planned = plan_topics(view)
    steps = tuple(step for step in planned.steps if step.source == old.source and step.topic == old.target)
    refused = tuple(r for r in planned.refused if r.object == old.source and r.blocks)
    if not steps and not refused:
        refused = (_out_of_scope(old),)
    return TopicPlan(operation=RESEED, flow=flow, steps=steps, refused=refused)


def _starts(old: Enrolment, source: TopicInfo, new: Mapping[TopicPartition, int]) -> dict[int, int]:
    starts = {**old.start, **{tp.partition: offset for tp, offset in new.items()}}
    return {p: offset for p, offset in starts.items() if p in source.partitions}


def _source_missing(flow: str, tp: TopicPartition) -> Refusal:
    return Refusal(
        str(tp),
        StopCode.SOURCE_MISSING,
        f"source topic {tp.topic} does not exist, so there is nothing to copy",
        f"create it on the source, then {commands.reseed(flow, tp)}; or add {tp.topic} to topics.exclude",
    )


def _out_of_scope(old: Enrolment) -> Refusal:
    return Refusal(
        old.source,
        RepairCode.NOT_IN_SCOPE,
        f"target topic {old.target} does not exist, and the flow file does not ask for it any more",
        "nothing to do; put the topic back into topics.include to have it copied again",
    )
