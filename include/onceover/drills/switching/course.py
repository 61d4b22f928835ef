"""The courses of switchovers: their steps in their order, with the point of no return. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from onceover.drills.course import DrillStep
from onceover.drills.switching.common import SwitchSteps


class _Planned(NamedTuple):
    """One step: ``name`` is the method of ``SwitchSteps`` that does it, ``{flow}`` the flow's name."""

    name: str
    title: str
    deadline_s: float
    by_hand: str


PROMOTE: Final = "promote"
REVERSE: Final = "reverse"
_COURSE: Final = (
    _Planned("look", "look at what a failover would cost now", 60, "onceover drill plan {flow}"),
    _Planned("audit", "compare what was not verified yet", 1800, "onceover audit {flow}"),
    _Planned("fence", "keep writers off the source's topics", 900, "stop the producers"),
    _Planned("settle", "see that nobody writes any more", 60, "kafka-get-offsets.sh, twice"),
    _Planned("drain", "copy up to the end of the source", 180, "onceover status {flow}: wait for lag 0"),
    _Planned(
        "commits",
        "wait for what consumers still commit",
        60,
        "kafka-consumer-groups.sh --describe, twice",
    ),
    _Planned("place", "put the groups in place on the target", 60, "onceover groups apply {flow}"),
    _Planned("compare", "compare the tail, and every group's next record", 180, "onceover audit {flow}"),
    _Planned("stop", "end the flow and fence it", 150, "onceover stop {flow}"),
    _Planned(PROMOTE, "give the copies to clients", 30, "topics.exclude in the flow file"),
    _Planned("redirect", "bring the clients to the target", 1800, "change bootstrap.servers"),
    _Planned(
        "verify",
        "write and read on the target",
        60,
        "kafka-console-producer.sh, kafka-console-consumer.sh",
    ),
    _Planned(REVERSE, "let the flow the other way go on from there", 60, "onceover seed apply"),
    # Run whatever happens to the others.
    _Planned("undo", "let writers in again, unless promoted", 90, "onceover drill abort {flow}"),
)
_UNPLANNED: Final = (
    _Planned("look", "look at what is known to be missing", 20, "onceover status {flow}"),
    _Planned("stop", "end the flow and fence it", 150, "onceover stop {flow}"),
    _Planned(
        "settle",
        "end what hangs in the copies",
        20,
        "kafka-transactions.sh --find-hanging, --abort",
    ),
    _Planned("place", "put the groups in place once more, where that is known", 30, "onceover groups apply"),
    _Planned(PROMOTE, "give the copies to clients", 30, "topics.exclude in the flow file"),
    _Planned("redirect", "bring the clients to the target", 1800, "change bootstrap.servers"),
    _Planned(
        "verify",
        "write and read on the target",
        60,
        "kafka-console-producer.sh, kafka-console-consumer.sh",
    ),
    _Planned("undo", "let go of the flow, unless promoted", 60, "onceover replicate {flow}"),
)
PLANNED: Final = "planned"
UNPLANNED: Final = "unplanned"
_COURSES: Final = {PLANNED: _COURSE, UNPLANNED: _UNPLANNED}
STEP_NAMES: Final = tuple(step.name for step in _COURSE)
UNPLANNED_NAMES: Final = tuple(step.name for step in _UNPLANNED)
# While these run clients wait for us; what *redirect* takes is their own.
UNAVAILABLE: Final = {
    PLANNED: ("settle", "drain", "commits", "place", "compare", "stop", PROMOTE),
    UNPLANNED: ("look", "stop", "settle", "place", PROMOTE),
}


def course_of(mode: str, steps: SwitchSteps, *, goes_on: bool) -> tuple[DrillStep, ...]:
    """Return the steps, each with its action.

    Args:
        goes_on: the copies were promoted by an earlier one: only what comes behind that is done.
    """
    flow, course = steps.parts.flow, _COURSES[mode]
    behind = [step.name for step in course].index(PROMOTE) + 1
    return tuple(
        DrillStep(
            step.name,
            step.title,
            step.deadline_s + (steps.parts.quiet_s if step.name == "settle" else 0),
            getattr(steps, step.name),
            step.by_hand.format(flow=flow),
        )
        for step in (course[behind:] if goes_on else course)
        if step.name != REVERSE or steps.parts.reverse
    )
