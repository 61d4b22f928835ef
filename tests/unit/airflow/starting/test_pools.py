"""The pool of the tasks that have no end."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from onceover_airflow.starting import forms
from onceover_airflow.starting.pools import AUDIT_POOL_VARIABLE, POOL_VARIABLE, SLOTS_VARIABLE, copy_pool
from onceover_airflow.tasks import replicating
from onceover_lab.embed import airflow_config
from tests.system.test_dags import DAGS

# Who stays: a copy, and groups that are kept in place.
LASTING = {
    ("replicate", "replicate"),
    ("replicate_always", "replicate"),
    *(("sync_group_offsets_always", task) for task in ("plan_groups", "approve_moves", "apply_groups")),
}


@pytest.fixture
def flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One flow that never ends, in all that it does; one that is synchronised now and then."""
    always = 'schedules: {replicate: "@continuous", sync_group_offsets: "@continuous"}'
    (tmp_path / "always.yaml").write_text(f"flow: always\n{always}\n")
    (tmp_path / "hourly.yaml").write_text('flow: hourly\nschedules: {sync_group_offsets: "@hourly"}\n')
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))


def pools() -> dict[tuple[str, str], str]:
    """Return the pool of each task."""
    bag = DagBag(DAGS, collect_dags=True)
    assert bag.import_errors == {}
    return {
        (dag_id, task_id): task.pool
        for dag_id, dag in bag.dags.items()
        for task_id, task in dag.task_dict.items()
    }


@pytest.mark.parametrize("named", [None, ""])
def test_nobody_waits_for_a_pool_that_nobody_has_made(
    named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose pool does not exist never runs: without a word it is Airflow's own."""
    monkeypatch.delenv(POOL_VARIABLE, raising=False)
    if named is not None:
        monkeypatch.setenv(POOL_VARIABLE, named)
    assert copy_pool() == "default_pool"


def test_only_what_has_no_end_is_in_the_pool(flows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Approvals, audits, plans and reports never wait behind copies."""
    monkeypatch.setenv(POOL_VARIABLE, "some_pool")
    assert {task for task, pool in pools().items() if pool == "some_pool"} == LASTING
    assert {pool for task, pool in pools().items() if task not in LASTING} == {"default_pool"}


def test_scheduled_audits_are_bounded_and_those_of_people_are_not(
    flows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of an audit's tasks waits for nothing."""
    monkeypatch.setenv(AUDIT_POOL_VARIABLE, "few")
    assert {task for task, pool in pools().items() if pool == "few"} == {
        ("audit_always", "audit"),
        ("audit_hourly", "audit"),
    }


@pytest.mark.parametrize(("slots", "runs"), [(None, 64), ("", 64), ("12", 64), ("40", 160), ("many", 64)])
def test_runs_by_hand_wait_for_slots_and_never_for_each_other(
    slots: str | None, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One beyond those that a DAG may have is queued without a word, and a failback waits for it all day."""
    monkeypatch.delenv(SLOTS_VARIABLE, raising=False)
    if slots is not None:
        monkeypatch.setenv(SLOTS_VARIABLE, slots)
    assert forms.by_hand()["max_active_runs"] == runs
    assert forms.on_schedule("x", "@daily")["max_active_runs"] == 1


def test_the_embedded_airflow_names_the_pool_as_the_dags_do() -> None:
    """Its variables are written down twice, in rooms that do not know each other."""
    assert airflow_config.POOL_VARIABLE == POOL_VARIABLE
    assert airflow_config.SLOTS_VARIABLE == SLOTS_VARIABLE
    assert airflow_config.AUDIT_POOL_VARIABLE == AUDIT_POOL_VARIABLE
    assert airflow_config.COPY_SLOTS + airflow_config.AUDIT_SLOTS < airflow_config.PARALLELISM


@pytest.fixture
def asked(flows: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Airflow's answers to how many copies there are, by DAG; a pool of three."""
    answers: dict[str, Any] = {}

    def count(*, dag_id: str, task_ids: list[str], states: list[str]) -> int:
        assert (task_ids, states) == (["replicate"], ["scheduled", "queued", "running"])
        if isinstance(answers[dag_id], Exception):
            raise answers[dag_id]
        return int(answers[dag_id])

    context = {"ti": SimpleNamespace(get_ti_count=count), "dag_run": SimpleNamespace(run_type="manual")}
    monkeypatch.setattr(replicating, "get_current_context", lambda: context)
    monkeypatch.setattr(replicating, "check_flow", lambda flow: {"flow": flow, "lanes": 1})
    monkeypatch.setenv(POOL_VARIABLE, "some_pool")
    monkeypatch.setenv(SLOTS_VARIABLE, "3")
    return answers


@pytest.mark.parametrize(("own", "waits"), [(1, False), (2, True)])
def test_a_copy_that_waits_for_a_slot_says_so(
    asked: dict[str, Any], own: int, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it waits: its own task has no log then. Copies of all DAGs count."""
    asked.update(replicate=own, replicate_always=1)
    with caplog.at_level(logging.WARNING):
        assert replicating.check_copy("x") == {"flow": "x", "lanes": 1}
    assert (f"{own + 1} copies run or wait, and the pool some_pool has 3 slots" in caplog.text) is waits


def test_a_count_that_fails_stops_no_copy(asked: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """It is a hint only."""
    asked["replicate"] = AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR))
    with caplog.at_level(logging.INFO):
        assert replicating.check_copy("x")["flow"] == "x"
    assert "how many copies run is not known" in caplog.text


@pytest.mark.parametrize("variable", [POOL_VARIABLE, SLOTS_VARIABLE])
def test_without_a_pool_nobody_is_asked(
    asked: dict[str, Any], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an Airflow that knows of no slots."""
    monkeypatch.delenv(variable)
    assert replicating.check_copy("x")["flow"] == "x"
