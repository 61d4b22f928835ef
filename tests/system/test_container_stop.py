"""The scheduler of docker-compose.yaml is stopped as an engine stops it, in the middle of a copy."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from onceover.process.children import ChildProcess
from onceover_lab.embed.airflow import AirflowStandalone, State, environment_of, marked
from tests.support.brokers.clusters import SharedCluster
from tests.support.brokers.containers import Containers
from tests.support.flows.flows import InlineFlow
from tests.support.session.wait import wait_until
from tests.system.lasting import DAG, STEP_S, LastingFlow, bring_back, lasting_flow

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture
def flow(
    flows: Path,
    var: Path,
    airflow: AirflowStandalone,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
) -> Iterator[LastingFlow]:
    """A flow with records to copy."""
    sides = {"source": source_cluster.client, "target": target_cluster.client}
    with lasting_flow("sys-stopped", airflow, folder=flows, home=var, **sides) as flow:
        yield flow


@pytest.fixture
def containers(
    airflow: AirflowStandalone, airflow_environ: dict[str, str], tmp_path: Path
) -> Iterator[Containers]:
    """The services' commands; the scheduler that runs is taken away, and brought back in the end."""
    scheduler = psutil.Process(State.read(airflow.home).processes["scheduler"])
    os.killpg(scheduler.pid, signal.SIGTERM)
    psutil.wait_procs([scheduler], STEP_S)
    yield Containers(tmp_path, {"http://airflow-api-server:8080": airflow.url})
    bring_back(airflow, airflow_environ)


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


def test_a_stop_ends_the_copy_in_order_and_a_start_goes_on_with_it(
    flow: LastingFlow,
    containers: Containers,
    airflow: AirflowStandalone,
    airflow_environ: dict[str, str],
) -> None:
    """One SIGTERM to one process: the driver ends as one that was asked to, and Airflow tries again."""
    others = {process.pid for process in marked(State.read(airflow.home).mark)}
    scheduler = start(containers, airflow, airflow_environ)
    run_id = airflow.trigger(DAG, flow.conf)
    first = flow.driver()
    flow.await_caught_up()
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
    assert InlineFlow(flow.path).status()["run"]["state"] == "ended"

    flow.source.feed(flow.topic, 100)
    scheduler = start(containers, airflow, airflow_environ)
    try:
        second = flow.driver(after=first["pid"])
        flow.await_caught_up()
        os.kill(second["pid"], signal.SIGTERM)
        wait_until(lambda: airflow.run_state(DAG, run_id) != "running", STEP_S, "the run ends", poll_s=1.0)
        tries = airflow.task_tries(DAG, run_id, "replicate")
    finally:
        scheduler.stop(STEP_S)
    assert len(tries) == 2
