"""Whose the records of an old source's topic are: the old ones', or what has come back to it since. Pure.

Invariant: of a topic that another flow has brought anything to since the switchover, or whose copy there is
promoted, nothing counts as an orphan: clients may write to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceover.kafka.ports import TopicInfo
from onceover.state.records.enrolment import Enrolment
from onceover.topics.otherflows import OtherFlow


def copied_by(topic: str, others: Sequence[OtherFlow]) -> str | None:
    """Return the name of the flow that copies to a topic by now; None without one."""
    for other in others:
        if any(each.active and each.target == topic for each in other.enrolments):
            return other.name
    return None


def why_not_alone(
    enrolment: Enrolment, here: TopicInfo, others: Sequence[OtherFlow], cuts: Mapping[int, int]
) -> str | None:
    """Return why what a topic holds behind its cut may be what came back, or was written since.

    Args:
        enrolment: the topic's, promoted; ``here`` the topic as it is now.
        others: the flows that write to the old source.
        cuts: up to where each partition was copied.
    """
    for other in others:
        if any(claim.target == enrolment.source for claim in other.claims):
            return (
                f"flow {other.name} is about to copy to it: what it holds behind the cut may come from there"
            )
        for each in other.enrolments:
            if each.target != enrolment.source or each.active:
                continue
            if each.promoted is not None and not _is_before(each, enrolment, cuts):
                return (
                    f"flow {other.name} has brought it back, and a switchover has promoted it here: clients "
                    "write to it, and it may be their only copy"
                )
            is_this = each.promoted is None and each.target_id == here.topic_id
            if is_this and not _was_left_before(each, enrolment):
                return f"flow {other.name} has copied to it since: what it holds behind the cut may be that"
    return None


def _is_before(theirs: Enrolment, mine: Enrolment, cuts: Mapping[int, int]) -> bool:
    """Tell whether a topic was promoted before it went the other way again, which is the newest promotion.

    By two clocks, which may differ, and by what was copied behind that promotion. One that was written again
    by a part of its marks does not tell the ends of all.
    """
    ends = {} if theirs.promoted is None else theirs.promoted.ends
    reached = theirs.start.keys() <= ends.keys() and all(cuts.get(p, -1) >= end for p, end in ends.items())
    return reached and _was_left_before(theirs, mine)


def _was_left_before(theirs: Enrolment, mine: Enrolment) -> bool:
    if theirs.left is None or mine.left is None:
        # An older release has not kept when.
        return False
    return max(theirs.at_ms, theirs.left.at_ms) < mine.left.at_ms
