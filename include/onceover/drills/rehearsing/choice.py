"""What a rehearsal takes of a flow, and the plan that says so. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceover.drills.codes import DrillCode
from onceover.drills.course import DrillStep
from onceover.errors import OnceoverError, UsageError
from onceover.planning.approval import Item
from onceover.planning.plan import Change, Plan
from onceover.shown import lined
from onceover.state import names
from onceover.state.records.enrolment import Enrolment

# By default: enough to see the flow's own topics and groups, few enough for a minute.
TOPICS: Final = 3
GROUPS: Final = 20
SAMPLE: Final = 1000
CANARIES: Final = 200


@dataclass(frozen=True)
class RehearsalRequest:
    """What a person asks for.

    Args:
        topics: tells whether a topic of the source is wanted; None for the first few.
        groups: likewise of groups; None for the first few that read one of those topics.
        sample: how many of the newest offsets of each partition of the chosen topics are copied.
        canaries: how many numbered records.
    """

    topics: Callable[[str], bool] | None = None
    groups: Callable[[str], bool] | None = None
    sample: int = SAMPLE
    canaries: int = CANARIES


def chosen_topics(request: RehearsalRequest, enrolled: Collection[Enrolment]) -> tuple[str, ...]:
    """Return the source topics that are copied beside the canaries.

    Raises:
        UsageError: NOTHING_CHOSEN, none of those that were asked for is copied by the flow.
    """
    active = sorted(enrolment.source for enrolment in enrolled if enrolment.active)
    if request.topics is None:
        return tuple(active[:TOPICS])
    found = tuple(topic for topic in active if request.topics(topic))
    if not found:
        raise UsageError(
            "none of the flow's topics matches --topics",
            code=DrillCode.NOTHING_CHOSEN,
            expected=f"an expression that matches one of {', '.join(active[:5])}" if active else None,
            seen=None if active else "a flow that copies nothing",
            resolve="correct --topics, or leave it out",
        )
    return found


def chosen_groups(
    request: RehearsalRequest,
    positions: Mapping[str, Collection[str]],
    topics: Collection[str],
    unread: Mapping[str, OnceoverError],
    unheard: Sequence[OnceoverError],
) -> tuple[str, ...]:
    """Return the groups that are put in place.

    Args:
        positions: topics in which a group has committed something, by group, those of the flow's filter only.
        unread: why that is not known of some; ``unheard`` why some are not even known by name.

    Raises:
        UsageError: NOTHING_CHOSEN, none of those that were asked for reads one of the topics.
        OnceoverError: the same, and why it is not known of all of them.
    """
    reading = sorted(group for group, read in positions.items() if set(read) & set(topics))
    if request.groups is None:
        return tuple(reading[:GROUPS])
    found = tuple(group for group in reading if request.groups(group))
    if not found:
        # One that was asked for may be among these: it is not a mistake of who asked, then.
        for error in (*(error for group, error in unread.items() if request.groups(group)), *unheard):
            raise error
        raise UsageError(
            "none of the groups that read the chosen topics matches --group",
            code=DrillCode.NOTHING_CHOSEN,
            expected=f"an expression that matches one of {', '.join(reading[:5]) or 'no groups at all'}",
            resolve="correct --group, or leave it out; --topics chooses the topics",
        )
    return found


@dataclass(frozen=True, kw_only=True)
class RehearsalPlan(Plan):
    """What a rehearsal would do.

    Args:
        topics: source topics whose newest records are copied; ``groups`` that are put in place.
        steps: in their order.
        sample: how many of the newest offsets of each of their partitions.
    """

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    steps: tuple[DrillStep, ...]
    sample: int

    @property
    def items(self) -> Sequence[Item]:
        """Nothing: no client, topic or group of anybody else is touched, and all is taken away again."""
        return ()

    @property
    def exit_code(self) -> int:
        """Always 0: there is nothing to decide."""
        return 0

    def document(self) -> dict[str, Any]:
        """Return the plan's JSON."""
        return {
            **super().document(),
            "mode": "rehearsal",
            "topics": list(self.topics),
            "groups": list(self.groups),
            "sample": self.sample,
            "steps": [step.document() for step in self.steps],
            "point_of_no_return": None,
        }

    def describe(self) -> str:
        """Return the plan as text."""
        lines = [f"rehearsal of a failover of flow {self.flow}: no client is touched, nothing stays"]
        lines += [line for change in self.changes for line in change.describe()]
        lines.append("steps:")
        for number, step in enumerate(self.steps, 1):
            lines.append(f"  {number}. {step.title} (at most {step.deadline_s:.0f} s)")
            lines.append(f"     by hand: {step.by_hand}")
        lines.append("there is no point of no return: whatever happens, the last step takes everything away")
        return lined(lines)


def changes_of(
    flow: str,
    source: str,
    target: str,
    topics: Sequence[str],
    groups: Sequence[str],
    canaries: int,
) -> tuple[Change, ...]:
    """Return what a rehearsal makes, and removes again."""
    made = [
        Change("make topic", names.canary_topic(flow), None, f"{canaries} records", f"canaries on {source}"),
        Change(
            "make group", names.canary_group(flow), None, "a position", f"the canaries' reader on {source}"
        ),
    ]
    made += [
        Change("copy topic", topic, None, f"{names.rehearsal_copies(flow)}.{topic}", f"onto {target}")
        for topic in (names.canary_topic(flow), *topics)
    ]
    made += [
        Change("copy group", group, None, names.rehearsal_group(flow, group), f"onto {target}")
        for group in (names.canary_group(flow), *groups)
    ]
    made.append(Change("remove", "all of that", None, None, "always, as the last step"))
    return tuple(made)
