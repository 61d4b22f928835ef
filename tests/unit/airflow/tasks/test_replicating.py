"""A copy that a schedule starts, beside one that runs already, or begins while it waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.state.records.runstate import FlowRun, RunState
from onceover.wiring import status
from onceover_airflow.access.flowcontext import errors_of_ours
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.flows import CAUGHT_UP, FOREVER
from onceover_airflow.jobs import leftalone

STARTED_MS = 1_790_000_000_000
Meet = Callable[..., None]


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Meet:
    """Begin a run, by a schedule unless said otherwise, where another one stands as it is said."""

    def begun(
        other: RunState | OnceoverError,
        *,
        run_type: str = "scheduled",
        run_length: str = CAUGHT_UP,
        begun_by: str | None = None,
    ) -> None:
        def newest_run(flow: Any) -> FlowRun:
            if isinstance(other, OnceoverError):
                raise other
            return FlowRun(state=other, started_ms=STARTED_MS, host="worker-7", begun_by=begun_by)

        @contextmanager
        def at_hand(flow: str) -> Iterator[str]:
            with errors_of_ours():
                yield flow

        run = SimpleNamespace(run_type=run_type, dag_id="replicate_nightly", run_id="scheduled__2")
        context: Any = {"dag_run": run, "params": {"run_length": run_length}}
        monkeypatch.setattr(leftalone, "flow_at_hand", at_hand)
        monkeypatch.setattr(status, "newest_run", newest_run)
        leftalone.leave_alone("nightly", context)

    return begun


@pytest.mark.parametrize("state", [RunState.STARTING, RunState.RUNNING])
def test_a_run_that_lives_is_left_alone(meet: Meet, state: RunState) -> None:
    """It says whose, since when, and what takes over nevertheless."""
    with pytest.raises(AirflowSkipException) as skipped:
        meet(state)
    told = str(skipped.value)
    assert "worker-7 since 2026-09-21 14:13:20 UTC" in told
    assert "trigger the DAG by hand" in told


def test_a_backfill_leaves_others_alone_too(meet: Meet) -> None:
    """Its runs are begun several at once: each would take over from the last one, which would fail."""
    with pytest.raises(AirflowSkipException):
        meet(RunState.RUNNING, run_type="backfill")


@pytest.mark.parametrize("state", sorted(set(RunState) - {RunState.STARTING, RunState.RUNNING}))
def test_a_run_that_does_not_live_is_in_nobodys_way(meet: Meet, state: RunState) -> None:
    meet(state)


def test_a_person_and_a_continuous_flow_take_over(meet: Meet) -> None:
    """A person means it; a run without an end leaves nobody behind who does not copy."""
    meet(RunState.RUNNING, run_type="manual")
    meet(RunState.RUNNING, run_length=FOREVER)


@pytest.mark.parametrize("state", [RunState.STARTING, RunState.RUNNING])
def test_an_earlier_try_of_the_same_run_is_its_own(meet: Meet, state: RunState) -> None:
    """A driver that was killed seems to live for a while: nobody copies, and the next try goes on."""
    meet(state, begun_by="replicate_nightly scheduled__2")
    with pytest.raises(AirflowSkipException):
        meet(state, begun_by="replicate_nightly scheduled__1")


def test_what_cannot_be_read_is_the_copys_own_matter(meet: Meet) -> None:
    """Which says what to do."""
    meet(NeedsOperator("unreadable"))


def test_nobody_is_fenced_because_the_target_did_not_answer(meet: Meet) -> None:
    """The task is tried again, and asks again."""
    with pytest.raises(JobInterrupted, match="away"):
        meet(Retriable("away"))
