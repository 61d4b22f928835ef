"""What a flow file asks for: who ended a run on purpose wakes nobody, and a run that never came is missed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onceover.config.flow.flowfile import Flow
from onceover.metrics.expected import is_unended, lag_limit_s, run_due_s, wanted
from onceover.state.records.runstate import RunState
from tests.support.worlds.statusentries import running_entry

HOUR_S = 3600.0
# A Saturday, six in the morning.
WRITTEN = datetime(2026, 1, 3, 6, tzinfo=UTC).timestamp()
FENCED = {"code": "FENCED", "message": "x", "resolve": "x", "exit": 3}


def flow(replicate: str | None, rpo: str = "0 records") -> Flow:
    return Flow.model_validate(
        {
            "flow": "orders",
            "source": {"alias": "east", "client": {"bootstrap.servers": "h:1"}},
            "target": {"alias": "west", "client": {"bootstrap.servers": "h:2"}},
            "topics": {"include": ["x"]},
            "schedules": {"replicate": replicate},
            "objectives": {"rpo": rpo},
            "path": Path("/x/orders.yaml"),
            "sha256": "0",
        }
    )


def entry(state: str, ended: str | None = None, since_s: float | None = None, **changes: Any) -> Any:
    since_ms = None if since_s is None else since_s * 1000
    run = {**running_entry()["run"], "state": state, "ended": ended, "since_ms": since_ms}
    return running_entry(run=run, **changes)


@pytest.mark.parametrize(
    ("told", "schedule", "expected"),
    [
        (entry("running"), None, 1),
        (entry("starting"), None, 1),
        (entry("gone"), None, 1),
        (entry("failed", "failed"), None, 1),
        (entry("unknown"), "@daily", None),
        (entry("ended", "done"), None, 0),
        (entry("ended", "asked"), None, 0),
        (entry("ended", "done"), "@daily", 1),
        # Somebody stopped it; or an older release, which did not say why it ended.
        (entry("ended", "asked"), "@daily", 0),
        (entry("ended"), "@daily", 0),
        # Its runs end when they are asked to, or by hand.
        (entry("ended", "done"), "@continuous", 0),
        (entry("ended", "done"), "@once", 0),
        (entry("not_started"), "@daily", 0),
        (entry("promoted"), "@daily", 0),
        (entry("fenced"), "@daily", 0),
        # A change of its progress has interrupted a copy.
        (entry("fenced", needs=[FENCED]), None, 1),
    ],
)
def test_a_flow_is_wanted_until_its_run_has_ended_and_between_two_scheduled_ones(
    told: Any, schedule: str | None, expected: float | None
) -> None:
    """Not where a person has ended it, or nothing begins it again."""
    assert wanted(told, flow(schedule)) == expected


@pytest.mark.parametrize(
    ("schedule", "rpo", "expected"),
    [
        (None, "0 records", 300),
        (None, "30s", 30),
        ("@hourly", "0 records", 1.5 * HOUR_S),
        ("@daily", "0 records", 36 * HOUR_S),
        ("@daily", "2h", 2 * HOUR_S),
        ("* * * * *", "0 records", 300),
        ("@continuous", "0 records", 300),
    ],
)
def test_what_is_missing_may_be_as_old_as_the_file_says(
    schedule: str | None, rpo: str, expected: float
) -> None:
    """By its objective, else by how long it waits between two runs."""
    assert lag_limit_s(flow(schedule, rpo)) == expected


@pytest.mark.parametrize(
    ("told", "schedule", "hours"),
    [
        (entry("not_started"), "0 0 * * *", 18),
        # It ended at seven, an hour behind the file.
        (entry("ended", "done", WRITTEN + HOUR_S), "0 * * * *", 2),
        (entry("ended", "asked", WRITTEN + HOUR_S), "@continuous", 1),
        (entry("fenced", None, WRITTEN + HOUR_S), "0 9 * * *", 3),
        # Nobody can have begun it by a file that was not there.
        (entry("ended", "done", WRITTEN - 9 * HOUR_S), "0 * * * *", 1),
        (entry("running", None, WRITTEN), "@daily", None),
        (entry("gone", None, WRITTEN), "@daily", None),
        (entry("promoted", None, WRITTEN), "@daily", None),
        (entry("unknown"), "@daily", None),
        (entry("ended", "done", WRITTEN), None, None),
        (entry("ended", "done", WRITTEN), "@once", None),
    ],
)
def test_the_next_run_is_due_when_its_schedule_says(told: Any, schedule: str | None, hours: float) -> None:
    """Counted from the end of the last one."""
    due_s = run_due_s(told, flow(schedule), WRITTEN * 1000)
    assert due_s == (None if hours is None else WRITTEN + hours * HOUR_S)


def test_a_run_that_never_said_that_it_ended_has_not() -> None:
    """Nobody but these samples tells of a driver that is gone; one that failed has said so."""
    unended = {state for state in RunState if is_unended(state)}
    assert unended == {RunState.STARTING, RunState.RUNNING, RunState.GONE}
