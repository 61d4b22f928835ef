"""How a run stands: the words that people are told, and who has to come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceover.errors import Fatal, NeedsOperator, OnceoverError, Retriable
from onceover.state.records.layout import ASKED, DONE, FAILED, Layout
from onceover.state.records.runstate import (
    SILENT_AFTER_MS,
    RunState,
    describe_run,
    read_heartbeat,
    run_need,
    run_of,
)

NOW_MS = 1_700_000_000_000
LAYOUT = Layout(
    generation=3,
    run="a",
    lanes=2,
    fence_up_to=2,
    ready=True,
    source_cluster_id="s",
    target_cluster_id="t",
    flow_sha256="0",
    started_at_ms=NOW_MS - 600_000,
    host="box",
)
NEW = replace(LAYOUT, started_at_ms=NOW_MS - 5_000)


def beat(silent_ms: int, run: str = "a") -> dict[str, Any]:
    return {"run": run, "at_ms": NOW_MS - silent_ms, "pid": 7}


@pytest.mark.parametrize(
    ("layout", "heartbeat", "expected"),
    [
        (None, None, RunState.NOT_STARTED),
        (replace(NEW, ready=False), None, RunState.STARTING),
        (NEW, None, RunState.STARTING),
        (NEW, beat(10_000, run="older"), RunState.STARTING),
        (LAYOUT, beat(SILENT_AFTER_MS - 1), RunState.RUNNING),
        (LAYOUT, beat(SILENT_AFTER_MS), RunState.GONE),
        (LAYOUT, None, RunState.GONE),
        (replace(LAYOUT, ready=False), None, RunState.GONE),
        (LAYOUT.as_ended(NOW_MS, DONE), beat(1), RunState.ENDED),
        (LAYOUT.as_ended(NOW_MS, ASKED), beat(SILENT_AFTER_MS), RunState.ENDED),
        (replace(LAYOUT, ended_at_ms=NOW_MS), None, RunState.ENDED),
        (LAYOUT.as_ended(NOW_MS, FAILED, Fatal("boom")), beat(1), RunState.FAILED),
        (replace(NEW, ready=False, seized=True), None, RunState.FENCED),
    ],
)
def test_signs_of_life_and_the_layout_tell_how_a_run_stands(
    layout: Layout | None, heartbeat: dict[str, Any] | None, expected: RunState
) -> None:
    """Silence is never taken for running, nor for an end in order."""
    run = run_of(layout, heartbeat, NOW_MS)

    assert run.state is expected
    needed = expected in (RunState.GONE, RunState.FAILED)
    assert (run_need("orders", run, NOW_MS) is not None) is needed


def test_a_driver_that_is_gone_is_told_with_the_command_that_helps() -> None:
    """Since when, who it was, and what to type."""
    need = run_need("orders", run_of(LAYOUT, beat(252_000), NOW_MS), NOW_MS)

    assert need is not None
    assert need["code"] == "DRIVER_GONE"
    assert "7 on box is gone: no sign of life for 4 min 12 s" in need["message"]
    assert "`onceover replicate orders`" in need["resolve"]


@pytest.mark.parametrize(("error", "corrects"), [(Fatal("boom"), True), (Retriable("boom"), False)])
def test_nobody_is_told_to_correct_what_passes(error: OnceoverError, corrects: bool) -> None:
    """A killed process has no cause in the flow; what it was is said in words either way."""
    layout = Layout.from_json(LAYOUT.as_ended(NOW_MS, FAILED, error).to_json())
    need = run_need("orders", run_of(layout, None, NOW_MS), NOW_MS)

    assert need is not None
    assert need["message"].endswith("failed 0.0 s ago: boom")
    assert ("correct the cause" in need["resolve"], "`onceover replicate orders`" in need["resolve"]) == (
        corrects,
        True,
    )


@pytest.mark.parametrize("silent_ms", [6_000, 3_600_000, -3_600_000, None])
@pytest.mark.parametrize("interrupted", [True, False])
def test_a_change_by_hand_needs_a_start_only_where_a_copy_was_running(
    silent_ms: int | None, interrupted: bool
) -> None:
    """Whoever seeds a flow that does not run yet has fenced nobody; no machine's clock decides about it."""
    layout = replace(NEW, ready=False, seized=True, interrupted=interrupted)
    run = run_of(layout, None if silent_ms is None else beat(silent_ms, run="older"), NOW_MS)

    need = run_need("orders", run, NOW_MS)
    assert (need is not None) is interrupted
    assert need is None or need["code"] == "FENCED"


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (LAYOUT.as_ended(NOW_MS - 1_300, ASKED), "ended 1.3 s ago: it was asked to"),
        (LAYOUT.as_ended(NOW_MS - 1_300, DONE), "ended 1.3 s ago: it was done"),
        (replace(LAYOUT, ended_at_ms=NOW_MS - 1_300), "ended 1.3 s ago"),
        (LAYOUT, "gone: no sign of life for 10 min"),
        (None, "not started yet"),
    ],
)
def test_people_are_told_the_word(layout: Layout | None, text: str) -> None:
    """Ended, crashed and starting are not one word."""
    assert describe_run(run_of(layout, None, NOW_MS).document(NOW_MS)) == text


@pytest.mark.parametrize("value", [[], 5, {}, {**beat(1), "pid": None}, {**beat(1), "at_ms": "soon"}])
def test_a_sign_of_life_that_is_none_is_said(value: object) -> None:
    """With its key, not with what computing with it ends in."""
    assert read_heartbeat(None) is None
    assert read_heartbeat({"v": 1, **beat(1)}) == {**beat(1), "source_ms": 0}
    with pytest.raises(NeedsOperator, match="heartbeat") as refused:
        read_heartbeat(value)
    assert refused.value.code == "STATE_UNREADABLE"
