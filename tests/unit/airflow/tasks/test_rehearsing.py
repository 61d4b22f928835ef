"""What the end of a rehearsal means for its task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.drills.rehearsing.rehearsal import RehearsalOutcome
from onceover.planning.plan import Refusal
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.tasks.rehearsing import judge


def outcome(exit_code: int, code: str) -> RehearsalOutcome:
    waiting = [Refusal("a step", code, "what it was", "what resolves it")]
    told: Any = SimpleNamespace(exit_code=exit_code, waiting=waiting, findings=(), verdict="FAIL")
    return cast(RehearsalOutcome, told)


@pytest.mark.parametrize(
    ("exit_code", "code", "error"),
    [
        (5, "Retriable", JobInterrupted),
        (3, "CANARY_LOST", TaskFailed),
    ],
)
def test_only_a_cluster_that_is_away_is_tried_again(
    exit_code: int, code: str, error: type[Exception]
) -> None:
    """Whatever it was is in the message, with the report."""
    with pytest.raises(error, match=r"what resolves it.*report: page\.html"):
        judge("orders-dr", outcome(exit_code, code), "page.html")
