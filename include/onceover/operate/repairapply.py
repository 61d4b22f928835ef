"""Doing what a repair says.

``resume`` asks the running lane. The others write progress, which nobody may do beside a live lane: they act
as a start. A new generation is announced and every lane is fenced, so nobody copies or enrols any more; the
repair is planned again from what stands still now, and goes no further where that is another one than was
shown; target topics are made whole, the progress is written in a leader transaction, and the layout stays
*not ready* until the flow is started again (``PROGRESS_IS_THE_LANES``). Interrupted anywhere it can be
planned and applied again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from onceover.kafka.admin.topics import await_leaders
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.ports import Cluster
from onceover.lead.leader import FlowIdentity, Leader
from onceover.model import TopicPartition
from onceover.operate.repair import Repair
from onceover.planning import commands
from onceover.planning.anew import agreed_anew
from onceover.planning.approval import Approval
from onceover.planning.journal import Journal, OpenJournal
from onceover.planning.operation import Caller
from onceover.planning.plan import Refusal
from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.state.records.layout import Layout
from onceover.state.records.progress import first_progress
from onceover.stops.record import stopped_in
from onceover.stops.requests import request_resume
from onceover.topics.changes import AddPartitions, CreateTopic
from onceover.topics.making import make_targets
from onceover.topics.plan import TopicPlan


@dataclass(frozen=True)
class Repaired:
    """What was done.

    Args:
        plan: the last plan.
        generation: announced for it; None where none was needed.
        earlier: nothing is done now: an earlier try under the same approval has done it all.
    """

    plan: Repair
    generation: int | None
    earlier: bool = False

    @property
    def exit_code(self) -> int:
        """3 while something is refused."""
        return self.plan.exit_code

    @property
    def waiting(self) -> tuple[Refusal, ...]:
        """What is refused: nothing was done then."""
        return self.plan.refused

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        partitions = len(self.plan.sources)
        operation, flow = self.plan.operation, self.plan.flow
        return {
            "flow": flow,
            "operation": operation,
            "partitions": partitions,
            "generation": self.generation,
        }

    def document(self) -> dict[str, Any]:
        """Return the plan, and what became of it."""
        document = self.plan.document()
        if not self.earlier and (self.plan.refused or not self.plan.changes):
            return document
        return {**document, "applied": True, "generation": self.generation}

    def describe(self) -> str:
        """Return it as text; the plan was shown before."""
        if self.earlier:
            return "done already, by an earlier try of what was approved; nothing was changed now"
        if self.plan.refused or not self.plan.changes:
            return "nothing was changed"
        text = "done"
        if self.plan.is_start:
            text += f"; start the flow again: {commands.replicate(self.plan.flow)}"
        return text


@dataclass(frozen=True)
class Repairer:
    """Repairs partitions of one flow. The clusters belong to the caller.

    Args:
        identity: name, lanes and hash of the flow file.
        source: source cluster; ``target`` likewise.
        planning: computes the plan from what is there now; given a generation, from nothing of before it.
        journal: opens what everything is written down in.
    """

    identity: FlowIdentity
    source: Cluster
    target: Cluster
    planning: Callable[[int], Repair]
    journal: OpenJournal

    def plan(self) -> Repair:
        """Return what would be done now, as ``planning.operation`` has it."""
        return self.planning(0)

    def apply(self, caller: Caller, approval: Approval | None = None) -> Repaired:
        """Do what a plan computed now says, as ``planning.operation`` has it.

        Nothing is done where something is refused. The plan is announced again if it is another one by the
        time that nobody copies any more.
        """
        first = self.plan()
        if approval is not None and first.is_done_under(approval):
            # What speaks against it now came behind it.
            first = replace(first, refused=())
            caller.announce(first)
            return Repaired(first, None, earlier=True)
        caller.announce(first)
        if first.refused or not first.changes:
            return Repaired(first, None)
        approved = approval or Approval.of(first.items)
        approved.check(first.items, first.title)
        with self.journal(approval) as journal, journal.applying(first):
            done = self._do(first, approved, journal, caller)
            journal.done(*done.plan.changes[len(done.plan.steps) :])
        return done

    def _do(self, first: Repair, approved: Approval, journal: Journal, caller: Caller) -> Repaired:
        done = self._seize(first, approved, journal, caller) if first.is_start else Repaired(first, None)
        for partition, stop in done.plan.again.items():
            request_resume(self.target, done.plan.flow, partition, stop)
        return done

    def _seize(self, first: Repair, approved: Approval, journal: Journal, caller: Caller) -> Repaired:
        with closing(Leader(self.identity, self.source, self.target)) as leader:
            layout = leader.seize()
            # Until now a running copy, or another repair, has written to what is written below.
            now = self.planning(layout.generation)
            plan = agreed_anew(first, now, approved, journal, caller, whole=True)
            self._write(leader, layout, plan, approved, journal)
            return Repaired(plan, layout.generation)

    def _write(
        self, leader: Leader, layout: Layout, plan: Repair, approved: Approval, journal: Journal
    ) -> None:
        if plan.enrolment is None:
            return
        enrolment = _made_whole(self.target, plan, plan.enrolment, journal)
        anew = [tp.partition for tp, move in plan.moves.items() if move.anew]
        written = [tp.partition for tp in plan.sources]
        placed = {
            tp.partition: PlacedProgress(layout.generation, move.position, move.target_end)
            for tp, move in plan.moves.items()
        }
        enrolment = replace(
            enrolment,
            placed={**enrolment.placed, **placed},
            begun=enrolment.begun_with(placed, anew, enrolment.start),
            since={**enrolment.since, **dict.fromkeys(anew, layout.generation)},
            changed={**enrolment.changed, **dict.fromkeys(written, approved.id)},
        )
        state = self.target.retry(lambda: read_flow_state(self.target, plan.flow, layout.generation))
        # What is written here is what the stop asked for; shown on, it would be asked for again.
        stopped = stopped_in(state.others)
        over = [target for tp in plan.sources if (target := enrolment.target_of(tp)) in stopped]
        leader.enrol([enrolment], _progress(plan, enrolment, layout), over)


def _made_whole(target: Cluster, plan: Repair, enrolment: Enrolment, journal: Journal) -> Enrolment:
    """Create the target topic, or add its partitions; return the enrolment with the topic's id."""
    if not plan.steps:
        return enrolment
    topic_plan = TopicPlan(operation=plan.operation, flow=plan.flow, steps=plan.steps)
    make_targets(target, plan.flow, topic_plan, journal)
    counts = {
        step.topic: step.to if isinstance(step, AddPartitions) else step.spec.partitions
        for step in plan.steps
        if isinstance(step, AddPartitions | CreateTopic)
    }
    made = await_leaders(target, counts)[enrolment.target]
    return replace(enrolment, target_id=made.topic_id)


def _progress(plan: Repair, enrolment: Enrolment, layout: Layout) -> dict[TopicPartition, OffsetToCommit]:
    return {
        enrolment.target_of(tp): first_progress(enrolment, move.position, layout.generation, move.target_end)
        for tp, move in plan.moves.items()
    }
