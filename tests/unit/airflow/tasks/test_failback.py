"""The tasks of ``failback``: what is not wanted stops it, and what is there already is not done again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, DagRunTriggerException

from onceover.drills.switching.failback import LedBack
from onceover.wiring.failovers import failback as wired
from onceover_airflow.access.flowcontext import errors_of_ours
from onceover_airflow.approvals.approval import ANSWER_KEY, SHOWN_KEY
from onceover_airflow.errors import TaskFailed
from onceover_airflow.tasks import failback
from onceover_airflow.tasks.failback import AwaitCaughtUp, StartReplicating
from onceover_airflow.tasks.orphans import ORPHANS, OrphanTasks
from onceover_airflow.tasks.switching import SwitchTasks


class Pulled:
    """A task that finds what earlier ones have left."""

    def __init__(self, left: Mapping[str, set[str]]) -> None:
        self._left = left
        self.pushed: dict[str, Any] = {}
        self.state = "running"

    def xcom_pull(self, *, task_ids: str, key: str) -> object:
        if task_ids == "start":
            return self.pushed.get(key)
        return key if key in self._left.get(task_ids, set()) else None

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.pushed[key] = value

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        assert (dag_id, run_id) == ("replicate", self.pushed["started"]["run"])
        return self.state


def context_of(left: Mapping[str, set[str]] = MappingProxyType({}), *, apply: bool = True) -> Any:
    return {"ti": Pulled(left), "params": {"topics": None, "rebuild": True, "apply": apply}}


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What status says of the flow that leads back; all that was promoted is taken in."""
    said: dict[str, Any] = {
        "flow": "orders-back",
        "state": "copying",
        "generation": 7,
        "needs": [],
        "led": LedBack(frozenset({"orders"})),
    }

    @contextmanager
    def at_hand(_: str) -> Iterator[Any]:
        with errors_of_ours():
            yield SimpleNamespace(flow="orders"), SimpleNamespace(flow="orders-back")

    monkeypatch.setattr(failback, "way_back_at_hand", at_hand)
    monkeypatch.setattr(failback, "show_standing", lambda _: said)
    monkeypatch.setattr(wired, "promoted_copies", lambda *_: ["orders"])
    monkeypatch.setattr(wired, "what_is_led_back", lambda *_: said["led"])
    return said


@pytest.mark.parametrize("approval", ["approve_orphans", "approve_progress"])
def test_behind_a_no_nothing_is_started(standing: dict[str, Any], approval: str) -> None:
    asked, answered = {approval: {SHOWN_KEY}}, {approval: {SHOWN_KEY, ANSWER_KEY}}
    standing["state"] = "not_started"
    start = StartReplicating(task_id="start", flow="orders")
    with pytest.raises(AirflowSkipException, match=approval):
        start.execute(context_of(asked))
    with pytest.raises(AirflowSkipException, match="only a plan"):
        start.execute(context_of(answered, apply=False))
    with pytest.raises(DagRunTriggerException) as started:
        start.execute(context_of(answered))
    assert started.value.conf == {"flow": "orders-back", "run_length": "forever"}
    assert started.value.dag_run_id.startswith("orders-back__")


def test_one_that_runs_is_not_started_again(standing: dict[str, Any]) -> None:
    with pytest.raises(AirflowSkipException, match="runs"):
        StartReplicating(task_id="start", flow="orders").execute(context_of())


def test_what_was_not_led_back_is_named_before_anybody_waits(standing: dict[str, Any]) -> None:
    standing["led"] = LedBack()
    for look in (
        StartReplicating(task_id="start", flow="orders").execute,
        AwaitCaughtUp(task_id="wait", flow="orders", started="start").poke,
    ):
        with pytest.raises(TaskFailed, match="orders-back does not take in orders; where: 1 topics"):
            look(context_of())


def test_where_clients_have_gone_back_nothing_is_copied_or_waited_for(standing: dict[str, Any]) -> None:
    """Killed behind the promotion of the way back and started again: what is left is the switchover's."""
    orders = frozenset({"orders"})
    standing |= {"state": "promoted", "led": LedBack(orders, orders)}
    for look in (
        StartReplicating(task_id="start", flow="orders").execute,
        AwaitCaughtUp(task_id="wait", flow="orders", started="start").poke,
    ):
        with pytest.raises(AirflowSkipException, match="orders-back has nothing to copy"):
            look(context_of())


def test_what_clients_have_gone_back_to_is_not_exported_as_a_tail(
    standing: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others' tails are: they come back in waves."""
    monkeypatch.setattr(failback, "get_current_context", context_of)
    monkeypatch.setattr(OrphanTasks, "plan", lambda *_: {"flow": "orders"})
    monkeypatch.setattr(wired, "gone_back", lambda *_: frozenset({"bills"}))
    assert failback.ORPHANS_BACK.plan("orders") == {"flow": "orders"}
    assert (failback.ORPHANS_BACK.besides("orders"), ORPHANS.besides("orders")) == ({"bills"}, ())
    standing["led"] = LedBack(frozenset({"orders"}), frozenset({"orders"}))
    with pytest.raises(AirflowSkipException, match="clients have gone back"):
        failback.ORPHANS_BACK.plan("orders")


@pytest.mark.parametrize("finished", [True, False])
def test_a_switchover_that_is_not_finished_is_gone_on_with_and_no_other(
    standing: dict[str, Any], monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    """Behind its end there is nothing left to plan."""
    monkeypatch.setattr(failback, "get_current_context", context_of)
    monkeypatch.setattr(wired, "went_back", lambda *_: finished)
    monkeypatch.setattr(SwitchTasks, "plan", lambda *_: {"flow": "orders-back"})
    if finished:
        with pytest.raises(
            AirflowSkipException, match="seed apply orders --from promoted:orders-back --replace"
        ):
            failback.BACK.plan("orders")
    else:
        assert failback.BACK.plan("orders") == {"flow": "orders-back"}


def test_it_waits_for_what_comes_and_for_nothing_else(standing: dict[str, Any]) -> None:
    wait = AwaitCaughtUp(task_id="wait", flow="orders", started="start")
    assert not wait.poke(context_of())
    standing["state"] = "caught_up"
    assert wait.poke(context_of())
    standing |= {"state": "stopped", "needs": [{"message": "a topic is gone", "resolve": "reseed"}]}
    with pytest.raises(TaskFailed, match="is stopped: a topic is gone; reseed"):
        wait.poke(context_of())


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_run_of_before_that_is_over_is_not_the_one_that_was_started(
    standing: dict[str, Any], state: str
) -> None:
    """Airflow, the check and Spark take longer to begin with it than the first look does."""
    standing["state"] = "stopped"
    context = context_of()
    with pytest.raises(DagRunTriggerException):
        StartReplicating(task_id="start", flow="orders").execute(context)
    wait = AwaitCaughtUp(task_id="wait", flow="orders", started="start")
    context["ti"].state = state
    assert not wait.poke(context)
    context["ti"].state = "failed"
    with pytest.raises(TaskFailed, match="is stopped"):
        wait.poke(context)
    context["ti"].state, standing["generation"] = state, 8
    with pytest.raises(TaskFailed, match="is stopped"):
        wait.poke(context)
