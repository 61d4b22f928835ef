"""A spark-submit that does as it is told, for everything around the job."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onceover.spark.launch.submit import SparkJob

FLOW = """
flow: flights
source: {alias: east, connection: kafka_source}
target: {alias: west, client: {bootstrap.servers: "127.0.0.1:2"}}
topics: {include: ["flights.*"]}
"""
# Stands for spark-submit: starts the "driver" as its child, as the JVM does, and ends with its exit code.
SUBMIT = """#!{python}
import subprocess, sys
application = next(i for i, a in enumerate(sys.argv) if a.endswith("driver.py"))
code = subprocess.run([sys.executable, *sys.argv[application:]]).returncode
sys.exit(128 - code if code < 0 else code)
"""
DRIVER = """
import json, os, pathlib, signal, sys
told = json.loads(pathlib.Path(__file__).with_name("told.json").read_text())
def leave(*_):
    report = sys.argv[sys.argv.index("--report") + 1]
    if told["report"] is not None:
        pathlib.Path(report).write_text(json.dumps(told["report"]))
    sys.exit(told["exit"])
signal.signal(signal.SIGTERM, signal.SIG_IGN if told["deaf"] else leave)
saw = pathlib.Path(__file__).with_name("saw.json.new")
seen = {"argv": sys.argv, "environ": dict(os.environ), "pid": os.getpid(), "parent": os.getppid()}
seen["umask"] = os.umask(0o077)
seen["stdin"] = os.readlink("/proc/self/fd/0")
saw.write_text(json.dumps(seen))
saw.rename(saw.with_suffix(""))
note = pathlib.Path(os.environ["ONCEOVER_HOME"]) / "flights" / "driver.json"
if noted := told["ui"] or told["topics"]:
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"pid": os.getpid(), "ui": told["ui"], "topics": told["topics"]}))
print(*told["say"], sep="\\n", flush=True)
print("secret of the driver:", os.environ.get("AIRFLOW_CONN_KAFKA_SOURCE"), flush=True)
if told["signal"]:
    os.kill(os.getpid(), told["signal"])
while (told["stay"] or noted and not note.with_name("seen").exists()) and os.getppid() == seen["parent"]:
    signal.sigtimedwait([], 0.05)
leave()
"""


@dataclass(frozen=True)
class FakeSpark:
    """Where the fake driver reads what to do, and writes what it saw."""

    folder: Path
    job: SparkJob

    def tell(
        self, code: int = 0, *, report: Mapping[str, Any] | None = None, kill: int = 0, stay: bool = False,
        deaf: bool = False, say: Sequence[str] = (), ui: str | None = None,
        topics: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Say how the driver ends: report and exit code, or signal; ``stay`` until told or without JVM.

        With an address for its Spark UI, or with topics, it leaves a note of them, and stays until somebody
        has left the file ``seen`` beside it.
        """
        told: dict[str, Any] = {"exit": code, "report": report, "signal": kill, "stay": stay, "deaf": deaf}
        told |= {"say": list(say), "ui": ui, "topics": topics}
        (self.folder / "told.json").write_text(json.dumps(told))

    @property
    def saw(self) -> dict[str, Any] | None:
        """The driver's argv, environ, pid and parent, once it runs."""
        path = self.folder / "saw.json"
        saw: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        return saw


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ONCEOVER_HOME: where the key of approvals is made."""
    home = tmp_path / "onceover-home"
    monkeypatch.setenv("ONCEOVER_HOME", str(home))
    return home


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A fake spark-submit in place of the real one, and a flow named ``flights``."""
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(SUBMIT.format(python=sys.executable))
    submit.chmod(0o700)
    application = tmp_path / "driver.py"
    application.write_text(DRIVER)
    report = tmp_path / "report.json"
    job = SparkJob(
        application, "local[2,4]", {"spark.a": "b"}, ["--report", str(report)], {"JOB_SAYS": "1"}, report
    )
    (tmp_path / "flights.yaml").write_text(FLOW)
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    monkeypatch.setattr("onceover_airflow.jobs.hooks.spark_submit", lambda: submit)
    monkeypatch.setattr("onceover.spark.launch.submit.replicate_job", lambda *_args, **_options: job)
    # Whether a master listens is asked over the network.
    monkeypatch.setattr("onceover.spark.launch.master.reach", lambda _master: None)
    return FakeSpark(tmp_path, job)


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flow has clusters: who stands in for an operation asks none."""
    monkeypatch.setattr("onceover.wiring.flows.open_clusters", lambda _: (nullcontext(), nullcontext()))
