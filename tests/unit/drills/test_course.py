"""The course of a drill: steps in their order, and the last one whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from onceover.backoff import Deadline
from onceover.drills.codes import DrillCode
from onceover.drills.course import CourseWatch, DrillStep, StepResult, run_course
from onceover.errors import Fenced, NeedsOperator, Retriable


class Course:
    """Three steps and the last one; ``act`` says what each does."""

    def __init__(
        self, asked: Callable[[], bool] = lambda: False, **acts: Callable[[], Mapping[str, Any]]
    ) -> None:
        self.done: list[str] = []
        self.told: list[list[str]] = []
        self.problem: Exception | None = None
        self._acts = acts
        self.watch = CourseWatch(self._changed, asked)

    def _changed(self, results: Sequence[StepResult], _: StepResult) -> None:
        self.told.append([str(result.state) for result in results])
        if self.problem is not None:
            raise self.problem

    def _step(self, name: str, deadline_s: float = 10.0) -> DrillStep:
        def act(_: Deadline) -> Mapping[str, Any]:
            self.done.append(name)
            return self._acts.get(name, dict)()

        return DrillStep(name, name, deadline_s, act, "by hand")

    def run(self, deadline_s: float = 10.0) -> list[StepResult]:
        steps = [self._step(name, deadline_s) for name in ("a", "b", "c")]
        return run_course(steps, self._step("last"), self.watch)


def failing(error: BaseException) -> Callable[[], Mapping[str, Any]]:
    def act() -> Mapping[str, Any]:
        raise error

    return act


class Interrupted:
    """An action that is interrupted so often before it is done."""

    def __init__(self, times: int) -> None:
        self._left = times

    def __call__(self) -> Mapping[str, Any]:
        self._left -= 1
        if self._left >= 0:
            raise KeyboardInterrupt
        return {"removed": 1}


def states(results: Sequence[StepResult]) -> list[str]:
    return [str(result.state) for result in results]


def test_every_step_is_told_before_and_behind() -> None:
    """So that a run that dies leaves how far it came."""
    course = Course(a=lambda: {"records": 3})
    results = course.run()
    assert states(results) == ["done"] * 4
    assert results[0].evidence == {"records": 3}
    assert course.told[0] == ["running", "waiting", "waiting", "waiting"]
    assert course.told[-1] == ["done"] * 4
    assert len(course.told) == 8


@pytest.mark.parametrize("error", [NeedsOperator("no"), Retriable("away"), ValueError("a bug")])
def test_behind_a_failure_only_the_last_step_is_run(error: Exception) -> None:
    """A bug of ours leaves nothing behind either; both errors are told."""
    course = Course(b=failing(error), last=failing(Retriable("cannot be removed")))
    results = course.run()
    assert course.done == ["a", "b", "last"]
    assert states(results) == ["done", "failed", "skipped", "failed"]
    assert [result.error.message for result in results if result.error] == [
        results[1].error.message if results[1].error else "",
        "cannot be removed",
    ]


def test_interrupted_it_takes_everything_away_first() -> None:
    """Ctrl-C is raised again behind that."""
    course = Course(b=failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        course.run()
    assert course.done == ["a", "b", "last"]


def test_whoever_was_taken_for_dead_touches_nothing_more() -> None:
    """Not even to take away: what is there may be the other one's."""
    course = Course()
    course.problem = Fenced("taken over", code=DrillCode.DRILL_TAKEN_OVER)
    results = course.run()
    assert course.done == []
    assert states(results) == ["failed", "skipped", "skipped", "skipped"]


def test_asked_to_end_it_begins_no_further_step() -> None:
    """What is under way is finished."""
    asked = iter([False, True])
    course = Course(lambda: next(asked))
    results = course.run()
    assert course.done == ["a", "last"]
    assert results[1].error is not None
    assert (results[1].error.code, results[1].error.exit_code) == ("DRILL_ABORTED", 3)


def test_a_step_that_took_too_long_has_failed() -> None:
    """Although it came to its end: a real failover would have waited as long."""
    course = Course()
    results = course.run(deadline_s=0.0)
    assert results[0].error is not None
    assert results[0].error.code == "DRILL_LATE"
    assert course.done == ["a", "last"]


def test_interrupted_again_it_still_takes_everything_away() -> None:
    """Whoever presses Ctrl-C twice, or is sent SIGTERM by two, leaves nothing behind either."""
    course = Course(b=failing(KeyboardInterrupt()), last=Interrupted(2))
    with pytest.raises(KeyboardInterrupt):
        course.run()
    assert course.done == ["a", "b", "last", "last", "last"]
    assert course.told[-1] == ["done", "failed", "skipped", "done"]


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (OSError(28, "No space left on device", "report.html"), "PATH_UNUSABLE"),
        (BrokenPipeError("nobody reads it"), "UNEXPECTED"),
        (Retriable("the target is away"), "Retriable"),
    ],
)
def test_what_cannot_be_told_is_taken_away_all_the_same(problem: Exception, code: str) -> None:
    """A disk that is full, say: the step that it meets is not done, the last one is."""
    course = Course()
    course.problem = problem
    results = course.run()
    assert course.done == ["last"]
    assert states(results) == ["failed", "skipped", "skipped", "failed"]
    assert [result.error.code for result in results if result.error] == [code, code]


@pytest.mark.parametrize("is_told_of_its_begin", [True, False])
def test_what_was_done_and_cannot_be_told_is_said_to_be_done(*, is_told_of_its_begin: bool) -> None:
    """Writers that were let in are not kept off: whoever reads that it failed would let them in by hand."""

    def fill() -> Mapping[str, Any]:
        course.problem = OSError(28, "No space left on device", "report.html")
        return {"acls": 1}

    course = Course(last=fill) if is_told_of_its_begin else Course(c=fill)
    last = course.run()[-1]
    assert (str(last.state), course.done) == ("failed", ["a", "b", "c", "last"])
    assert last.error is not None
    assert last.error.code == "PATH_UNUSABLE"
    assert last.error.message.startswith("this was done, and only its report is missing: report.html")


def test_a_copy_that_somebody_fenced_is_taken_away() -> None:
    """Only the journal tells whose drill it is."""
    course = Course(b=failing(Fenced("a newer generation runs")))
    assert states(course.run()) == ["done", "failed", "skipped", "done"]
    assert course.done == ["a", "b", "last"]


@pytest.mark.parametrize(("asked", "exit_code"), [(True, 3), (False, 5)])
def test_a_step_that_fails_while_somebody_wants_the_drill_to_end_is_not_tried_again(
    asked: bool, exit_code: int
) -> None:
    """What might pass by itself would be answered by another try, which nobody wants."""
    answers = [False, asked]
    results = Course(lambda: answers.pop(0), a=failing(Retriable("the target is away"))).run()
    assert results[0].error is not None
    assert results[0].error.exit_code == exit_code
    assert "the target is away" in str(results[0].error)
