"""docker-compose.yaml without an engine: its own commands, run as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

from onceover.process.children import ChildProcess
from onceover.spark.launch.locate import spark_submit
from onceover_lab.embed.airflow import make_database
from onceover_lab.embed.ports import PortReservation
from tests.support.clusters import SharedCluster
from tests.support.containers import PROJECT, Containers
from tests.support.wait import wait_until

# Seconds on an idle machine.
START_S = 90.0
TASKS_FIRST = PROJECT / "docker" / "tasks_first.py"


def free_ports(count: int) -> list[str]:
    """Return ports that nobody has."""
    reserved = [PortReservation() for _ in range(count)]
    ports = [str(each.port) for each in reserved]
    for each in reserved:
        each.release()
    return ports


def test_airflow_is_prepared_and_no_secret_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Database, pool and login, from files; Airflow makes no password of its own, which it would print."""
    containers = Containers(tmp_path, {})
    home, database = tmp_path / "opt" / "airflow", tmp_path / "airflow.db"
    home.mkdir(parents=True)
    # In place of PostgreSQL. From the cache: to make one takes longer than all else here.
    make_database(tmp_path, {**os.environ, "AIRFLOW_HOME": str(tmp_path)})
    (containers.secrets / "airflow_database").unlink()
    (containers.secrets / "airflow_database").write_text(f"sqlite:///{database}")
    log = tmp_path / "airflow-migrate.log"
    settings = containers.environment("airflow-migrate")
    passwords = Path(settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    # Of an earlier start, with another password.
    passwords.write_text("{}")
    assert containers.start("airflow-migrate").wait(START_S) == 0, log.read_text()
    assert passwords.read_text() == (containers.secrets / "airflow_passwords").read_text()
    assert stat.S_IMODE(passwords.stat().st_mode) == 0o600
    with sqlite3.connect(database) as connection:
        slots = dict(connection.execute("SELECT pool, slots FROM slot_pool").fetchall())
    connection.close()
    assert slots[settings["ONCEOVER_COPY_POOL"]] == int(settings["ONCEOVER_COPY_SLOTS"])
    for key in ("USERS", "PASSWORDS_FILE"):
        name = f"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_{key}"
        monkeypatch.setenv(name, settings[name])
    # As the API server does at its start.
    manager: Any = SimpleAuthManager
    manager().init()
    shown = log.read_text() + "".join(capsys.readouterr())
    # SQLite's address has no password; of another one Airflow shows stars.
    hidden = [path for path in containers.secrets.iterdir() if path.name != "airflow_database"]
    secrets = [path.read_text() for path in hidden]
    (password,) = json.loads(passwords.read_text()).values()
    assert [secret for secret in (*secrets, password) if secret in shown] == []
    assert "Password for user" not in shown


@pytest.fixture
def spark(tmp_path: Path) -> Containers:
    """The places of Spark's services."""
    port, web_port, worker_port = free_ports(3)
    master = {"spark-master:7077": f"127.0.0.1:{port}", "spark-master/7077": f"127.0.0.1/{port}"}
    pages = {"127.0.0.1/8081": f"127.0.0.1/{worker_port}"}
    containers = Containers(tmp_path, {**master, **pages, "spark-master": "127.0.0.1", "7077": port})
    # What a container has for itself.
    containers.services["spark-master"]["environment"]["SPARK_MASTER_WEBUI_PORT"] = web_port
    containers.services["spark-worker"]["environment"]["SPARK_WORKER_WEBUI_PORT"] = worker_port
    containers.services["spark-worker"]["environment"]["SPARK_LOCAL_IP"] = "127.0.0.1"
    return containers


def test_sparks_master_and_worker_meet_and_the_worker_works_on_its_volume(
    spark: Containers, tmp_path: Path
) -> None:
    """Both are well by their own checks, and the secret is in no command line, environment or log."""
    children: list[ChildProcess] = []
    try:
        for name in ("spark-master", "spark-worker"):
            children.append(spark.start(name))
            wait_until(partial(spark.is_well, name), START_S, f"{name} is well")
        log = tmp_path / "spark-worker.log"
        wait_until(
            lambda: "Successfully registered with master" in log.read_text(), START_S, "the worker is taken"
        )
        shown = log.read_text() + (tmp_path / "spark-master.log").read_text()
        for child in children:
            process = psutil.Process(child.pid)
            shown += " ".join([*process.cmdline(), *process.environ().values()])
    finally:
        ended = [child.stop() for child in reversed(children)]
    # Where it works by default: beside its installation, which in the image is root's.
    assert not (spark_submit().parents[1] / "work").exists()
    assert (spark.secrets / "spark_secret").read_text() not in shown
    # A stop reaches the JVM: neither waits to be killed.
    assert ended == [128 + signal.SIGTERM] * 2


def test_the_metrics_are_told_without_a_place_to_write(
    tmp_path: Path, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> None:
    """The demo's flow, as Prometheus scrapes it and as the health check asks."""
    (port,) = free_ports(1)
    containers = Containers(
        tmp_path,
        {
            "kafka-east:29092": source_cluster.bootstrap,
            "kafka-west:29092": target_cluster.bootstrap,
            "9464": port,
            "0.0.0.0": "127.0.0.1",  # noqa: S104 - what is replaced
        },
    )
    exporter = containers.start("onceover-metrics")
    try:
        wait_until(lambda: containers.is_well("onceover-metrics"), START_S, "the exporter is well")
    finally:
        code = exporter.stop()
    assert code == 0, exporter.tail()


# A scheduler as it was seen: its worker passes the signal on to its task, and it waits for both. The task's
# driver has a session of its own, hears of the end from the task, and outlives it.
_TREE = """
import os, signal, subprocess, sys, time
part, folder = sys.argv[1:3]
def start(name, **options):
    return subprocess.Popen([sys.executable, "-c", os.environ["TREE"], name, folder], **options)
def on_term(act):
    signal.signal(signal.SIGTERM, lambda *_: act())
def note(text):
    with open(f"{folder}/{part}", "a") as file:
        file.write(text)
if part == "driver":
    asked = []
    on_term(lambda: asked.append(1))
    note(str(os.getpid()))
    while not asked:
        time.sleep(0.02)
    while not os.path.exists(f"{folder}/task-ended"):
        time.sleep(0.02)
    time.sleep(0.3)
    open(f"{folder}/committed", "w").close()
elif part == "task":
    driver = start("driver", start_new_session=True)
    on_term(lambda: (driver.terminate(), open(f"{folder}/task-ended", "w").close(), sys.exit(0)))
    note(str(os.getpid()))
    time.sleep(600)
elif part == "stubborn":
    on_term(lambda: None)
    note(str(os.getpid()))
    while True:
        time.sleep(600)
elif part == "worker":
    task = start(os.environ["TASK"], process_group=0)
    on_term(task.terminate)
    note(str(os.getpid()))
    task.wait()
else:
    worker = start("worker")
    on_term(lambda: None)
    note(str(os.getpid()))
    worker.wait()
"""


def tree(tmp_path: Path, task: str, patience_s: float) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start such a scheduler by the script; return it, and all processes of the tree once they are there."""
    command = [sys.executable, str(TASKS_FIRST), str(patience_s), sys.executable, "-c", _TREE]
    env = {**os.environ, "TREE": _TREE, "TASK": task}
    stopper = subprocess.Popen([*command, "scheduler", str(tmp_path)], env=env, text=True)
    parts = ["scheduler", "worker", task, *(["driver"] if task == "task" else [])]
    wait_until(lambda: all((tmp_path / part).exists() for part in parts), START_S, "the tree stands")
    pids = [wait_until((tmp_path / part).read_text, START_S, part) for part in parts]
    return stopper, [psutil.Process(int(pid)) for pid in pids]


def test_a_stop_lets_a_driver_finish_that_outlives_its_task(tmp_path: Path) -> None:
    """One signal to one process, as an engine sends it: nothing is killed, and nothing is left."""
    stopper, processes = tree(tmp_path, "task", 60.0)
    stopper.terminate()
    assert stopper.wait(START_S) == 0
    assert (tmp_path / "committed").exists()
    assert [each for each in processes if each.is_running()] == []


def test_a_task_that_does_not_end_is_killed_in_time(tmp_path: Path) -> None:
    """Before the engine kills all at once, without a word in the log."""
    stopper, processes = tree(tmp_path, "stubborn", 0.5)
    stopper.terminate()
    assert stopper.wait(START_S) == 128 + signal.SIGKILL
    assert [each for each in processes if each.is_running()] == []


def test_a_scheduler_that_ends_by_itself_takes_its_tasks_along(tmp_path: Path) -> None:
    """They are tried again by the next one; nobody would watch them until then."""
    stopper, processes = tree(tmp_path, "stubborn", 60.0)
    processes[0].kill()
    assert stopper.wait(START_S) == 128 + signal.SIGKILL
    assert [each for each in processes if each.is_running()] == []
