"""A drill as a list of steps, each with a deadline, its evidence, and what a person does by hand.

Invariant: what was begun is told even when it never ends: the record is renewed before and behind each step.
The last step, which takes everything away again, is run however the others end, also where nobody can be told
of it, and again where it is interrupted, unless somebody else has taken the drill over; an error of it is
told beside the first one, not instead of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from onceover.backoff import Deadline
from onceover.clock import now_ms
from onceover.drills.codes import DrillCode
from onceover.errors import (
    Fenced,
    NeedsOperator,
    OnceoverError,
    Retriable,
    is_of_a_path,
    unexpected,
    unusable_path,
)

# Of those who press Ctrl-C again because the last step takes its time; `kill -9` is for the others.
_INTERRUPTS: Final = 5


class StepState(StrEnum):
    """Where a step is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class DrillStep:
    """One step.

    Args:
        name: for programs; ``title`` for people.
        deadline_s: how long it may take.
        act: does it, and returns its evidence: names, counts and seconds.
        by_hand: what a person does instead, if the tool is gone.
        spent_s: seconds that it has taken already, while it was planned.
    """

    name: str
    title: str
    deadline_s: float
    act: Callable[[Deadline], Mapping[str, Any]]
    by_hand: str
    spent_s: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return it as a plan shows it."""
        return {
            "name": self.name,
            "title": self.title,
            "deadline_s": self.deadline_s,
            "by_hand": self.by_hand,
        }


class PlannedStep(NamedTuple):
    """A step before it has an action: ``name`` is the method that does it, ``{flow}`` the flow's name."""

    name: str
    title: str
    deadline_s: float
    by_hand: str

    def bound(self, actions: object, flow: str, more_s: float = 0.0) -> DrillStep:
        """Return the step with its action, a method of ``actions``; ``more_s`` is added to its deadline."""
        act = getattr(actions, self.name)
        return DrillStep(self.name, self.title, self.deadline_s + more_s, act, self.by_hand.format(flow=flow))


@dataclass
class StepResult:
    """What became of a step; ``evidence`` as its action has returned it."""

    name: str
    title: str
    deadline_s: float
    state: StepState = StepState.WAITING
    began_ms: int | None = None
    seconds: float | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    error: OnceoverError | None = None

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "deadline_s": self.deadline_s,
            "state": str(self.state),
            "began_ms": self.began_ms,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "evidence": dict(self.evidence),
            "error": None if self.error is None else self.error.as_dict(),
        }


@dataclass(frozen=True)
class CourseWatch:
    """Who hears of a course.

    Args:
        changed: called with all results whenever one of them is another; raises to end the course.
        asked_to_end: tells whether somebody wants the drill to end; asked before each step.
    """

    changed: Callable[[Sequence[StepResult], StepResult], None]
    asked_to_end: Callable[[], bool]


def run_course(steps: Sequence[DrillStep], last: DrillStep, watch: CourseWatch) -> list[StepResult]:
    """Run steps one after the other, then ``last``, and return what became of all of them.

    An error of a step is in its result; what follows is skipped, but for ``last``.

    Raises:
        BaseException: what is no error of ours, such as Ctrl-C, once ``last`` was run.
    """
    results = [StepResult(step.name, step.title, step.deadline_s) for step in (*steps, last)]
    ended: BaseException | None = None
    try:
        for step, result in zip(steps, results, strict=False):
            if not _run(step, result, results, watch):
                break
    except BaseException as error:  # noqa: BLE001 - raised again below, behind the last step
        ended = error
    for result in results[:-1]:
        if result.state is StepState.RUNNING:
            result.state = StepState.FAILED
        elif result.state is StepState.WAITING:
            result.state = StepState.SKIPPED
    interrupted = _end(last, results, watch)
    first = ended or interrupted
    if first is not None:
        raise first
    return results


