"""Running a drill: the journal's lock, signs of life, the report before and behind each step, and its end."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from onceover.clock import now_ms, stamp
from onceover.drills import chain as chains
from onceover.drills.about import EARLIER, DrillAbout
from onceover.drills.codes import DrillCode
from onceover.drills.course import (
    CourseWatch,
    DrillStep,
    StepResult,
    StepState,
    done_but_untold,
    run_course,
)
from onceover.drills.history import DrillHistory
from onceover.drills.journal import DrillJournal
from onceover.drills.outcome import DrillOutcome
from onceover.errors import Fenced, NeedsOperator, OnceoverError, UsageError, unusable_path
from onceover.kafka.ports import Cluster
from onceover.planning import commands
from onceover.planning.codes import PlanningCode
from onceover.planning.operation import Caller
from onceover.state.codes import StateCode
from onceover.state.read import FlowState, read_flow_state
from onceover.state.records.layout import Layout

Ended = TypeVar("Ended", bound=DrillOutcome)
Finding = tuple[str, str]


@dataclass(frozen=True)
class DrillRunner:
    """Runs the drills of a flow, one at a time.

    Args:
        journal: of the flow's drills.
        report: hears of the outcome whenever it is another one, from before the first step on.
    """

    journal: DrillJournal
    report: Callable[[DrillOutcome], None]

    def run(
        self,
        outcome: Ended,
        course: Sequence[DrillStep],
        found: Callable[[], Sequence[Finding]],
        close: Callable[[], None],
        caller: Caller,
        again: Callable[[], None],
    ) -> Ended:
        """Run the steps of a drill; the last one whatever happens to the others.

        Args:
            outcome: as it is before the first step.
            found: the findings until now.
            close: lets go of what the steps hold, called in any case.
            again: asks again, now that no other drill can begin, whether what was planned is still so; raises
                where it is not.

        Raises:
            NeedsOperator: DRILL_RUNS, another drill of the flow is running; nothing was done. What ``again``
                raises: likewise.
            Fenced: DRILL_TAKEN_OVER.
            OSError: its report cannot be written; nothing was done.
            What a step meets is told in the outcome; what interrupts it is raised behind the last step, or
            in its place NeedsOperator, where that could not take back what was done.
        """
        drill = outcome.drill
        # Who would have no report when it is over does not begin.
        self.journal.check_folder()
        with ExitStack() as opened:
            self.journal.begin(drill, outcome.begun())
            opened.enter_context(self.journal.heartbeat(drill))
            opened.callback(close)
            result = chains.DrillResult.REFUSED
            try:
                again()
                result = chains.DrillResult.INTERRUPTED
                results = self._course(outcome, course, found, caller)
            except BaseException:
                # What has interrupted it says more than that the journal cannot be reached.
                with suppress(OnceoverError):
                    self.journal.append(drill, chains.ENDED, {"result": result})
                raise
            outcome = replace(outcome, results=results, ended_ms=now_ms())
            outcome = replace(outcome, findings=_findings(found(), outcome))
            try:
                self._end(outcome)
            except OnceoverError:
                raise
            except BaseException:
                # All of it is done, and only that not told: whoever comes next would take it for dead.
                with suppress(OnceoverError):
                    self.journal.append(drill, chains.ENDED, outcome.ended())
                raise
        return outcome

    def _course(
        self,
        outcome: DrillOutcome,
        course: Sequence[DrillStep],
        found: Callable[[], Sequence[Finding]],
        caller: Caller,
    ) -> list[StepResult]:
        drill, known = outcome.drill, list[StepResult]()

        def changed(results: Sequence[StepResult], result: StepResult) -> None:
            known[:] = results
            if result.state is StepState.RUNNING:
                # Whether somebody reads how far it is makes no difference.
                with suppress(BrokenPipeError):
                    caller.tell(f"{result.title} ...")
            try:
                self.report(replace(outcome, results=results, findings=tuple(found())))
            finally:
                self.journal.append(drill, chains.STEP, said(result))

        watch = CourseWatch(changed, lambda: chains.is_asked_to_end(self.journal.read(), drill))
        self.report(outcome)
        try:
            return run_course(course[:-1], course[-1], watch)
        except BaseException as error:
            told = replace(outcome, results=known, findings=tuple(found()), ended_ms=now_ms())
            # Whoever it was that interrupted it has to hear of the last step in any case.
            with suppress(OSError):
                self.report(told)
            if known and known[-1].state is StepState.FAILED:
                raise _not_taken_back(told) from error
            raise

    def _end(self, outcome: DrillOutcome) -> None:
        """Tell how it has ended. Where that cannot be told any more the last step has failed.

        Raises:
            Fenced: DRILL_TAKEN_OVER.
        """
        try:
            self.report(outcome)
        except OSError as error:
            _fail_last(outcome, unusable_path(error))
        try:
            self.journal.append(outcome.drill, chains.ENDED, outcome.ended())
        except Fenced:
            raise
        except OnceoverError as error:
            _fail_last(outcome, error)
            with suppress(OSError):
                self.report(outcome)


def new_drill() -> str:
    """Return the id of a new drill: its time, and something that two of one second do not share."""
    return f"{stamp()}-{secrets.token_hex(3)}"


def started(target: Cluster, flow: str) -> tuple[FlowState, Layout]:
    """Return a flow's state, and its newest layout.

    Raises:
        UsageError: NOT_STARTED.
        Retriable: the target is away.
    """
    state = target.retry(lambda: read_flow_state(target, flow))
    if state.layout is None:
        raise UsageError(
            f"flow {flow} was never started",
            code=StateCode.NOT_STARTED,
            resolve=f"`onceover replicate {flow}`",
        )
    return state, state.layout


def changed(flow: str, what: str) -> NeedsOperator:
    """Return what is wrong where a drill has begun, and what it was planned for is not so any more. Pure."""
    return NeedsOperator(
        f"nothing was done: since it was planned {what}",
        code=PlanningCode.PLAN_CHANGED,
        where=f"flow {flow}",
        resolve=f"`onceover drill status {flow}` tells of other drills; plan again, and decide about that",
    )


def known(about: DrillAbout, clusters: tuple[str, str], journal: DrillJournal, flow: str) -> DrillAbout:
    """Return what a report says of a drill, with the ids of source and target and the drills before it.

    Raises:
        Retriable: the target is away.
    """
    earlier = DrillHistory(flow, journal.read(), now_ms()).drills
    return replace(about, clusters=clusters, earlier=tuple(earlier[:EARLIER]))


def said(result: StepResult) -> Mapping[str, Any]:
    """Return what the journal holds of a step: no names of other people's groups or topics, no texts."""
    numbers = {key: value for key, value in result.evidence.items() if isinstance(value, bool | int | float)}
    code = None if result.error is None else result.error.code
    return {"step": result.name, "state": str(result.state), "evidence": numbers, "code": code}


