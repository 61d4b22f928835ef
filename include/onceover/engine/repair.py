"""Resolving a stopped partition: resume, skip to an offset, reseed (DESIGN 5, last paragraphs).

``resume`` asks the running lane. The other two write progress, which nobody may do beside a live lane:
they act as a start. A new generation is announced, every lane is fenced, the progress is written in a
leader transaction, and the layout stays *not ready* until the flow is started again (model: Mg).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from onceover.engine import names
from onceover.engine.enrolment import Enrolment, read_enrolments
from onceover.engine.leader import FlowIdentity, Leader, first_progress, now_ms
from onceover.engine.plan import Change, Plan, Refusal
from onceover.engine.requests import read_layout, request_resume
from onceover.engine.statelog import StateLog
from onceover.engine.stops import Stop
from onceover.errors import NeedsOperator, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition
from onceover.wire.progress import ProgressMeta


@dataclass(frozen=True, kw_only=True)
class Repair(Plan):
    """A plan for one partition, computed from live state.

    ``anew``: the partition was copied from or into a topic that is gone, so its offset map is void.
    """

    source: TopicPartition
    enrolment: Enrolment | None = None
    position: int | None = None
    target_end: int = 0
    anew: bool = False

    @property
    def title(self) -> str:
        """First line of the text."""
        return f"{self.operation} {self.source} of flow {self.flow}"


@dataclass(frozen=True)
class _Situation:
    enrolment: Enrolment
    stop: Stop | None
    position: int | None
    meta: ProgressMeta | None


def plan_resume(flow: str, target: Cluster, source: TopicPartition) -> Repair:
    """Plan to ask the running lane to look at the partition again."""
    situation = _situation(flow, target, source)
    if situation.stop is None:
        return _refusing(
            "resume", flow, source, "NOT_STOPPED", "the partition is not stopped", "nothing to do"
        )
    change = Change("look again", str(source), "stopped", "checked anew", situation.stop.message, "none")
    return Repair(
        operation="resume", flow=flow, source=source, changes=(change,), enrolment=situation.enrolment
    )


def plan_skip(flow: str, source: Cluster, target: Cluster, tp: TopicPartition, offset: int) -> Repair:
    """Plan to go on at ``offset``; offsets in between are left out, or come again when it lies behind."""
    situation = _situation(flow, target, tp)
    start, end = _log(source, tp)
    if not start <= offset <= end:
        return _refusing(
            "skip-to",
            flow,
            tp,
            "OUT_OF_RANGE",
            f"offset {offset} is not in the source's log",
            f"choose one from {start} to {end}",
        )
    old = situation.position
    records = None if old is None else abs(offset - old)
    risk = "repeat" if old is not None and offset < old else "skip"
    change = Change(
        "position", str(tp), old, offset, _reason(situation), "none" if offset == old else risk, records
    )
    return Repair(
        operation="skip-to",
        flow=flow,
        source=tp,
        changes=(change, _restart()),
        enrolment=situation.enrolment,
        position=offset,
        target_end=_target_end(target, situation.enrolment.target_of(tp)),
    )


def plan_reseed(flow: str, source: Cluster, target: Cluster, tp: TopicPartition) -> Repair:
    """Plan to accept the topics as they are now and copy the partition from its start."""
    situation = _situation(flow, target, tp)
    old = situation.enrolment
    source_topic = source.topics([tp.topic]).get(tp.topic)
    target_topic = target.topics([old.target]).get(old.target)
    if source_topic is None or target_topic is None:
        missing = f"source topic {tp.topic}" if source_topic is None else f"target topic {old.target}"
        return _refusing("reseed", flow, tp, "MISSING", f"{missing} does not exist", "create it first")
    if tp.partition not in source_topic.partitions or tp.partition not in target_topic.partitions:
        return _refusing(
            "reseed", flow, tp, "MISSING", f"{tp} does not exist on both sides", "add partitions first"
        )
    start, end = _log(source, tp)
    target_end = _target_end(target, old.target_of(tp))
    starts = {**old.start, tp.partition: start}
    enrolment = replace(
        old,
        source_id=source_topic.topic_id,
        target_id=target_topic.topic_id,
        start={p: offset for p, offset in starts.items() if p in source_topic.partitions},
        at_ms=now_ms(),
    )
    changes = [
        Change("position", str(tp), situation.position, start, _reason(situation), "repeat", end - start),
        _restart(),
    ]
    if target_end:
        changes.insert(
            1,
            Change(
                "target",
                str(old.target_of(tp)),
                f"{target_end} offsets",
                "kept, the copy follows behind them",
                "records that are there already will be there twice unless the topic is emptied first",
                "repeat",
                target_end,
            ),
        )
    return Repair(
        operation="reseed",
        flow=flow,
        source=tp,
        changes=tuple(changes),
        enrolment=enrolment,
        position=start,
        target_end=target_end,
        anew=_copied_between(situation) != (str(enrolment.source_id), str(enrolment.target_id)),
    )


def apply(identity: FlowIdentity, source: Cluster, target: Cluster, plan: Repair) -> int | None:
    """Do what the plan says; may be run again.

    Returns:
        The new generation, None when none was needed.
    """
    if plan.operation == "resume":
        request_resume(target, plan.flow, _target_of(plan))
        return None
    if plan.position is None or plan.enrolment is None:
        raise NeedsOperator("the plan has no position", code="EMPTY_PLAN")
    enrolment = plan.enrolment
    leader = Leader(identity, source, target)
    try:
        layout = leader.seize()
        meta = ProgressMeta(
            source_topic_id=str(enrolment.source_id),
            target_topic_id=str(enrolment.target_id),
            # What was fetched last before this offset is not known here: nothing to compare with.
            leader_epoch=calls.NO_EPOCH,
            target_end=plan.target_end,
            generation=layout.generation,
            instance=(0, 0),
        )
        if plan.anew:
            since = {**enrolment.since, plan.source.partition: layout.generation}
            enrolment = replace(enrolment, since=since)
        leader.enrol([enrolment], {_target_of(plan): first_progress(plan.position, meta)})
        return layout.generation
    finally:
        leader.close()


def _target_of(plan: Repair) -> TopicPartition:
    if plan.enrolment is None:
        raise NeedsOperator("the plan names no enrolled topic", code="EMPTY_PLAN")
    return plan.enrolment.target_of(plan.source)


def _situation(flow: str, target: Cluster, source: TopicPartition) -> _Situation:
    if read_layout(target, flow) is None:
        raise UsageError(f"flow {flow} has never been started on {target.alias}")
    topic = names.state_topic(flow)
    leader, others = StateLog(target, topic, names.STATE_LEADER), StateLog(target, topic, names.STATE_OTHERS)
    try:
        enrolments = read_enrolments(target.retry(leader.catch_up))
        stops = target.retry(others.catch_up)
    finally:
        leader.close()
        others.close()
    for enrolment in enrolments.values():
        if source in enrolment.sources():
            counterpart = enrolment.target_of(source)
            committed = _committed(target, flow, counterpart)
            value = stops.get(names.stop_key(*counterpart))
            return _Situation(
                enrolment,
                None if value is None else Stop.from_json(value),
                None if committed is None else committed.offset,
                None if committed is None else ProgressMeta.decode(committed.metadata),
            )
    raise UsageError(
        f"{source} is not part of flow {flow}",
        expected="an enrolled source partition",
        resolve=f"`onceover status {flow}` lists them",
    )


def _copied_between(situation: _Situation) -> tuple[str, str]:
    """Return the ids of the topics that the partition was copied between until now."""
    meta, enrolment = situation.meta, situation.enrolment
    if meta is None:
        return str(enrolment.source_id), str(enrolment.target_id)
    return meta.source_topic_id, meta.target_topic_id


def _committed(target: Cluster, flow: str, tp: TopicPartition) -> CommittedOffset | None:
    # Beside a live run the progress is pending again and again (error 88), each time for a moment.
    return target.retry(lambda: target.committed(names.progress_group(flow), [tp])).get(tp)


def _log(source: Cluster, tp: TopicPartition) -> tuple[int, int]:
    if tp.topic not in source.topics([tp.topic]):
        raise NeedsOperator(f"source topic {tp.topic} does not exist", code="SOURCE_MISSING", where=str(tp))
    start = source.retry(lambda: source.list_offsets([tp], calls.EARLIEST))[tp]
    return start, source.retry(lambda: source.list_offsets([tp], calls.LATEST))[tp]


def _target_end(target: Cluster, tp: TopicPartition) -> int:
    if tp.topic not in target.topics([tp.topic]):
        raise NeedsOperator(f"target topic {tp.topic} does not exist", code="TARGET_MISSING", where=str(tp))
    return target.retry(lambda: target.list_offsets([tp], calls.LATEST))[tp]


def _reason(situation: _Situation) -> str:
    return situation.stop.message if situation.stop else "asked for; the partition is not stopped"


def _restart() -> Change:
    return Change("flow", "generation", "running or not", "fenced", "start it again afterwards", "none")


def _refusing(operation: str, flow: str, tp: TopicPartition, code: str, message: str, resolve: str) -> Repair:
    refusal = Refusal(str(tp), code, message, resolve)
    return Repair(operation=operation, flow=flow, source=tp, refused=(refusal,))
