"""What the workers report of a connector: when it is stopped, and when it has failed."""

from __future__ import annotations

import pytest

from onceover.connectors.model import ConnectorState, TaskState


@pytest.mark.parametrize(
    ("state", "tasks", "stopped", "failed"),
    [
        ("STOPPED", (), True, False),
        ("STOPPED", ("RUNNING",), False, False),
        # Written by a worker after the leader had removed the tasks: nobody takes them back.
        ("STOPPED", ("UNASSIGNED",), True, False),
        ("STOPPED", ("FAILED", "UNASSIGNED"), True, False),
        ("STOPPED", ("FAILED", "RUNNING"), False, False),
        ("RUNNING", ("FAILED", "RUNNING"), False, True),
        ("PAUSED", ("FAILED",), False, True),
        ("FAILED", (), False, True),
        ("UNASSIGNED", (), False, False),
    ],
)
def test_only_tasks_that_may_write_keep_a_connector_from_being_stopped(
    state: str, tasks: tuple[str, ...], stopped: bool, failed: bool
) -> None:
    reported = tuple(TaskState(number, each, "worker:8083") for number, each in enumerate(tasks))
    seen = ConnectorState("it", "source", state, reported)
    assert (seen.is_stopped, seen.has_failed) == (stopped, failed)
