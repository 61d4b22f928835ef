"""Spark jobs that cannot start, or must end: one clear message each, and no try again that cannot help."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from onceover.cli.output import Interrupted
from onceover.cli.sparkjob import job_result
from onceover.embed.processes import ChildProcess
from onceover.errors import Fatal, OnceoverError, Retriable
from onceover.spark.master import reach
from onceover.spark.submit import SparkJob
from tests.support.flows import write_flow
from tests.support.replicate import run_cli


def test_master_that_does_not_answer_is_an_outage_at_once() -> None:
    """Spark would try for a minute; one of several that listens is enough."""
    with socket.create_server(("127.0.0.1", 0)) as there, socket.socket() as away:
        away.bind(("127.0.0.1", 0))
        up, down = (f"127.0.0.1:{s.getsockname()[1]}" for s in (there, away))
        reach(f"spark://{down},{up}")
        with pytest.raises(Retriable, match=f"spark://{down}") as caught:
            reach(f"spark://{down}")
    assert "refused" in str(caught.value.seen)
    reach("local[2]")


@pytest.mark.parametrize(
    ("master", "code", "name"),
    [
        ("lokal", 2, "BAD_MASTER"),
        ("spark://127.0.0.1", 2, "BAD_MASTER"),
        ("spark://127.0.0.1:1", 5, "SPARK_MASTER_GONE"),
    ],
)
def test_master_is_looked_at_before_spark_starts(tmp_path: Path, master: str, code: int, name: str) -> None:
    """Mistyped it is bad usage; away it may come back. Nothing was started for either."""
    flow = write_flow(
        tmp_path, "f", {"bootstrap.servers": "127.0.0.1:1"}, {"bootstrap.servers": "127.0.0.1:2"}, ["x"]
    )
    secret = ("ONCEOVER_SPARK_SECRET", "a-secret-of-this-test")
    seen, document = run_cli(tmp_path, "replicate", str(flow), "--master", master, env=[secret])
    assert (seen, document["error"]["code"]) == (code, name)
    assert not (tmp_path / "f" / "log" / "driver.log").exists()


@pytest.mark.parametrize(
    ("script", "stopped", "kind", "name"),
    [
        ("echo Unrecognized option; exit 1", False, Fatal, "DRIVER_FAILED"),
        ("exit 5", False, Fatal, "DRIVER_FAILED"),
        ("kill -9 $$", False, Retriable, "DRIVER_KILLED"),
        ("exit 143", False, Retriable, "DRIVER_KILLED"),
        ("kill -15 $$", True, Interrupted, "STOPPED_EARLY"),
        ("exit 1", True, Interrupted, "STOPPED_EARLY"),
    ],
)
def test_end_without_a_report(
    tmp_path: Path, script: str, stopped: bool, kind: type[OnceoverError], name: str
) -> None:
    """Only a signal is known to pass; spark-submit's own last words are quoted."""
    log = tmp_path / "driver.log"
    child = ChildProcess.start(["sh", "-c", script], name="job", log_path=log)
    child.wait(10.0)
    job = SparkJob(tmp_path / "x.py", "local", {}, [], {}, tmp_path / "own.json")
    with pytest.raises(kind) as caught:
        job_result(job, tmp_path / "kept.json", child, log, stopped=stopped)
    assert caught.value.code == name
    if "Unrecognized" in script:
        assert "Unrecognized option" in str(caught.value.seen)


def test_report_of_another_run_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    """A run that was taken over writes its report after the newer one has begun."""
    job = SparkJob(
        tmp_path / "x.py", "local", {}, ["--report", str(tmp_path / "r.json")], {}, tmp_path / "r.json"
    )
    own = job.with_own_report()
    script = f"echo '{{}}' > {job.report}; kill -9 $$"
    child = ChildProcess.start(["sh", "-c", script], name="job", log_path=tmp_path / "log")
    child.wait(10.0)
    with pytest.raises(Retriable):
        job_result(own, job.report, child, tmp_path / "log")
    assert own.arguments == ["--report", str(own.report)]
