"""A switchover that finds another one unfinished: what it does then, and under whose approval."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.drills import chain as chains
from onceover.drills.looks.rpo import Objectives
from onceover.drills.switching import switchover as module
from onceover.drills.switching.switchover import Switchover, SwitchoverRequest
from onceover.errors import NeedsOperator, OnceoverError
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller
from tests.unit.drills.test_switching import enrolment, written


class Began(OnceoverError):
    """It was allowed to begin."""


@pytest.fixture
def switchover(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Switchover]:
    """Return what makes one of a flow with topics a and b, given what the journal and the state hold."""

    def make(promoted_by: str, approval: str, topics: Callable[[str], bool] | None = None) -> Switchover:
        said = {"mode": "unplanned", "approval": {"id": approval}}
        chain = written(("d1", chains.BEGUN, said), ("d1", chains.ENDED, {"result": "died"}))
        state = SimpleNamespace(enrolled={"a": enrolment("a"), "b": enrolment("b", promoted_by)})
        layout = SimpleNamespace(source_cluster_id="east", target_cluster_id="west")
        monkeypatch.setattr(module, "started", lambda *_: (state, layout))
        side = {"source": SimpleNamespace(alias="east"), "target": SimpleNamespace(alias="west")}
        fence = SimpleNamespace(check=lambda _: None)
        asked = {"fence": fence, "gone_back": tuple}
        parts = SimpleNamespace(flow="orders-dr", quiet_s=1.0, reverse=None, **asked, **side)
        journal = SimpleNamespace(read=lambda: chain)
        request = SwitchoverRequest("planned", topics, "a fence", "ann", None)

        def report(*_: object) -> None:
            raise Began("it begins")

        made = Switchover(
            lambda _: cast(Any, parts), request, cast(Any, journal), report, Objectives(1), cast(Any, None), 1
        )
        monkeypatch.setattr(module, "known", report)
        return made

    return make


def tried(operation: Switchover, approval: Approval) -> str:
    """Return how far a try comes: the code that it is refused with, or that it begins."""
    try:
        operation.apply(Caller(lambda _: None), approval)
    except Began:
        return "begins"
    except NeedsOperator as error:
        return error.code
    return "ends"


def approved(operation: Switchover, of: str) -> Approval:
    return Approval(of, Approval.of(operation.plan().items).items)


def test_a_yes_to_one_wave_is_none_to_what_another_has_left(
    switchover: Callable[..., Switchover],
) -> None:
    """Its own topics would stay where they are, and it would be told as done."""
    mine = approved(switchover("", "other"), "mine")
    assert tried(switchover("d1", "other"), mine) == "PLAN_CHANGED"
    assert tried(switchover("d1", "mine"), mine) == "begins"
    shown = switchover("d1", "other")
    assert tried(shown, approved(shown, "new")) == "begins"
    assert "go on with b" in shown.plan().describe()


def test_who_wants_other_topics_is_told_what_comes_first(switchover: Callable[..., Switchover]) -> None:
    """And how: in the mode in which it was begun."""
    with pytest.raises(NeedsOperator, match="d1") as refused:
        switchover("d1", "other", lambda topic: topic == "a").plan()
    assert refused.value.code == "PAST_RETURN"
    assert "`onceover drill run orders-dr --mode unplanned`" in str(refused.value.resolve)
    assert switchover("d1", "other", lambda topic: topic in "ab").plan().goes_on == "d1"
