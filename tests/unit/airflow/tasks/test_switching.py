"""The tasks of ``failover_drill``: what a person is shown of an unplanned switchover."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from onceover.drills.switching.plan import SwitchoverPlan, changes_of
from onceover.drills.switching.standing import SourceStanding
from onceover.state.records.enrolment import Enrolment
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.tasks import operation, switching
from onceover_airflow.tasks.switching import DRILL, drill_params

ORDERS = Enrolment("orders", "orders", UUID(int=1), UUID(int=2), {0: 0}, 0)


def question(missing: int | None, *, answers: bool, wakes: bool = False) -> str:
    copies = {"orders": str(ORDERS.target_id)}
    standing = SourceStanding(
        "orders-dr", "east", 1, int(answers), False, {"orders": missing}, {}, copies, wakes, wakes
    )
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


def test_a_person_is_shown_what_nobody_can_fence() -> None:
    """It is no loss; which records these would be, nobody knows."""
    (row,) = [line for line in question(20, answers=True, wakes=True).splitlines() if "sure end" in line]
    assert "should it wake, what it has in hand comes again" in row
    assert "not known" not in row
    assert "sure end" not in question(20, answers=True)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"topics": "orders"}, "topics"),
        ({"take_over": True, "whatever_is_lost": True}, "take_over, whatever_is_lost"),
        ({}, ""),
    ],
)
def test_a_look_does_not_leave_out_what_was_filled_in(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], named: str
) -> None:
    """Who names topics would take what it says for theirs alone."""
    params = {name: param.value for name, param in drill_params().items()} | {"flow": "orders-dr"} | given
    monkeypatch.setattr(switching, "get_current_context", lambda: {"params": params})

    @contextmanager
    def looked(_: str) -> Iterator[None]:
        raise AirflowSkipException("it looks")
        yield

    monkeypatch.setattr(switching, "flow_at_hand", looked)
    if not named:
        with pytest.raises(AirflowSkipException, match="it looks"):
            DRILL.plan("orders-dr")
        return
    with pytest.raises(TaskFailed, match=f"{named}: not for the mode dry-run"):
        DRILL.plan("orders-dr")


def test_a_task_that_is_told_to_end_while_it_opens_its_clusters_begins_no_drill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Airflow's own handler would have heard of it, and done nothing: an unplanned one could promote yet."""
    applied: list[object] = []

    class Asked(switching.SwitchTasks):
        @contextmanager
        def opened(self, name: str, context: object) -> Iterator[Any]:
            os.kill(os.getpid(), signal.SIGTERM)
            yield SimpleNamespace(apply=lambda *given: applied.append(given))

        def undoing(self, name: str) -> Any:
            return None

    context = {"params": {"apply": True, "mode": "unplanned"}}
    for module in (operation, switching):
        monkeypatch.setattr(module, "get_current_context", lambda: context)
    monkeypatch.setattr(operation, "approved", lambda *_: SimpleNamespace(items=["orders"]))
    ours = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with pytest.raises(JobInterrupted, match="told to end"):
            Asked().apply("orders-dr")
    finally:
        signal.signal(signal.SIGTERM, ours)
    assert applied == []
