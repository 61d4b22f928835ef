"""Doing what a repair says.

``resume`` asks the running lane. The others write progress, which nobody may do beside a live lane: they act
as a start. A new generation is announced, every lane is fenced, target topics are made whole, the progress
is written in a leader transaction, and the layout stays *not ready* until the flow is started again
(model: Mg). Interrupted anywhere it can be planned and applied again.
"""

from __future__ import annotations

from dataclasses import replace

from onceover.engine import names
from onceover.engine.enroller import wait_for_topics
from onceover.engine.enrolment import Enrolment
from onceover.engine.flowstate import read_flow_state
from onceover.engine.journal import Journal
from onceover.engine.layout import Layout
from onceover.engine.leader import FlowIdentity, Leader, first_progress
from onceover.engine.managed import read_managed
from onceover.engine.repair import Move, Repair
from onceover.engine.requests import request_resume
from onceover.engine.topicapply import TopicApply
from onceover.engine.topicplan import TopicPlan
from onceover.engine.topicsteps import AddPartitions, CreateTopic
from onceover.errors import NeedsOperator, OnceoverError
from onceover.kafka import calls
from onceover.kafka.admin import Admin
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.cluster import Cluster
from onceover.kafka.notes import NoteWriter
from onceover.model import TopicPartition
from onceover.wire.progress import ProgressMeta


def apply(
    identity: FlowIdentity, source: Cluster, target: Cluster, plan: Repair, journal: Journal
) -> int | None:
    """Do what the plan says; may be run again.

    Returns:
        The new generation, None when none was needed.

    Raises:
        Fenced: another start was newer.
        NeedsOperator: the target does not take the topic.
    """
    journal.planned(plan)
    try:
        generation = _write(identity, source, target, plan, journal) if plan.is_start else None
        for partition in plan.again:
            request_resume(target, plan.flow, partition)
    except OnceoverError as error:
        journal.failed(error)
        raise
    journal.done(*plan.changes[len(plan.steps) :])
    return generation


def _write(
    identity: FlowIdentity, source: Cluster, target: Cluster, plan: Repair, journal: Journal
) -> int | None:
    if plan.enrolment is None:
        return None
    leader = Leader(identity, source, target)
    try:
        layout = leader.seize()
        enrolment = _made_whole(target, plan, plan.enrolment, journal)
        anew = [tp.partition for tp, move in plan.moves.items() if move.anew]
        enrolment = replace(enrolment, since={**enrolment.since, **dict.fromkeys(anew, layout.generation)})
        leader.enrol([enrolment], _progress(plan, enrolment, layout))
        return layout.generation
    finally:
        leader.close()


def _made_whole(target: Cluster, plan: Repair, enrolment: Enrolment, journal: Journal) -> Enrolment:
    """Create the target topic, or add its partitions; return the enrolment with the topic's id."""
    if not plan.steps:
        return enrolment
    notes = NoteWriter(target.config, TopicPartition(names.state_topic(plan.flow), names.STATE_OTHERS))
    state = target.retry(lambda: read_flow_state(target, plan.flow))
    try:
        work = TopicApply(Admin(target.config), notes, read_managed(state.others), journal.done)
        work.run(TopicPlan(operation=plan.operation, flow=plan.flow, steps=plan.steps))
    finally:
        notes.close()
    journal.refused(work.refused)
    for refusal in work.refused:
        if refusal.blocks:
            raise NeedsOperator(
                f"the target topic cannot be made whole: {refusal.message}",
                code=refusal.code,
                where=refusal.object,
                resolve=refusal.resolve,
            )
    counts = {
        step.topic: step.to if isinstance(step, AddPartitions) else step.spec.partitions
        for step in plan.steps
        if isinstance(step, AddPartitions | CreateTopic)
    }
    made = wait_for_topics(target, counts)[enrolment.target]
    return replace(enrolment, target_id=made.topic_id)


def _progress(plan: Repair, enrolment: Enrolment, layout: Layout) -> dict[TopicPartition, OffsetToCommit]:
    def offset(move: Move) -> OffsetToCommit:
        meta = ProgressMeta(
            source_topic_id=str(enrolment.source_id),
            target_topic_id=str(enrolment.target_id),
            # What was fetched last before this offset is not known here: nothing to compare with.
            leader_epoch=calls.NO_EPOCH,
            target_end=move.target_end,
            generation=layout.generation,
            instance=(0, 0),
        )
        return first_progress(move.position, meta)

    return {enrolment.target_of(tp): offset(move) for tp, move in plan.moves.items()}
