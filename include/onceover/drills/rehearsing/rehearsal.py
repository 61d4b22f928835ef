"""A rehearsal as an operation: planned, run, told."""

from __future__ import annotations

from collections.abc import Callable, Collection

from onceover.clock import now_ms
from onceover.drills.about import DrillAbout
from onceover.drills.course import DrillStep, StepResult
from onceover.drills.journal import DrillJournal
from onceover.drills.looks.rpo import Loss, Objectives
from onceover.drills.outcome import DrillOutcome
from onceover.drills.rehearsing.choice import (
    RehearsalPlan,
    RehearsalRequest,
    changes_of,
    chosen_groups,
    chosen_topics,
)
from onceover.drills.rehearsing.course import LOOK, course_of
from onceover.drills.rehearsing.steps import RehearsalParts, RehearsalSteps
from onceover.drills.running import DrillRunner, changed, known, new_drill, started
from onceover.kafka.groups.admin import GroupAdmin
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller


class RehearsalOutcome(DrillOutcome):
    """What a rehearsal came to."""

    @property
    def mode(self) -> str:
        """Which kind of drill it is."""
        return "rehearsal"

    @property
    def rto_steps(self) -> tuple[str, ...]:
        """What a switchover would have its clients wait for."""
        return "drain", "place", "promote", "verify"

    @property
    def waited(self) -> str:
        """Nobody has: it was rehearsed."""
        return "clients would have waited"

    @property
    def loss(self) -> Loss | None:
        """What a failover without warning would have lost when it began."""
        look = self.evidence_of(LOOK)
        return None if look is None else Loss.of(look["losses"])

    @property
    def lost(self) -> str:
        """Nothing was: it was rehearsed."""
        return "a failover without warning would have lost"


class Rehearsal:
    """Plans and runs one. Not thread-safe.

    Args:
        parts: what it is made of.
        request: what was asked for.
        selects: tells whether the flow moves a group.
        journal: of the flow's drills.
        report: hears of the outcome whenever it is another one, from before the first step on.
        objectives: the flow's.
        about: who, where, of what.
    """

    def __init__(
        self,
        parts: RehearsalParts,
        request: RehearsalRequest,
        selects: Callable[[str], bool],
        journal: DrillJournal,
        report: Callable[[DrillOutcome], None],
        objectives: Objectives,
        about: DrillAbout,
    ) -> None:
        self._parts, self._request, self._selects = parts, request, selects
        self._journal, self._report, self._objectives, self._about = journal, report, objectives, about

    def plan(self) -> RehearsalPlan:
        """Return what would be done now. Changes nothing.

        Raises:
            UsageError: NOTHING_CHOSEN.
            Retriable: a cluster is away.
        """
        return self._planned("plan")[0]

    def apply(self, caller: Caller, approval: Approval | None = None) -> RehearsalOutcome:
        """Rehearse, as ``planning.operation`` has it; nothing of it needs an approval.

        Raises:
            NeedsOperator: DRILL_RUNS, another drill of the flow is running.
            Others as ``plan``; what a step meets is told in the outcome.
        """
        drill = new_drill()
        plan, steps, course = self._planned(drill)
        caller.announce(plan)
        parts = self._parts
        ids = parts.source.retry(parts.source.cluster_id), parts.target.retry(parts.target.cluster_id)
        outcome = RehearsalOutcome(
            plan,
            drill,
            [StepResult(step.name, step.title, step.deadline_s) for step in course],
            (),
            self._objectives,
            now_ms(),
            known(self._about, ids, self._journal, parts.flow),
        )
        runner = DrillRunner(self._journal, self._report)
        return runner.run(
            outcome, course, lambda: steps.findings, steps.close, caller, lambda: self._check_again(plan)
        )

    def _check_again(self, plan: RehearsalPlan) -> None:
        """Ask again, with the journal ours, whether the flow still copies what was chosen.

        Raises:
            NeedsOperator: PLAN_CHANGED.
        """
        state, _ = started(self._parts.target, plan.flow)
        active = {each.source for each in state.enrolled.values() if each.active}
        if others := sorted(set(plan.topics) - active):
            raise changed(plan.flow, f"the flow has left topics, or promoted them: {', '.join(others[:3])}")

    def _planned(self, drill: str) -> tuple[RehearsalPlan, RehearsalSteps, tuple[DrillStep, ...]]:
        parts = self._parts
        state, _ = started(parts.target, parts.flow)
        topics = chosen_topics(self._request, state.enrolled.values())
        groups = self._groups(topics)
        steps = RehearsalSteps(
            parts, self._request, drill, topics, groups, lambda: self._journal.check(drill)
        )
        course = course_of(steps)
        plan = RehearsalPlan(
            operation="rehearsal",
            flow=parts.flow,
            changes=changes_of(
                parts.flow, parts.source.alias, parts.target.alias, topics, groups, self._request.canaries
            ),
            topics=topics,
            groups=groups,
            steps=course,
            sample=self._request.sample,
        )
        return plan, steps, course

    def _groups(self, topics: Collection[str]) -> tuple[str, ...]:
        """Return the groups to put in place, as far as brokers answer."""
        admin = GroupAdmin(self._parts.source)
        listing = admin.groups()
        each = admin.each_committed(group for group in listing.groups if self._selects(group))
        read = {group: {tp.topic for tp in positions} for group, positions in each.found.items()}
        return chosen_groups(self._request, read, topics, each.failed, listing.unheard)
