"""What the journal tells of drills: one that has begun and not ended waits for somebody, perhaps."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.drills import chain as chains
from onceover.drills.history import DrillHistory
from tests.unit.drills.test_switching import written

HOUR_MS = 3_600_000
AT: Any = ("d1", chains.STEP, {"step": "redirect", "state": "running"})


def history(mode: str, *more: Any, after_ms: int = 1000) -> DrillHistory:
    chain = written(("d1", chains.BEGUN, {"mode": mode}), AT, *more)
    return DrillHistory("orders-dr", chain, chain[0].at_ms + after_ms)


@pytest.mark.parametrize("mode", ["planned", "unplanned"])
def test_a_switchover_that_has_not_ended_is_told_with_its_step_and_what_to_do(mode: str) -> None:
    """It may wait for a person; or its process was killed, with writers kept off, or clients nowhere."""
    told = history(mode)
    assert told.unended is not None
    assert "it is at redirect" in told.unended.message
    for command in ("drill confirm orders-dr redirect", f"drill run orders-dr --mode {mode}", "drill abort"):
        assert command in str(told.unended.resolve)
    assert told.unended.message in told.describe()


@pytest.mark.parametrize("mode", ["rehearsal", "orphans"])
def test_what_keeps_nobody_waiting_is_told_once_it_takes_too_long(mode: str) -> None:
    """It goes on beside everything else, and leaves only topics of its own."""
    assert history(mode).unended is None
    told = history(mode, after_ms=2 * HOUR_MS).unended
    assert told is not None and "drill confirm" not in str(told.resolve)


def test_what_has_ended_waits_for_nobody() -> None:
    ended: Any = ("d1", chains.ENDED, {"result": "PASS"})
    assert history("planned", ended, after_ms=2 * HOUR_MS).unended is None
    assert DrillHistory("orders-dr", [], 0).unended is None