def _findings(told: Sequence[Finding], outcome: DrillOutcome) -> tuple[Finding, ...]:
    found = list(dict.fromkeys(told))
    objectives, loss = outcome.objectives, outcome.loss
    if outcome.rto_s is not None and outcome.rto_s * 1000 > objectives.rto_ms:
        text = f"{outcome.waited} {outcome.rto_s:.1f} s, more than objectives.rto"
        found.append((DrillCode.RTO_MISSED, text))
    if loss is not None and objectives.allows(loss) is False and objectives.is_promised_at_any_moment:
        text = f"{outcome.lost} {loss.describe()}, more than objectives.rpo"
        found.append((DrillCode.RPO_MISSED, text))
    return tuple(found)


def _not_taken_back(outcome: DrillOutcome) -> NeedsOperator:
    error = outcome.results[-1].error
    standing = [text for _, text in outcome.findings]
    return NeedsOperator(
        f"drill {outcome.drill} was interrupted, and what it had done is not all taken back"
        + ("" if error is None else f": {error.message}"),
        code=DrillCode.DRILL_ABORTED if error is None else error.code,
        where=None if error is None else error.where,
        seen="; ".join(standing) or (None if error is None else error.seen),
        resolve=f"{commands.command('drill', 'abort', outcome.plan.flow)} takes away what is left",
    )


def _fail_last(outcome: DrillOutcome, error: OnceoverError) -> None:
    last = outcome.results[-1]
    problem = done_but_untold(error) if last.state is StepState.DONE else error
    last.state, last.error = StepState.FAILED, last.error or problem
