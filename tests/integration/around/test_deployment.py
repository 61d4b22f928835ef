"""docker-compose.yaml without an engine: its own commands, run as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

from onceover.process.children import ChildProcess
from onceover.spark.launch.locate import spark_submit
from onceover_lab.embed.airflow import make_database
from onceover_lab.embed.ports import PortReservation
from tests.support.brokers.clusters import SharedCluster
from tests.support.brokers.containers import PROJECT, Containers
from tests.support.session.wait import wait_until

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
    for kind in ("COPY", "AUDIT"):
        assert slots[settings[f"ONCEOVER_{kind}_POOL"]] == int(settings[f"ONCEOVER_{kind}_SLOTS"])
    for key in ("USERS", "PASSWORDS_FILE"):
        name = f"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_{key}"
        monkeypatch.setenv(name, settings[name])
    # As the API server does at its start.
    manager: Any = SimpleAuthManager
    manager().init()
    shown = log.read_text() + "".join(capsys.readouterr())
    # SQLite's address has no password; of another one Airflow shows stars.
    files = [path for path in containers.secrets.iterdir() if path.is_file()]
    hidden = [path for path in files if path.name != "airflow_database"]
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


@pytest.mark.soak
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


def test_the_metrics_are_told(
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


# What Airflow's API server says of the database and the scheduler.
SILENT = ("healthy", "unhealthy")
ALIVE = ("healthy", "healthy")
AWAY = ("unhealthy", "unhealthy")


class Health:
    """Airflow's API server, as far as it says how Airflow is: one thing after the other, the last one on."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = [SILENT]
        self.answers = 0
        health = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(health.answer())

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/"

    def answer(self) -> bytes:
        """Return the next answer."""
        self.answers += 1
        database, scheduler = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        said = {"metadatabase": {"status": database}, "scheduler": {"status": scheduler}}
        return json.dumps(said).encode()


@pytest.fixture
def health() -> Iterator[Health]:
    """An API server that says what the test has it say: at first that no scheduler runs."""
    health = Health()
    thread = threading.Thread(target=health.server.serve_forever)
    thread.start()
    yield health
    health.server.shutdown()
    thread.join()
    health.server.server_close()


def begin(
    tmp_path: Path, health: Health, task: str, patience_s: float, silence_s: float = 300.0
) -> subprocess.Popen[str]:
    """Start such a scheduler by the script."""
    options = [str(patience_s), str(silence_s), health.address]
    command = [sys.executable, str(TASKS_FIRST), *options, sys.executable, "-c", _TREE]
    env = {**os.environ, "TREE": _TREE, "TASK": task}
    return subprocess.Popen([*command, "scheduler", str(tmp_path)], env=env, text=True)


def standing(tmp_path: Path, task: str) -> list[psutil.Process]:
    """Return all processes of the tree once they are there."""
    parts = ["scheduler", "worker", task, *(["driver"] if task == "task" else [])]
    wait_until(lambda: all((tmp_path / part).exists() for part in parts), START_S, "the tree stands")
    pids = [wait_until((tmp_path / part).read_text, START_S, part) for part in parts]
    return [psutil.Process(int(pid)) for pid in pids]


def test_a_stop_lets_a_driver_finish_that_outlives_its_task(tmp_path: Path, health: Health) -> None:
    """One signal to one process, as an engine sends it: nothing is killed, and nothing is left."""
    stopper = begin(tmp_path, health, "task", 60.0)
    processes = standing(tmp_path, "task")
    stopper.terminate()
    assert stopper.wait(START_S) == 0
    assert (tmp_path / "committed").exists()
    assert [each for each in processes if each.is_running()] == []


def test_a_task_that_does_not_end_is_killed_in_time(tmp_path: Path, health: Health) -> None:
    """Before the engine kills all at once, without a word in the log."""
    stopper = begin(tmp_path, health, "stubborn", 0.5)
    processes = standing(tmp_path, "stubborn")
    stopper.terminate()
    assert stopper.wait(START_S) == 128 + signal.SIGKILL
    assert [each for each in processes if each.is_running()] == []


def test_a_scheduler_that_ends_by_itself_takes_its_tasks_along(tmp_path: Path, health: Health) -> None:
    """They are tried again by the next one; nobody would watch them until then."""
    stopper = begin(tmp_path, health, "stubborn", 60.0)
    processes = standing(tmp_path, "stubborn")
    processes[0].kill()
    assert stopper.wait(START_S) == 128 + signal.SIGKILL
    assert [each for each in processes if each.is_running()] == []


def test_a_scheduler_that_schedules_no_more_is_ended_once_its_database_is_there(
    tmp_path: Path, health: Health
) -> None:
    """As Airflow's is when its loop has ended: it waits for copies that have no end, and looks alive.

    While the database is away nobody knows, and copies are left alone.
    """
    health.said = [SILENT, AWAY]
    stopper = begin(tmp_path, health, "task", 60.0, silence_s=0.4)
    processes = standing(tmp_path, "task")
    asked = health.answers
    # Far longer than it waits for a sign of life.
    wait_until(lambda: health.answers >= asked + 20, START_S, "it has asked")
    assert stopper.poll() is None
    health.said = [SILENT]
    assert stopper.wait(START_S) == 0
    assert (tmp_path / "committed").exists()
    assert [each for each in processes if each.is_running()] == []


def test_a_scheduler_begins_when_the_one_that_was_killed_is_forgotten(tmp_path: Path, health: Health) -> None:
    """Airflow's looks once at its start for what another one ran, and leaves a living one's tasks alone."""
    health.said = [ALIVE]
    stopper = begin(tmp_path, health, "task", 60.0)
    wait_until(lambda: health.answers >= 2, START_S, "it has asked")
    assert not (tmp_path / "scheduler").exists()
    health.said = [SILENT]
    standing(tmp_path, "task")
    stopper.terminate()
    assert stopper.wait(START_S) == 0


def test_a_stop_ends_what_has_not_begun(tmp_path: Path, health: Health) -> None:
    """At once, and without a scheduler."""
    health.said = [AWAY]
    stopper = begin(tmp_path, health, "task", 60.0)
    wait_until(lambda: health.answers >= 1, START_S, "it has asked")
    stopper.terminate()
    assert stopper.wait(START_S) == 0
    assert not (tmp_path / "scheduler").exists()
