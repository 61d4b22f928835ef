"""A rehearsal as an operation: planned, run, told; and what it came to.

Invariant: a rehearsal that says PASS has seen everything that it names: a step that was not run, or whose
evidence is missing, makes none.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from onceover.clock import now_ms
from onceover.drills import chain as chains
from onceover.drills.about import EARLIER, DrillAbout
from onceover.drills.choice import (
    RehearsalPlan,
    RehearsalRequest,
    changes_of,
    chosen_groups,
    chosen_topics,
)
from onceover.drills.codes import DrillCode
from onceover.drills.course import CourseWatch, DrillStep, StepResult, StepState, run_course
from onceover.drills.history import DrillHistory
from onceover.drills.journal import DrillJournal
from onceover.drills.rehearsalcourse import course_of
from onceover.drills.rehearsalsteps import RehearsalParts, RehearsalSteps
from onceover.errors import Fenced, NeedsOperator, OnceoverError, UsageError, unusable_path
from onceover.kafka.cluster import Cluster
from onceover.kafka.groups.admin import GroupAdmin
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller
from onceover.planning.plan import Refusal
from onceover.shown import lined
from onceover.state.codes import StateCode
from onceover.state.read import read_flow_state

PASSED: Final = "PASS"
FAILED: Final = "FAIL"
# What a switchover would have its clients wait for, among the steps of a rehearsal.
RTO_STEPS: Final = ("drain", "place", "promote", "verify")
_REMOVE: Final = "remove"
# Of a plan's topics, in the journal; the report has them all.
_NAMED: Final = 100


@dataclass(frozen=True)
class RehearsalOutcome:
    """What a rehearsal came to.

    Args:
        plan: what was rehearsed.
        drill: its id.
        results: of its steps.
        findings: code and text of what somebody should look at, and that does not fail it.
        rto_ms: the flow's objective.
        began_ms: when it began; ``ended_ms`` when it ended, None while it runs.
        about: who, where, of what; drills before it.
    """

    plan: RehearsalPlan
    drill: str
    results: Sequence[StepResult]
    findings: Sequence[tuple[str, str]]
    rto_ms: int
    began_ms: int
    about: DrillAbout
    ended_ms: int | None = None

    @property
    def rto_s(self) -> float | None:
        """Seconds that a switchover would have clients wait for us; None where a step was not run."""
        by_name = {result.name: result for result in self.results}
        steps = [by_name[name] for name in RTO_STEPS]
        if any(step.state is not StepState.DONE or step.seconds is None for step in steps):
            return None
        return sum(step.seconds or 0.0 for step in steps)

    @property
    def verdict(self) -> str | None:
        """PASS or FAIL; None while it runs."""
        if self.ended_ms is None:
            return None
        done = all(result.state is StepState.DONE for result in self.results)
        in_time = self.rto_s is not None and self.rto_s * 1000 <= self.rto_ms
        return PASSED if done and in_time else FAILED

    @property
    def exit_code(self) -> int:
        """0 for PASS; of a failed step its error's; 3 where only the objective was missed.

        Never 2: something was done.
        """
        errors = [result.error for result in self.results if result.error is not None]
        if errors:
            return max(errors[0].exit_code, NeedsOperator.exit_code)
        return 0 if self.verdict == PASSED else NeedsOperator.exit_code

    @property
    def waiting(self) -> Sequence[Refusal]:
        """What failed."""
        return [
            Refusal(
                result.title, result.error.code, result.error.message, str(result.error.as_dict()["resolve"])
            )
            for result in self.results
            if result.error is not None
        ]

    @property
    def counts(self) -> Mapping[str, Any]:
        """Names, ids and counts."""
        return {
            "flow": self.plan.flow,
            "drill": self.drill,
            "verdict": self.verdict,
            "rto_s": None if self.rto_s is None else round(self.rto_s, 3),
        }

    def document(self) -> dict[str, Any]:
        """Return the report."""
        return {
            "flow": self.plan.flow,
            "drill": self.drill,
            "mode": "rehearsal",
            "verdict": self.verdict,
            "began_ms": self.began_ms,
            "ended_ms": self.ended_ms,
            "rto": {
                "objective_s": self.rto_ms / 1000,
                "seconds": None if self.rto_s is None else round(self.rto_s, 3),
                "steps": {
                    r.name: None if r.seconds is None else round(r.seconds, 3)
                    for r in self.results
                    if r.name in RTO_STEPS
                },
            },
            "steps": [result.document() for result in self.results],
            "findings": [{"code": code, "text": text} for code, text in self.findings],
            "plan": self.plan.document(),
            "about": self.about.document(),
        }

    def describe(self) -> str:
        """Return it as text."""
        lines = []
        for result in self.results:
            took = "" if result.seconds is None else f" in {result.seconds:.1f} s"
            lines.append(f"  {result.state}: {result.title}{took}")
            if result.error is not None:
                lines.append(f"    {result.error}")
        lines += [f"  look at: {text} ({code})" for code, text in self.findings]
        if self.rto_s is not None:
            objective_s = self.rto_ms / 1000
            lines.append(
                f"clients would have waited {self.rto_s:.1f} s for us; the objective is {objective_s:.0f} s"
            )
        lines.append(f"rehearsal {self.drill}: {self.verdict or 'running'}")
        return lined(lines)


class Rehearsal:
    """Plans and runs one. Not thread-safe.

    Args:
        parts: what it is made of.
        request: what was asked for.
        selects: tells whether the flow moves a group.
        journal: of the flow's drills.
        report: hears of the outcome whenever it is another one, from before the first step on.
        rto_ms: the flow's objective.
        about: who, where, of what.
    """

    def __init__(
        self,
        parts: RehearsalParts,
        request: RehearsalRequest,
        selects: Callable[[str], bool],
        journal: DrillJournal,
        report: Callable[[RehearsalOutcome], None],
        rto_ms: int,
        about: DrillAbout,
    ) -> None:
        self._parts, self._request, self._selects = parts, request, selects
        self._journal, self._report, self._rto_ms, self._about = journal, report, rto_ms, about

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
        drill = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        plan, steps, course = self._planned(drill)
        caller.announce(plan)
        outcome = RehearsalOutcome(
            plan,
            drill,
            [StepResult(step.name, step.title, step.deadline_s) for step in course],
            (),
            self._rto_ms,
            now_ms(),
            self._known(),
        )
        with ExitStack() as opened:
            self._journal.begin(drill, _begun(plan))
            opened.enter_context(self._journal.heartbeat(drill))
            opened.callback(steps.close)
            try:
                results = self._run(outcome, steps, course, caller)
            except BaseException:
                # What has interrupted it says more than that the journal cannot be reached.
                with suppress(OnceoverError):
                    self._journal.append(drill, chains.ENDED, {"result": "interrupted"})
                raise
            outcome = replace(outcome, results=results, ended_ms=now_ms())
            outcome = replace(outcome, findings=self._findings(steps, outcome))
            self._end(outcome)
        return outcome

    def _known(self) -> DrillAbout:
        """Return what the report says of this drill, with those before it."""
        parts, began_ms = self._parts, now_ms()
        ids = parts.source.retry(parts.source.cluster_id), parts.target.retry(parts.target.cluster_id)
        earlier = DrillHistory(parts.flow, self._journal.read(), began_ms).drills
        return replace(self._about, clusters=ids, earlier=tuple(earlier[:EARLIER]))

    def _run(
        self, outcome: RehearsalOutcome, steps: RehearsalSteps, course: Sequence[DrillStep], caller: Caller
    ) -> list[StepResult]:
        drill = outcome.drill

        def changed(results: Sequence[StepResult], result: StepResult) -> None:
            if result.state is StepState.RUNNING:
                # Whether somebody reads how far it is makes no difference.
                with suppress(BrokenPipeError):
                    caller.tell(f"{result.title} ...")
            try:
                self._report(replace(outcome, results=results, findings=tuple(steps.findings)))
            finally:
                self._journal.append(drill, chains.STEP, _said(result))

        watch = CourseWatch(changed, lambda: chains.is_asked_to_end(self._journal.read(), drill))
        # Who would have no report when it is over does not begin.
        self._report(outcome)
        return run_course(course[:-1], course[-1], watch)

    def _end(self, outcome: RehearsalOutcome) -> None:
        """Tell how it has ended. Where that cannot be told any more the last step has failed.

        Raises:
            Fenced: DRILL_TAKEN_OVER.
        """
        try:
            self._report(outcome)
        except OSError as error:
            _fail_last(outcome, unusable_path(error))
        try:
            said = {"result": str(outcome.verdict), "rto_s": outcome.counts["rto_s"]}
            self._journal.append(outcome.drill, chains.ENDED, said)
        except Fenced:
            raise
        except OnceoverError as error:
            _fail_last(outcome, error)
            with suppress(OSError):
                self._report(outcome)

    def _findings(self, steps: RehearsalSteps, outcome: RehearsalOutcome) -> tuple[tuple[str, str], ...]:
        found = list(dict.fromkeys(steps.findings))
        if outcome.rto_s is not None and outcome.rto_s * 1000 > self._rto_ms:
            text = f"clients would have waited {outcome.rto_s:.1f} s, more than objectives.rto"
            found.append((DrillCode.RTO_MISSED, text))
        return tuple(found)

    def _planned(self, drill: str) -> tuple[RehearsalPlan, RehearsalSteps, tuple[DrillStep, ...]]:
        parts = self._parts
        state = parts.target.retry(lambda: read_flow_state(parts.target, parts.flow))
        if state.layout is None:
            raise UsageError(
                f"flow {parts.flow} was never started",
                code=StateCode.NOT_STARTED,
                resolve=f"`onceover replicate {parts.flow}`",
            )
        topics = chosen_topics(self._request, state.enrolled.values())
        groups = chosen_groups(self._request, _reads(parts.source, self._selects), topics)
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


def _reads(source: Cluster, selects: Callable[[str], bool]) -> dict[str, set[str]]:
    """Return in which topics the flow's groups have committed something, as far as brokers answer."""
    admin = GroupAdmin(source)
    each = admin.each_committed(group for group in admin.groups().groups if selects(group))
    return {group: {tp.topic for tp in positions} for group, positions in each.found.items()}


def _begun(plan: RehearsalPlan) -> dict[str, Any]:
    """Return what the journal holds of a drill's beginning: no more topics than a record takes."""
    named, more = list(plan.topics[:_NAMED]), len(plan.topics) - _NAMED
    said: dict[str, Any] = {"mode": "rehearsal", "plan_id": plan.plan_id, "topics": named}
    return said if more <= 0 else {**said, "more_topics": more}


def _fail_last(outcome: RehearsalOutcome, error: OnceoverError) -> None:
    last = outcome.results[-1]
    last.state, last.error = StepState.FAILED, last.error or error


def _said(result: StepResult) -> dict[str, Any]:
    """Return what the journal holds of a step: no names of other people's groups or topics, no texts."""
    numbers = {key: value for key, value in result.evidence.items() if isinstance(value, bool | int | float)}
    code = None if result.error is None else str(result.error.code)
    return {"step": result.name, "state": str(result.state), "evidence": numbers, "code": code}
