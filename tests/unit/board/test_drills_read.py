"""What the page is told of a flow's drills where their journal cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceover.config.values import Rpo
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.wiring import board as module


@pytest.mark.parametrize(
    ("error", "codes", "exit_code"),
    [
        (NeedsOperator("somebody wrote there", code="JOURNAL_DAMAGED"), ["JOURNAL_DAMAGED"], 3),
        # The target is slow: it passes.
        (Retriable("west is slow"), [], 0),
    ],
)
def test_a_journal_that_is_not_in_order_waits_for_somebody(
    monkeypatch: pytest.MonkeyPatch, error: OnceoverError, codes: list[str], exit_code: int
) -> None:
    """It is no small print in the section of drills; when the next one is due is known from the file."""

    def unreadable(*_: object) -> Any:
        raise error

    monkeypatch.setattr(module, "drill_history", unreadable)
    objectives = SimpleNamespace(rto_ms=900_000, rpo=Rpo(records=0))
    flow: Any = SimpleNamespace(
        flow="orders", objectives=objectives, schedules=SimpleNamespace(rehearse="@weekly")
    )
    entry = {"needs": [], "exit": 0, "drills": None, "drills_error": None}
    told = module.with_drills(entry, flow, 1.0)
    assert ([need["code"] for need in told["needs"]], told["exit"]) == (codes, exit_code)
    assert error.message in told["drills_error"]
    assert told["drills"]["drills"] == []
    assert told["drills"]["next_ms"]
