"""Two logins at one Airflow, both with its weakest role that may start a run: whose yes counts, and for what.

What they send is what Airflow's REST lets everybody of that role send: they keep, delete and put back XComs,
mark and clear tasks, delete runs and use their names again.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from onceover.errors import UsageError
from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.airflow_rest import AirflowRest
from tests.support.session.wait import wait_until
from tests.system.wishing import APPLY, ASK, DAG, DONE_VARIABLE, PEOPLE, PLAN, password_of

# Seconds on an idle machine.
_STEP_TIMEOUT_S = 200.0


class Login(AirflowRest):
    """Somebody who has logged in."""

    def __init__(self, airflow: AirflowStandalone, name: str) -> None:
        super().__init__(int(airflow.url.rpartition(":")[2]), username=name, password=password_of(name))
        self.name = name
        self._scheduler_log = airflow.home / "scheduler.log"

    def start(self, wish: str) -> str:
        """Start a run, under a name of their choice; return its name once it asks."""
        (run_id,) = self.start_all(wish)
        return run_id

    def start_all(self, *wishes: str) -> list[str]:
        """Start runs at once; return their names once all of them ask."""
        names = [f"run-{uuid.uuid4().hex}" for _ in wishes]
        for run_id, wish in zip(names, wishes, strict=True):
            body = {"logical_date": None, "dag_run_id": run_id, "conf": {"wish": wish}}
            self.call("POST", f"/api/v2/dags/{DAG}/dagRuns", body)
        for run_id in names:
            self._asked(run_id)
        return names

    def _asked(self, run_id: str) -> None:
        """Wait until the run asks, and the scheduler has seen that its process waits."""

        def waits() -> bool:
            seen = sum(
                "Received executor event with state" in line and run_id in line and f"'{ASK}'" in line
                for line in self._scheduler_log.read_text().splitlines()
            )
            return self.states(run_id)[ASK] == "awaiting_input" and seen > 0

        wait_until(waits, _STEP_TIMEOUT_S, f"{run_id} asks", poll_s=0.3)

    def states(self, run_id: str) -> dict[str, str]:
        """Return the tasks' states."""
        return {task: str(each["state"]) for task, each in self.tasks(DAG, run_id).items()}

    def answer(self, run_id: str, option: str) -> None:
        """Answer the question of a run."""
        body = {"chosen_options": [option], "params_input": {}}
        self.call("PATCH", f"{_task(run_id, ASK)}/-1/hitlDetails", body)

    def ended(self, run_id: str) -> dict[str, str]:
        """Wait for the end of a run; return its tasks' states."""
        self.wait_run(DAG, run_id, timeout_s=_STEP_TIMEOUT_S)
        return self.states(run_id)

    def said(self, run_id: str, task: str) -> str:
        """Return what the last try of a task logged."""
        return self.task_logs(DAG, run_id, task, int(self.tasks(DAG, run_id)[task]["try_number"]))

    def put_back(self, run_id: str, key: str, value: Any) -> None:
        """Write an XCom of the asking task."""
        entries = f"{_task(run_id, ASK)}/xcomEntries"
        try:
            self.call("POST", entries, {"key": key, "value": value, "map_index": -1})
        except UsageError:
            self.call("PATCH", f"{entries}/{key}", {"value": value, "map_index": -1})

    def mark(self, run_id: str, task: str, state: str) -> None:
        """Mark a task."""
        self.call("PATCH", _task(run_id, task), {"new_state": state})

    def clear(self, run_id: str, *tasks: str) -> None:
        """Clear tasks; the run goes on."""
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": tasks, "only_failed": False}
        self.call("POST", f"/api/v2/dags/{DAG}/clearTaskInstances", {**body, "reset_dag_runs": True})

    def remove(self, run_id: str) -> None:
        """Delete a run, whose name is free then."""
        self.call("PATCH", _run(run_id), {"state": "failed"})
        self.call("DELETE", _run(run_id))


def _run(run_id: str) -> str:
    return f"/api/v2/dags/{DAG}/dagRuns/{quote(run_id, safe='')}"


def _task(run_id: str, task: str) -> str:
    return f"{_run(run_id)}/taskInstances/{task}"


