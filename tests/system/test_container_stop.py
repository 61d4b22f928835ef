"""The scheduler of docker-compose.yaml is stopped as an engine stops it, in the middle of a copy."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from onceover.process.children import ChildProcess
from onceover_lab.embed.airflow import AirflowStandalone, State, environment_of, marked
from onceover_lab.embed.up import airflow as upairflow
from tests.support.clusters import SharedCluster
from tests.support.containers import Containers
from tests.support.flows import InlineFlow
from tests.support.wait import wait_until
from tests.system.conftest import PROJECT, Side, read_again

DAG, FLOW = "replicate", "sys-stopped"
TOPIC = f"{FLOW}.records"
# Seconds on an idle machine.
STEP_S = 200.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture
def flow(
    flows: Path, airflow: AirflowStandalone, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Path]:
    """A flow with records to copy."""
    document = {
        "flow": FLOW,
        "source": {"alias": "one", "client": dict(source_cluster.client)},
        "target": {"alias": "other", "client": dict(target_cluster.client)},
        "topics": {"include": [f"{FLOW}[.].*"]},
        "lanes": 1,
        "schedules": {"audit": None, "rehearse": None},
    }
    path = flows / f"{FLOW}.yaml"
    path.write_text(yaml.safe_dump(document))
    source = Side(source_cluster.client)
    source.create(TOPIC)
    source.feed(TOPIC, 1000)
    wait_until(lambda: airflow.has_dag(DAG), STEP_S, "the DAG is read", poll_s=1.0)
    read_again(airflow, DAG)

    def offered() -> bool:
        details = airflow.call("GET", f"/api/v2/dags/{DAG}/details")
        return FLOW in details["params"]["flow"]["schema"]["enum"]

    # What was being read meanwhile did not have it yet.
    wait_until(offered, STEP_S, "the form offers the flow", poll_s=1.0)
    yield path
    path.unlink()


@pytest.fixture
def containers(
    airflow: AirflowStandalone, airflow_environ: dict[str, str], tmp_path: Path
) -> Iterator[Containers]:
    """The services' commands; the scheduler that runs is taken away, and brought back in the end."""
    scheduler = psutil.Process(State.read(airflow.home).processes["scheduler"])
    os.killpg(scheduler.pid, signal.SIGTERM)
    psutil.wait_procs([scheduler], STEP_S)
    yield Containers(tmp_path, {})
    upairflow.up(
        airflow.home,
        dags=PROJECT / "dags",
        plugins=PROJECT / "plugins",
        environ=airflow_environ,
        note=lambda _: None,
    )


def start(containers: Containers, airflow: AirflowStandalone, environ: dict[str, str]) -> ChildProcess:
    """Start the scheduler by the file's own command; its settings are those of this Airflow."""
    env = environment_of(airflow.home, str(State.read(airflow.home).mark), environ)
    return ChildProcess.start(
        containers.command("airflow-scheduler"),
        name="airflow-scheduler",
        log_path=airflow.home / "container-scheduler.log",
        env=env,
        cwd=airflow.home,
    )


def driver(var: Path, *, after: int = 0) -> dict[str, Any]:
    """Wait for the note of a driver, another one than ``after``, that has committed something."""

    def noted() -> dict[str, Any] | None:
        path = var / FLOW / "driver.json"
        note: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return note if note.get("pid", after) != after and psutil.pid_exists(note["pid"]) else None

    return wait_until(noted, STEP_S, "a driver runs", poll_s=0.5)


def caught_up(flow: Path) -> bool:
    """Tell whether the target has all that the source has."""
    status = InlineFlow(flow).status()
    partitions = status["partitions"]
    return bool(partitions) and all(each["lag_offsets"] == 0 for each in partitions)


def test_a_stop_ends_the_copy_in_order_and_a_start_goes_on_with_it(
    flow: Path,
    containers: Containers,
    airflow: AirflowStandalone,
    airflow_environ: dict[str, str],
    var: Path,
    source_cluster: SharedCluster,
) -> None:
    """One SIGTERM to one process: the driver ends as one that was asked to, and Airflow tries again."""
    others = {process.pid for process in marked(State.read(airflow.home).mark)}
    scheduler = start(containers, airflow, airflow_environ)
    run_id = airflow.trigger(DAG, {"flow": FLOW, "run_length": "forever"})
    first = driver(var)
    wait_until(lambda: caught_up(flow), STEP_S, "the flow is caught up", poll_s=1.0)
    left = [p for p in marked(State.read(airflow.home).mark) if p.pid not in others]
    patience_s = float(containers.services["airflow-scheduler"]["command"][2])
    scheduler.send_signal(signal.SIGTERM)
    code = scheduler.wait(patience_s + 5.0)

    assert code == 0, scheduler.tail()
    assert first["pid"] in {process.pid for process in left}
    assert [process for process in left if process.is_running()] == []
    task = airflow.tasks(DAG, run_id)["replicate"]
    assert (task["state"], airflow.run_state(DAG, run_id)) == ("up_for_retry", "running")
    log = airflow.task_logs(DAG, run_id, "replicate", 1)
    assert "asking the driver to stop" in log
    assert "did not stop in time" not in log
    # Ended, not dead: status would say so.
    assert InlineFlow(flow).status()["run"]["state"] == "ended"

    Side(source_cluster.client).feed(TOPIC, 100)
    scheduler = start(containers, airflow, airflow_environ)
    try:
        second = driver(var, after=first["pid"])
        wait_until(lambda: caught_up(flow), STEP_S, "the flow has gone on", poll_s=1.0)
        os.kill(second["pid"], signal.SIGTERM)
        wait_until(lambda: airflow.run_state(DAG, run_id) != "running", STEP_S, "the run ends", poll_s=1.0)
        tries = airflow.task_tries(DAG, run_id, "replicate")
    finally:
        scheduler.stop(STEP_S)
    assert len(tries) == 2
