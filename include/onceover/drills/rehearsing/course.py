"""The course of a rehearsal: its steps in their order, as plan, report and docs/drills.md show them. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from onceover.drills.course import DrillStep
from onceover.drills.rehearsing.steps import RehearsalSteps


class _Planned(NamedTuple):
    """One step: ``name`` is the method of ``RehearsalSteps`` that does it, ``{flow}`` the flow's name."""

    name: str
    title: str
    deadline_s: float
    by_hand: str


_COURSE: Final = (
    _Planned("look", "look at what a failover would cost now", 60, "onceover drill plan {flow}"),
    _Planned(
        "prepare",
        "make a topic of numbered records",
        90,
        "kafka-topics.sh --create, kafka-console-producer.sh",
    ),
    _Planned(
        "copy",
        "copy it, and the chosen topics, beside the flow",
        180,
        "a flow of its own with topics.naming: prefix",
    ),
    _Planned(
        "read",
        "let a consumer group read a part of the numbers",
        30,
        "kafka-consumer-groups.sh --reset-offsets",
    ),
    _Planned("drain", "copy up to the end of the source", 120, "onceover status {flow}: wait for lag 0"),
    _Planned("place", "put the groups in place on the target", 60, "onceover groups apply {flow}"),
    _Planned("compare", "compare every record on both sides", 180, "onceover audit {flow}"),
    _Planned("promote", "end the copy and fence it", 60, "onceover stop {flow}"),
    _Planned(
        "verify",
        "go on reading and writing on the target",
        60,
        "kafka-console-consumer.sh with each group's id",
    ),
    # The last one is run whatever happens to the others.
    _Planned("remove", "take everything away again", 90, "onceover drill abort {flow}"),
)
STEP_NAMES: Final = tuple(step.name for step in _COURSE)


def course_of(steps: RehearsalSteps) -> tuple[DrillStep, ...]:
    """Return the steps, each with its action; the last one takes everything away."""
    flow = steps.parts.flow
    return tuple(
        DrillStep(
            step.name,
            step.title,
            step.deadline_s,
            getattr(steps, step.name),
            step.by_hand.format(flow=flow),
        )
        for step in _COURSE
    )