@pytest.fixture(scope="module")
def two(airflow: AirflowStandalone) -> tuple[Login, Login]:
    """Ann and Bob, at an Airflow that has a DAG which wants another person's answer."""
    wait_until(lambda: airflow.has_dag(DAG), _STEP_TIMEOUT_S, "the DAG is read")
    ann, bob = (Login(airflow, name) for name in PEOPLE)
    return ann, bob


@pytest.fixture
def done(airflow_environ: dict[str, str]) -> Path:
    """What was done, a line each."""
    path = Path(airflow_environ[DONE_VARIABLE])
    path.write_text("")
    return path


def test_the_yes_of_another_person_counts_and_ones_own_does_not(two: tuple[Login, Login], done: Path) -> None:
    """Ann starts two runs, and says yes to the one herself."""
    ann, bob = two
    alone, together = ann.start_all("a", "b")
    ann.answer(alone, "Approve")
    bob.answer(together, "Approve")
    assert ann.ended(alone)[APPLY] == "failed"
    assert "ann has also started the run" in ann.said(alone, APPLY)
    assert set(ann.ended(together).values()) == {"success"}
    who = {"by": "bob", "started_by": "ann", "run": f"{DAG}/{together}"}
    done_for, consent = json.loads(done.read_text())
    assert consent.pop("waited_s") > 0
    assert (done_for, consent) == (["b"], who)


@pytest.mark.soak
def test_the_name_of_a_run_that_was_deleted_is_no_way_to_a_yes_for_something_else(
    two: tuple[Login, Login], done: Path
) -> None:
    """What the first run showed is kept, and put in the place of what Bob is shown."""
    ann, bob = two
    name = ann.start("dangerous")
    shown = ann.xcom(DAG, name, ASK, "onceover_shown")
    ann.remove(name)

    body = {"logical_date": None, "dag_run_id": name, "conf": {"wish": "harmless"}}
    ann.call("POST", f"/api/v2/dags/{DAG}/dagRuns", body)
    assert ann.ended(name)[ASK] == "failed"
    assert "puts it once" in ann.said(name, ASK)

    other = ann.start("harmless")
    ann.put_back(other, "onceover_shown", shown)
    bob.answer(other, "Approve")
    assert ann.ended(other)[ASK] == "failed"
    assert "another question" in ann.said(other, ASK)
    assert done.read_text() == ""


@pytest.mark.soak
def test_a_yes_counts_once_and_does_not_outlive_its_run(two: tuple[Login, Login], done: Path) -> None:
    """Whoever clears the task that has done it does not have it done again.

    Nor whoever has kept it: the run is deleted, and another one of its name and wish is marked as answered.
    """
    ann, bob = two
    name = ann.start("once")
    bob.answer(name, "Approve")
    assert ann.ended(name)[APPLY] == "success"
    ann.clear(name, APPLY)
    assert ann.ended(name)[APPLY] == "failed"
    assert "another question" in ann.said(name, APPLY)
    assert len(done.read_text().splitlines()) == 1
    answer = ann.xcom(DAG, name, ASK, "onceover_answer")
    ann.remove(name)

    body = {"logical_date": None, "dag_run_id": name, "conf": {"wish": "once"}}
    ann.call("POST", f"/api/v2/dags/{DAG}/dagRuns", body)
    assert ann.ended(name)[ASK] == "failed"
    ann.put_back(name, "onceover_answer", answer)
    ann.mark(name, ASK, "success")
    ann.clear(name, APPLY)
    assert ann.ended(name)[APPLY] == "failed"
    assert "another question" in ann.said(name, APPLY)
    assert len(done.read_text().splitlines()) == 1


@pytest.mark.soak
def test_a_run_that_was_rejected_or_cleared_asks_nobody_again(two: tuple[Login, Login], done: Path) -> None:
    """Bob takes his own run back; Ann, who clears it, would be alone with it."""
    ann, bob = two
    taken_back = bob.start("taken back")
    bob.answer(taken_back, "Reject")
    assert ann.ended(taken_back)[ASK] == "success"
    ann.clear(taken_back, PLAN, ASK, APPLY)
    assert ann.ended(taken_back)[ASK] == "failed"
    assert "was cleared" in ann.said(taken_back, ASK)
    assert done.read_text() == ""
