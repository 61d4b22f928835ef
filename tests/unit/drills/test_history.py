"""What the journal tells of drills: one that has begun and not ended waits for somebody, perhaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceover.drills import chain as chains
from onceover.drills.history import DrillHistory
from tests.unit.drills.test_switching import written

HOUR_MS = 3_600_000
AT: Any = ("d1", chains.STEP, {"step": "redirect", "state": "running"})


def history(mode: str, *more: Any, at: Any = AT, after_ms: int = 1000) -> DrillHistory:
    chain = written(("d1", chains.BEGUN, {"mode": mode}), *([at] if at else []), *more)
    return DrillHistory("orders-dr", chain, chain[-1].at_ms + after_ms)


def at(step: str, state: str = "running") -> Any:
    return ("d1", chains.STEP, {"step": step, "state": state})


@pytest.mark.parametrize("step", ["fence", "redirect"])
@pytest.mark.parametrize("mode", ["planned", "unplanned"])
def test_a_switchover_that_may_wait_for_a_person_is_told_with_its_step(mode: str, step: str) -> None:
    """Or its process was killed, with writers kept off, or clients nowhere."""
    told = history(mode, at=at(step))
    assert told.unended is not None
    assert f"it has been at {step} for" in told.unended.message
    assert f"onceover drill confirm orders-dr {step}`" in str(told.unended.resolve)
    assert told.unended.message in told.describe()


@pytest.mark.parametrize("began", [None, at("audit")])
def test_one_that_gets_on_needs_nobody_and_one_that_does_not_is_told(began: Any) -> None:
    """Nobody can confirm what nobody is asked."""
    assert history("planned", at=began).unended is None
    late = history("planned", at=began, after_ms=HOUR_MS).unended
    assert late is not None and "drill confirm" not in str(late.resolve)
    assert "`onceover drill abort orders-dr`" in str(late.resolve)


def test_behind_the_point_of_no_return_nothing_is_taken_back() -> None:
    told = history("planned", at("redirect"), at=at("promote", "done")).unended
    assert told is not None and "abort" not in str(told.resolve)
    assert "run it again as it was started" in str(told.resolve)


@pytest.mark.parametrize(("mode", "is_told"), [("rehearsal", True), ("orphans", False)])
def test_what_keeps_nobody_waiting_is_told_once_it_takes_too_long(mode: str, *, is_told: bool) -> None:
    """A rehearsal is over by then, whatever happens; an export takes what it takes."""
    assert history(mode).unended is None
    assert (history(mode, after_ms=2 * HOUR_MS).unended is not None) == is_told


def test_what_has_ended_waits_for_nobody() -> None:
    ended: Any = ("d1", chains.ENDED, {"result": "PASS"})
    assert history("planned", ended, after_ms=2 * HOUR_MS).unended is None
    assert DrillHistory("orders-dr", [], 0).unended is None


@pytest.mark.parametrize(
    ("runs", "is_told"), [(None, True), ("rehearsal", True), ("planned", False), (chains.ABORT_MODE, False)]
)
def test_writers_whom_a_switchover_that_is_over_keeps_off_are_told(runs: str | None, is_told: bool) -> None:
    """Whatever its end was called; one that goes on lets them in itself."""
    over: list[Any] = [("d1", chains.BEGUN, {"mode": "planned"}), ("d1", chains.ENDED, {"result": "died"})]
    chain = written(*over, *([("d2", chains.BEGUN, {"mode": runs})] if runs else []))
    told = DrillHistory("orders-dr", chain, chain[-1].at_ms, {"orders"})
    assert (told.standing is not None) == is_told
    assert ("writers of 1 topics are kept off" in told.describe()) == is_told
    if told.standing is not None:
        assert [each.code for each in told.needs] == ["STILL_FENCED"]
        assert "`onceover drill abort orders-dr` lets them in again" in str(told.standing.resolve)
    assert told.document()["kept_off"] == ["orders"]
    assert DrillHistory("orders-dr", chain, chain[-1].at_ms).standing is None


def test_whoever_lets_writers_in_and_does_not_get_there_hides_nobody_that_is_kept_off() -> None:
    """Its process is gone, or a cluster is: each of its tries is a drill of its own."""
    entries: list[Any] = [("d1", chains.BEGUN, {"mode": "planned"}), ("d1", chains.ENDED, {"result": "died"})]
    entries += [("abort-1", chains.BEGUN, {"mode": chains.ABORT_MODE}), ("abort-1", chains.ENDED, {})]
    chain = written(*entries, ("abort-2", chains.BEGUN, {"mode": chains.ABORT_MODE}))
    again = chain[-1].at_ms + 60_000
    tried = [*chain[:-1], replace(chain[-1], at_ms=again)]
    assert DrillHistory("orders-dr", chain, chain[-1].at_ms + 5000, {"orders"}).needs == []
    for known, now_ms in ((chain, again), (tried, again + 1000)):
        told = DrillHistory("orders-dr", known, now_ms, {"orders"})
        assert [each.code for each in told.needs] == ["STILL_FENCED"]
