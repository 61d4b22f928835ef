"""The courses of switchovers: their steps in their order, with the point of no return. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from onceover.drills.course import DrillStep, PlannedStep
from onceover.drills.modes import PLANNED, PROMOTE, UNPLANNED
from onceover.drills.switching.common import SwitchSteps

LOOK: Final = "look"
REVERSE: Final = "reverse"
REDIRECT: Final = "redirect"
VERIFY: Final = "verify"
# From the point of no return on, both do the same.
_GIVEN: Final = (
    PlannedStep(PROMOTE, "give the copies to clients", 30, "topics.exclude in the flow file"),
    PlannedStep(
        REDIRECT,
        "bring the clients to the target, each of them started anew",
        1800,
        "end the clients, change bootstrap.servers, start them",
    ),
    PlannedStep(
        VERIFY,
        "write and read on the target",
        60,
        "kafka-console-producer.sh, kafka-console-consumer.sh",
    ),
)
_BACK: Final = "onceover seed apply FLOW-THE-OTHER-WAY --from promoted:{flow}"
_COURSE: Final = (
    PlannedStep(LOOK, "look at what a failover would cost now", 60, "onceover drill plan {flow}"),
    PlannedStep("audit", "compare what was not verified yet", 1800, "onceover audit {flow}"),
    PlannedStep("fence", "keep writers off the source's topics", 900, "stop the producers"),
    PlannedStep("settle", "see that nobody writes any more", 60, "kafka-get-offsets.sh, twice"),
    PlannedStep("drain", "copy up to the end of the source", 180, "onceover status {flow}: wait for lag 0"),
    PlannedStep(
        "commits",
        "wait for what consumers still commit",
        60,
        "kafka-consumer-groups.sh --describe, twice",
    ),
    PlannedStep("place", "put the groups in place on the target", 60, "onceover groups apply {flow}"),
    PlannedStep("compare", "compare the tail, and every group's next record", 180, "onceover audit {flow}"),
    PlannedStep("stop", "end the flow and fence it", 150, "onceover stop {flow}"),
    *_GIVEN,
    PlannedStep(REVERSE, "let the flow the other way go on from there", 60, _BACK),
    # Run whatever happens to the others.
    PlannedStep("undo", "let writers in again, unless promoted", 90, "onceover drill abort {flow}"),
)
_UNPLANNED: Final = (
    PlannedStep(LOOK, "look at what is known to be missing", 20, "onceover status {flow}"),
    PlannedStep("stop", "end the flow and fence it", 150, "onceover stop {flow}"),
    PlannedStep(
        "settle",
        "end what hangs in the copies",
        20,
        "kafka-transactions.sh find-hanging, abort",
    ),
    PlannedStep(
        "place", "put the groups in place once more, where that is known", 30, "onceover groups apply {flow}"
    ),
    *_GIVEN,
    PlannedStep("undo", "let go of the flow, unless promoted", 60, "onceover replicate {flow}"),
)
_COURSES: Final = {PLANNED: _COURSE, UNPLANNED: _UNPLANNED}
STEP_NAMES: Final = tuple(step.name for step in _COURSE)
# While these run clients wait for us; what *redirect* takes is their own.
UNAVAILABLE: Final = {
    PLANNED: ("settle", "drain", "commits", "place", "compare", "stop", PROMOTE),
    UNPLANNED: (LOOK, "stop", "settle", "place", PROMOTE),
}


def course_of(mode: str, steps: SwitchSteps, *, goes_on: bool) -> tuple[DrillStep, ...]:
    """Return the steps, each with its action.

    Args:
        goes_on: the copies were promoted by an earlier one: only what comes behind that is done.
    """
    flow, course = steps.parts.flow, _COURSES[mode]
    behind = [step.name for step in course].index(PROMOTE) + 1
    bound = [
        step.bound(steps, flow, steps.parts.quiet_s if step.name == "settle" else 0.0)
        for step in (course[behind:] if goes_on else course)
        if step.name != REVERSE or steps.parts.reverse
    ]
    return tuple(replace(step, spent_s=steps.looked_s) if step.name == LOOK else step for step in bound)