def _end(last: DrillStep, results: Sequence[StepResult], watch: CourseWatch) -> BaseException | None:
    """Run the last step, again where it is interrupted; return what has interrupted it first."""
    if any(is_taken_over(result.error) for result in results):
        # What is there by now may be the other one's.
        results[-1].state = StepState.SKIPPED
        return None
    interrupted: BaseException | None = None
    for _ in range(_INTERRUPTS):
        try:
            _act(last, results[-1], results, watch, untold=True)
            return interrupted
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            interrupted = interrupted or error
            results[-1].state = StepState.FAILED
    return interrupted


def is_taken_over(error: OnceoverError | None) -> bool:
    """Tell whether the drill is somebody else's by now; whoever fences its copy alone has not taken it."""
    return isinstance(error, Fenced) and error.code == DrillCode.DRILL_TAKEN_OVER


def _run(step: DrillStep, result: StepResult, results: Sequence[StepResult], watch: CourseWatch) -> bool:
    """Run a step unless somebody wants the drill to end; tell whether the next one follows."""
    try:
        asked = watch.asked_to_end()
    except OnceoverError as error:
        result.state, result.error = StepState.FAILED, error
        return False
    if asked:
        result.state, result.error = StepState.FAILED, drill_aborted()
        return False
    if _act(step, result, results, watch):
        return True
    if result.error is not None and result.error.exit_code == Retriable.exit_code:
        # Another try would be the answer to it, and that is what nobody wants.
        with suppress(OnceoverError):
            result.error = drill_aborted(result.error) if watch.asked_to_end() else result.error
    return False


def drill_aborted(met: OnceoverError | None = None) -> NeedsOperator:
    """Return why it goes no further; ``met``: what a step has met while somebody wanted that."""
    return NeedsOperator(
        "somebody wants the drill to end",
        code=DrillCode.DRILL_ABORTED,
        seen=None if met is None else met.message,
        resolve="run it again when there is time for it",
    )


def _act(
    step: DrillStep,
    result: StepResult,
    results: Sequence[StepResult],
    watch: CourseWatch,
    *,
    untold: bool = False,
) -> bool:
    """Do a step, and tell of it; ``untold``: also where nobody can be told that it has begun."""
    began_s = time.monotonic()
    result.state, result.began_ms, result.error = StepState.RUNNING, now_ms(), None
    try:
        problem = _problem(watch, results, result)
        if problem is None or (untold and not is_taken_over(problem)):
            _do(step, result)
            problem = None if problem is None else done_but_untold(problem)
        result.error = result.error or problem
    finally:
        result.seconds = time.monotonic() - began_s + step.spent_s
    result.state = StepState.DONE if result.error is None else StepState.FAILED
    if is_taken_over(result.error):
        return False
    if result.error is None and (problem := _problem(watch, results, result)) is not None:
        result.error = problem if is_taken_over(problem) else done_but_untold(problem)
    result.state = StepState.DONE if result.error is None else StepState.FAILED
    return result.state is StepState.DONE


def done_but_untold(problem: OnceoverError) -> OnceoverError:
    """Return why a step has failed that was done: people must not take a fence for standing that is gone."""
    return problem.but(f"this was done, and only its report is missing: {problem.message}")


def _do(step: DrillStep, result: StepResult) -> None:
    try:
        deadline = Deadline(step.deadline_s)
        result.evidence = step.act(deadline)
        result.error = _late(step) if deadline.passed else None
    except OnceoverError as error:
        result.error = error
    except Exception as error:  # noqa: BLE001 - told as any other error of the step; the last one follows
        result.error = unexpected(error)


def _problem(watch: CourseWatch, results: Sequence[StepResult], result: StepResult) -> OnceoverError | None:
    """Tell of a step; return why that cannot be done."""
    try:
        watch.changed(results, result)
    except OnceoverError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a full disk, say: it keeps nothing from being taken away
        if is_of_a_path(error):
            return unusable_path(error)
        return unexpected(error)
    return None


def _late(step: DrillStep) -> Retriable:
    return Retriable(
        f"{step.title}: it took longer than {step.deadline_s:.0f} s",
        code=DrillCode.DRILL_LATE,
        resolve="see what the step waited for; a real failover would wait, too",
    )
