"""The way back behind a switchover: which flow leads back, when it may go on, and when clients may. Pure.

Invariant: clients go back only to a side that holds all of what was promoted; what waits for a person is not
waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from onceover.advice import advised
from onceover.drills.codes import DrillCode
from onceover.errors import NeedsOperator, UsageError
from onceover.model import TopicPartition
from onceover.operate.states import COPIES, CopyState
from onceover.planning import commands
from onceover.state.records.enrolment import Enrolment

# Nobody comes back from these by waiting.
_OVER: Final = (CopyState.STOPPED, CopyState.PROMOTED)
_NAMED: Final = 3


class FlowBetween(NamedTuple):
    """A flow by name, and between which clusters it copies, by alias."""

    flow: str
    source: str
    target: str


@dataclass(frozen=True)
class LedBack:
    """What a flow has taken in of the copies of the flow the other way.

    Args:
        copies: those that it copies, and those of ``gone``.
        gone: those that it has copied back to topics which a switchover of it has given to clients since, and
            which are still there.
        lacking: partitions that were promoted, of copies that it copies without them.
        deleted: copies that it has not taken in, and that are not there any more.
    """

    copies: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    lacking: tuple[TopicPartition, ...] = ()
    deleted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, there: Iterable[Enrolment], back: Collection[Enrolment], ids: Mapping[str, UUID]) -> LedBack:
        """Return it by the records of both flows.

        Args:
            there: of the flow that was switched over; ``back`` of the one that leads back.
            ids: of the topics that it leads back to, as they are now.
        """
        promoted = {each.target: each for each in there if each.is_promoted}
        active = {each.source: each for each in back if each.active}
        gone = {
            each.source
            for each in back
            if each.source in promoted and each.is_promoted_since(promoted[each.source])
            # Without its topic there is nothing that clients could have gone back to.
            if ids.get(each.target) == each.target_id
        }
        lacking = [
            TopicPartition(copy, number)
            for copy, each in active.items()
            if (given := promoted[copy].promoted if copy in promoted else None) is not None
            for number in given.ends
            if number not in each.start
        ]
        return cls(frozenset(active.keys() | gone), frozenset(gone), tuple(sorted(lacking)))

    def missing(self, copies: Collection[str]) -> list[str]:
        """Return those of the copies that it has not taken in."""
        return sorted(set(copies) - self.copies)


def named_back(there: FlowBetween, name: str | None) -> str:
    """Return the name of the flow that leads back.

    Raises:
        UsageError: SWITCHOVER_UNSET, there is none.
    """
    if name is None:
        raise UsageError(
            f"flow {there.flow} names no flow that leads back",
            code=DrillCode.SWITCHOVER_UNSET,
            where="switchover.reverse",
            expected=f"a flow from {there.target} to {there.source}",
            resolve="write one, and name it there",
        )
    return name


def check_leads_back(there: FlowBetween, back: FlowBetween) -> None:
    """Refuse a flow that does not copy from where the other one copies to.

    Raises:
        UsageError: SWITCHOVER_UNSET.
    """
    if (back.source, back.target) != (there.target, there.source):
        raise UsageError(
            f"flow {back.flow} is not the other way of flow {there.flow}",
            code=DrillCode.SWITCHOVER_UNSET,
            where="switchover.reverse",
            expected=f"from {there.target} to {there.source}",
            seen=f"from {back.source} to {back.target}",
            resolve="correct switchover.reverse, or the aliases in one of both files",
        )


def copies_to_bring_back(
    there: FlowBetween, enrolled: Iterable[Enrolment], wanted: Callable[[str], bool] | None
) -> list[str]:
    """Return the copies that a switchover has promoted.

    Args:
        enrolled: the topics of the flow that was switched over.
        wanted: tells whether a source topic is meant; None for all.

    Raises:
        UsageError: NOTHING_CHOSEN, there are none.
    """
    promoted = [each for each in enrolled if each.is_promoted]
    found = sorted(each.target for each in promoted if wanted is None or wanted(each.source))
    if not found:
        raise UsageError(
            f"there is nothing to bring back: no switchover of flow {there.flow} has promoted such a topic",
            code=DrillCode.NOTHING_CHOSEN,
            where=there.target,
            seen=f"{len(promoted)} promoted topics",
            resolve=f"{commands.command('status', there.flow)} shows them; correct the topics",
        )
    return found


def check_all_led_back(back: str, copies: Collection[str], led: LedBack, then: str) -> None:
    """Refuse to go on while the flow that leads back has not taken in all that was promoted.

    Args:
        back: its name.
        copies: that were promoted.
        led: what it has taken in.
        then: what is done once it has.

    Raises:
        NeedsOperator: LOG_CHANGED, some were deleted; SWITCHOVER_UNSET, it does not copy some; NOT_READY, it
            does without some partitions.
    """
    if deleted := sorted(led.deleted & set(copies)):
        raise NeedsOperator(
            f"{', '.join(deleted[:_NAMED])} cannot be led back: deleted since a switchover has promoted it",
            code=DrillCode.LOG_CHANGED,
            where=f"{len(deleted)} topics",
            resolve="find out who has deleted it; where that was meant, leave it out: name the topics that "
            f"come back (*Topics* of the form); then {then}",
        )
    if missing := led.missing(copies):
        raise NeedsOperator(
            f"flow {back} does not take in {', '.join(missing[:_NAMED])}",
            code=DrillCode.SWITCHOVER_UNSET,
            where=f"{len(missing)} topics",
            resolve=f"have its topics.include name them, with naming: identity in both flows; then {then}",
        )

    if lacking := [tp for tp in led.lacking if tp.topic in copies]:
        raise NeedsOperator(
            f"flow {back} copies the others, but not {', '.join(map(str, lacking[:_NAMED]))}",
            code=DrillCode.NOT_READY,
            where=f"{len(lacking)} partitions",
            resolve=f"{commands.replicate(back)} takes them in where they are empty on its target; otherwise "
            f"{commands.command('status', back)} says what to do",
        )


def copies_already(status: Mapping[str, Any]) -> bool:
    """Tell whether the flow that leads back runs, by its entry of ``status``: nobody has to start it."""
    return status["state"] in COPIES


def why_over(status: Mapping[str, Any]) -> str | None:
    """Return why the flow that leads back will not catch up by waiting; None while it may."""
    if status["state"] not in _OVER:
        return None
    needs = "; ".join(map(advised, status["needs"][:_NAMED]))
    return f"flow {status['flow']} is {status['state']}: {needs or 'see its status'}"


def may_go_back(status: Mapping[str, Any]) -> bool:
    """Tell whether the flow that leads back has caught up, so that it can be switched over."""
    return bool(status["state"] == CopyState.CAUGHT_UP)
