"""Whose the records of an old source's topic are."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from onceover.drills.orphans.whose import copied_by, why_not_alone
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.state.records.enrolment import Enrolment, LeftAt, Promoted
from onceover.state.records.ownership import Claim
from onceover.topics.otherflows import OtherFlow

HERE, THERE, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
INFO = TopicInfo("t", HERE, {0: PartitionInfo(1, 0)}, is_internal=False)
# Promoted at 1,000, copied up to offset 10.
MINE = Enrolment(
    "t",
    "t",
    HERE,
    THERE,
    {0: 0},
    100,
    active=False,
    left=LeftAt(1, 1_000),
    promoted=Promoted(1, "d", {0: 10}),
)
CUTS = {0: 10}
BACK = Enrolment("t", "t", THERE, HERE, {0: 0}, 2_000)
LEFT = replace(BACK, active=False, left=LeftAt(1, 3_000))
PROMOTED = replace(LEFT, promoted=Promoted(1, "e", {0: 14}))
EARLIER = replace(PROMOTED, at_ms=200, left=LeftAt(1, 500), promoted=Promoted(1, "e", {0: 8}))


def flow(each: Enrolment) -> list[OtherFlow]:
    return [OtherFlow("back", ("there", "here"), (each,))]


def test_who_copies_to_it_is_named() -> None:
    assert copied_by("t", flow(BACK)) == "back"
    assert copied_by("t", flow(replace(BACK, target="u"))) is None
    assert copied_by("t", flow(LEFT)) is None


def test_who_is_about_to_take_it_in_is_waited_for() -> None:
    """A claim may be all that is left of a flow that has died: nothing is exported as if there were none."""
    other = OtherFlow("back", ("there", "here"), (), (Claim("t", "t", 5),))
    assert copied_by("t", [other]) is None
    assert "is about to copy" in (why_not_alone(MINE, INFO, [other], CUTS) or "")


@pytest.mark.parametrize(
    ("each", "part"),
    [
        (PROMOTED, "has promoted it here"),
        # Whatever has become of the topic that it was given out in.
        (replace(PROMOTED, target_id=OTHER), "has promoted it here"),
        (LEFT, "has copied to it since"),
        # An older release has not kept when.
        (replace(LEFT, left=None), "has copied to it since"),
        (replace(EARLIER, left=None), "has promoted it here"),
        # The clocks say before; what was copied behind that promotion does not.
        (replace(EARLIER, promoted=Promoted(1, "e", {0: 11})), "has promoted it here"),
        # Of one partition nobody knows any more where it ended then.
        (replace(EARLIER, start={0: 0, 1: 0}), "has promoted it here"),
    ],
)
def test_what_came_back_since_is_no_orphan(each: Enrolment, part: str) -> None:
    assert part in (why_not_alone(MINE, INFO, flow(each), CUTS) or "")


@pytest.mark.parametrize(
    "each",
    [
        # On the second way out: it was brought back, promoted, and has gone the other way again.
        EARLIER,
        replace(EARLIER, promoted=None),
        # Into a topic of that name that is not there any more.
        replace(LEFT, target_id=OTHER),
        replace(PROMOTED, target="u"),
    ],
)
def test_what_came_before_or_elsewhere_is_no_reason(each: Enrolment) -> None:
    assert why_not_alone(MINE, INFO, flow(each), CUTS) is None


def test_a_promotion_of_which_nobody_knows_when_is_no_older_one() -> None:
    assert why_not_alone(replace(MINE, left=None), INFO, flow(EARLIER), CUTS) is not None
