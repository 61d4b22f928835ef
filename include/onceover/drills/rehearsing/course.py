"""The course of a rehearsal: its steps in their order, as plan, report and docs/drills.md show them. Pure."""

from __future__ import annotations

from typing import Final

from onceover.drills.course import DrillStep, PlannedStep
from onceover.drills.rehearsing.steps import RehearsalSteps

LOOK: Final = "look"
_COURSE: Final = (
    PlannedStep(LOOK, "look at what a failover would cost now", 60, "onceover drill plan {flow}"),
    PlannedStep(
        "prepare",
        "make a topic of numbered records",
        90,
        "kafka-topics.sh --create, kafka-console-producer.sh",
    ),
    PlannedStep(
        "copy",
        "copy it, and the chosen topics, beside the flow",
        180,
        "a flow of its own with topics.naming: prefix",
    ),
    PlannedStep(
        "read",
        "let a consumer group read a part of the numbers",
        30,
        "kafka-consumer-groups.sh --reset-offsets",
    ),
    PlannedStep("drain", "copy up to the end of the source", 120, "onceover status {flow}: wait for lag 0"),
    PlannedStep("place", "put the groups in place on the target", 60, "onceover groups apply {flow}"),
    PlannedStep("compare", "compare every record on both sides", 180, "onceover audit {flow}"),
    PlannedStep("promote", "end the copy and fence it", 60, "onceover stop {flow}"),
    PlannedStep(
        "verify",
        "go on reading and writing on the target",
        60,
        "kafka-console-consumer.sh with each group's id",
    ),
    # The last one is run whatever happens to the others.
    PlannedStep("remove", "take everything away again", 90, "onceover drill abort {flow}"),
)
STEP_NAMES: Final = tuple(step.name for step in _COURSE)


def course_of(steps: RehearsalSteps) -> tuple[DrillStep, ...]:
    """Return the steps, each with its action; the last one takes everything away."""
    flow = steps.parts.flow
    return tuple(step.bound(steps, flow) for step in _COURSE)
