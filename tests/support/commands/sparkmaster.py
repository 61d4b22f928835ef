"""A standalone Spark cluster on loopback, and what its and a job's pages show and let anybody do."""

from __future__ import annotations

import json
import os
import secrets
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from onceover.process.children import ChildProcess
from onceover.spark.launch.locate import spark_submit
from onceover_lab.embed.ports import PortReservation
from tests.support.commands.replicate import START_S
from tests.support.session.wait import wait_until

_ANSWER_S: Final = 30.0
# As docs/operations.md says that a master and its workers are set up.
_DAEMON: Final = (
    "-Dspark.authenticate=true",
    "-Dspark.network.crypto.enabled=true",
    "-Dspark.network.crypto.authEngineVersion=2",
    "-Dspark.network.crypto.cipher=AES/GCM/NoPadding",
    "-Dspark.network.crypto.saslFallback=false",
    "-Dspark.ui.killEnabled=false",
    "-Dspark.master.rest.enabled=false",
)


class SparkMaster:
    """A standalone master, with the workers that a test wants; a context manager that ends them all.

    Args:
        guarded: it talks to nobody without the secret, and encrypts.
    """

    def __init__(self, folder: Path, *, guarded: bool = True) -> None:
        self._folder = folder
        self._bin = spark_submit().parent
        self.secret = secrets.token_urlsafe(24)
        guard = {"_SPARK_AUTH_SECRET": self.secret, "SPARK_DAEMON_JAVA_OPTS": " ".join(_DAEMON)}
        self._env = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            **(guard if guarded else {}),
        }
        self._children: list[ChildProcess] = []
        self.url = ""

    def __enter__(self) -> SparkMaster:
        reserved = [PortReservation(), PortReservation()]
        port, web_port = (reservation.port for reservation in reserved)
        for reservation in reserved:
            reservation.release()
        self.url = f"spark://127.0.0.1:{port}"
        arguments = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
        master = self._start("master", "org.apache.spark.deploy.master.Master", *arguments)
        wait_until(lambda: master.listens_on(port), START_S, "the master listens")
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.stop()

    def worker(self) -> ChildProcess:
        """Start a worker of one core."""
        name = f"worker-{len(self._children)}"
        options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
        work = ("--work-dir", str(self._folder / name))
        return self._start(name, "org.apache.spark.deploy.worker.Worker", *options, *work, self.url)

    def command_lines(self, *others: int) -> list[str]:
        """Return those of all processes of the cluster, of others, and of what they have started."""
        lines = []
        for pid in (*others, *(child.pid for child in self._children)):
            own = psutil.Process(pid)
            for process in (own, *own.children(recursive=True)):
                # Some live for a moment only.
                with suppress(psutil.NoSuchProcess):
                    lines.append(" ".join(process.cmdline()))
        return lines

    def _start(self, name: str, kind: str, *arguments: str) -> ChildProcess:
        command = [str(self._bin / "spark-class"), kind, *arguments]
        log = self._folder / f"{name}.log"
        child = ChildProcess.start(command, name=name, log_path=log, env=self._env)
        self._children.append(child)
        return child


def press_kill(ui: str) -> str:
    """Ask a job's UI to kill all that runs, as its buttons would; return the page where they would be."""
    page = _read(f"{ui}/jobs/")
    for job in json.loads(_read(f"{_application(ui)}/jobs?status=running")):
        _read(f"{ui}/jobs/job/kill/?id={job['jobId']}", b"")
    return page


def settings_shown(ui: str) -> str:
    """Return what a job's UI tells about its settings, to people and to programs."""
    return _read(f"{ui}/environment/") + _read(f"{_application(ui)}/environment")


def driver_port(ui: str) -> int:
    """Return where a job's driver listens for its executors, as its UI tells."""
    settings = dict(json.loads(_read(f"{_application(ui)}/environment"))["sparkProperties"])
    return int(settings["spark.driver.port"])


def _application(ui: str) -> str:
    (application,) = json.loads(_read(f"{ui}/api/v1/applications"))
    return f"{ui}/api/v1/applications/{application['id']}"


def _read(url: str, posted: bytes | None = None) -> str:
    with urllib.request.urlopen(url, posted, timeout=_ANSWER_S) as answer:  # noqa: S310 - a UI of ours
        return str(answer.read().decode())
