"""The tasks of ``failover_drill``: what a person is shown of an unplanned switchover."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceover.drills.switching.plan import SwitchoverPlan, changes_of
from onceover.drills.switching.standing import SourceStanding
from onceover.state.records.enrolment import Enrolment
from onceover_airflow.tasks.switching import DRILL

ORDERS = Enrolment("orders", "orders", UUID(int=1), UUID(int=2), {0: 0}, 0)


def question(missing: int | None, *, answers: bool) -> str:
    standing = SourceStanding("orders-dr", "east", 1, int(answers), False, {"orders": missing}, {})
    changes = changes_of([ORDERS], "east", "west", None, "ann", None, standing)
    return DRILL.question(
        SwitchoverPlan(
            operation="switchover",
            flow="orders-dr",
            mode="unplanned",
            changes=changes,
            topics=("orders",),
            steps=(),
            standing=standing,
        )
    )


@pytest.mark.parametrize(
    ("missing", "answers", "parts"),
    [
        (None, False, ("east does not answer", "| not known |")),
        (20, True, ("east answers", "| 20 offsets |", "a planned switchover would lose nothing")),
    ],
)
def test_a_person_is_shown_what_is_lost_and_what_is_given_up(
    missing: int | None, answers: bool, parts: tuple[str, ...]
) -> None:
    text = question(missing, answers=answers)
    for part in parts:
        assert part in text, (part, text)
    assert ("would lose nothing" in text) == answers
