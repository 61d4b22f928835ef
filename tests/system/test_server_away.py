"""Airflow's API server is killed beside a copy, and comes back: the copy knows nothing of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from onceover_lab.embed.airflow import AirflowStandalone, State
from tests.support.brokers.clusters import SharedCluster
from tests.support.commands.replicate import run_cli
from tests.support.session.wait import wait_until
from tests.system.lasting import DAG, STEP_S, LastingFlow, bring_back, lasting_flow

# One more than Airflow's default lets fail.
FAILED = 4

# Airflow takes half a minute and more until so many have failed.
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
    with lasting_flow("sys-alone", airflow, folder=flows, home=var, **sides) as flow:
        yield flow


def test_a_copy_outlives_airflows_server(
    flow: LastingFlow, airflow: AirflowStandalone, airflow_environ: dict[str, str]
) -> None:
    """It copies what comes while nobody hears its task: the same driver, which ends well in its first try."""
    run_id = airflow.trigger(DAG, flow.conf)
    pid = flow.driver()["pid"]
    flow.await_caught_up()
    log = airflow.home / "scheduler.log"
    before = len(log.read_text())
    server = psutil.Process(State.read(airflow.home).processes["api-server"])
    os.killpg(server.pid, signal.SIGKILL)
    try:
        wait_until(
            lambda: f"failed_heartbeats={FAILED} " in log.read_text()[before:],
            STEP_S,
            "Airflow has not heard of the task for long",
            poll_s=1.0,
        )
        flow.source.feed(flow.topic, 100)
        flow.await_caught_up()
    finally:
        bring_back(airflow, airflow_environ)
    assert flow.driver()["pid"] == pid

    flow.source.feed(flow.topic, 100)
    flow.await_caught_up()
    code, _ = run_cli(flow.home, "stop", str(flow.path))
    assert code == 0
    assert airflow.wait_run(DAG, run_id, timeout_s=STEP_S) == "success"
    assert len(airflow.task_tries(DAG, run_id, "replicate")) == 1
