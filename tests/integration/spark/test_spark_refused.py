"""Spark jobs that cannot start, or must end: one clear message each, and no try again that cannot help."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from onceover.cli.sparkjob import job_end, running_job
from onceover.cli.terminal.output import Interrupted
from onceover.config.flow.load import load_flow
from onceover.errors import Fatal, NeedsOperator, OnceoverError, Retriable
from onceover.process.children import ChildProcess
from onceover.process.java import find_java
from onceover.spark.launch import runfiles
from onceover.spark.launch.master import reach
from onceover.spark.launch.submit import SparkJob, replicate_job
from tests.support.commands.replicate import run_cli
from tests.support.flows.flows import write_flow

# What spark-submit says when the JVM that makes its command line was killed; seen with Spark 4.2.
NO_LAUNCHER = "/x/pyspark/bin/spark-class: line 97: CMD: bad array subscript"

UNREACHED = {"bootstrap.servers": "127.0.0.1:1"}


@dataclass(frozen=True)
class Scripted(SparkJob):
    """A job with a script of the shell in Spark's place; ``$REPORT`` is where it reports."""

    script: str = ""

    def command(self) -> list[str]:
        return ["env", f"REPORT={self.report}", "sh", "-c", self.script]


def scripted(folder: Path, script: str) -> Scripted:
    """Return one run of such a job."""
    report = folder / "log" / "replicate.json"
    report.parent.mkdir(exist_ok=True)
    job = Scripted(Path("x.py"), "local", {}, ["--report", str(report)], {}, report, script=script)
    own = job.with_own_files()
    assert isinstance(own, Scripted)
    return own


def test_java_finds_the_folder_of_a_run_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark's own launcher takes Java's options apart."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "a \"home\" of \\ 'mine' größer"))
    flow = load_flow(write_flow(tmp_path, "java", UNREACHED, UNREACHED, ["x"]))
    job = replicate_job(flow, until="forever").with_own_files()
    answer = launched(job, "")
    assert f"-Djava.io.tmpdir={job.scratch}" in answer
    assert job.scratch.parent.name == "tmp"
    # What makes it quicker changes nothing of it.
    assert launched(job, job.environment["SPARK_LAUNCHER_OPTS"]) == answer


def launched(job: SparkJob, options: str) -> list[str]:
    """Return the command line that Spark's launcher makes."""
    spark = job.environment["SPARK_HOME"]
    launcher = ("org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit")
    printed = subprocess.run(
        [find_java().executable, *options.split(), "-cp", f"{spark}/jars/*", *launcher, *job.command()[1:]],
        env={"SPARK_HOME": spark, "SPARK_SCALA_VERSION": "2.13", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    return printed.decode().split("\0")


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
    assert not list((tmp_path / "f" / "log").glob("*"))


@pytest.mark.parametrize(
    ("script", "stopped", "kind", "name"),
    [
        ("echo Unrecognized option; exit 1", False, Fatal, "DRIVER_FAILED"),
        ("exit 5", False, Fatal, "DRIVER_FAILED"),
        ("kill -9 $$", False, Retriable, "DRIVER_KILLED"),
        ("exit 143", False, Retriable, "DRIVER_KILLED"),
        (f"echo '{NO_LAUNCHER}'; exit 1", False, Retriable, "DRIVER_KILLED"),
        (f"echo Out of memory; echo '{NO_LAUNCHER}'; exit 1", False, Fatal, "DRIVER_FAILED"),
        ("kill -15 $$", True, Interrupted, "STOPPED_EARLY"),
        ("exit 1", True, Interrupted, "STOPPED_EARLY"),
    ],
)
def test_end_without_a_report(
    tmp_path: Path, script: str, stopped: bool, kind: type[OnceoverError], name: str
) -> None:
    """Only a signal is known to pass; spark-submit's own last words are quoted."""
    job = scripted(tmp_path, script)
    child = ChildProcess.start(job.command(), name="job", log_path=job.output)
    child.wait(10.0)
    with pytest.raises(kind) as caught:
        job_end(job, child, stopped=stopped).result()
    assert caught.value.code == name
    if "Unrecognized" in script:
        assert "Unrecognized option" in str(caught.value.seen)


def test_what_java_says_is_told_and_not_where_in_its_code_it_was(tmp_path: Path) -> None:
    """Its frames are many, and the reason stands before them."""
    frames = "".join(f"\\tat org.apache.spark.Some.thing(Some.scala:{n})\\n" for n in range(30))
    job = scripted(tmp_path, f"printf 'Exception: Too many open files\\n{frames}\\t... 12 more\\n'; exit 1")
    child = ChildProcess.start(job.command(), name="job", log_path=job.output)
    child.wait(10.0)
    with pytest.raises(Fatal) as caught:
        job_end(job, child).result()
    assert caught.value.seen == "Exception: Too many open files"


def test_a_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver could write down neither its report nor its last words; looked at while it is full still."""
    job = scripted(tmp_path, "printf '{' > $REPORT; exit 1")
    scratches: list[bool] = []

    def full(**_: object) -> None:
        scratches.append(job.scratch.exists())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(runfiles, "NamedTemporaryFile", full)
    with (
        pytest.raises(NeedsOperator, match="No space left on device") as caught,
        running_job(job, "job") as child,
    ):
        child.wait(10.0)
    assert (caught.value.code, caught.value.where) == ("PATH_UNUSABLE", str(job.report.parent))
    assert scratches == [True]


def test_a_disk_that_was_full_is_named_by_what_was_printed(tmp_path: Path) -> None:
    """The JVM has put away what it had there, and there is room again."""
    job = scripted(
        tmp_path, "echo 'the report cannot be written: [Errno 28] No space left on device'; exit 1"
    )
    with pytest.raises(NeedsOperator) as caught, running_job(job, "job") as child:
        child.wait(10.0)
    assert caught.value.code == "PATH_UNUSABLE"


@pytest.mark.parametrize(
    ("code", "stopped", "kind"),
    [
        ("JVM_GONE", True, Interrupted),
        ("JVM_GONE", False, OnceoverError),
        ("TOO_FEW_SLOTS", True, Interrupted),
        ("TOO_FEW_SLOTS", False, OnceoverError),
    ],
)
def test_a_jvm_that_was_ended_because_somebody_asked_for_it_is_no_failure(
    tmp_path: Path, code: str, stopped: bool, kind: type[OnceoverError]
) -> None:
    """Before the driver listens, the JVM gets the signal: whoever tries again after a 5 would undo a stop."""
    said = {
        "message": "the Spark JVM is gone",
        "code": code,
        **dict.fromkeys(("where", "expected", "seen", "resolve")),
    }
    job = scripted(tmp_path, f"echo '{json.dumps({'exit': 5, 'error': said})}' > $REPORT; exit 5")
    child = ChildProcess.start(job.command(), name="job", log_path=job.output)
    child.wait(10.0)
    with pytest.raises(kind) as caught:
        job_end(job, child, stopped=stopped).result()
    interrupted = kind is Interrupted
    assert (caught.value.exit_code, caught.value.code) == (
        (130, "STOPPED_EARLY") if interrupted else (5, code)
    )


def test_a_success_that_its_process_does_not_confirm_is_none(tmp_path: Path) -> None:
    """As for Airflow: whoever died behind its report, nobody knows of what."""
    job = scripted(tmp_path, "echo '{\"exit\": 0}' > $REPORT; exit 1")
    with running_job(job, "job") as child:
        child.wait(10.0)
    with pytest.raises(Fatal, match="disagree") as caught:
        job_end(job, child).result()
    assert (caught.value.code, caught.value.where) == ("DRIVER_DISAGREES", str(job.output))


def test_report_of_another_run_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    """A run that was taken over writes its report after the newer one has begun."""
    older, newer = (scripted(tmp_path, "") for _ in range(2))
    older.report.write_text("{}")
    child = ChildProcess.start(["sh", "-c", "kill -9 $$"], name="job", log_path=newer.output)
    child.wait(10.0)
    with pytest.raises(Retriable):
        job_end(newer, child).result()
    assert newer.arguments == ["--report", str(newer.report)]


def test_two_runs_of_one_flow_at_once_are_told_their_own_endings(tmp_path: Path) -> None:
    """The older one ends last, when the newer one has printed and reported."""
    over = tmp_path / "over"
    waits = f"echo words of the older; mkfifo {over}; read line < {over}; exit 1"
    reports = f"echo words of the newer; until [ -p {over} ]; do :; done; echo '{{\"exit\": 0}}' > $REPORT"
    jobs = [scripted(tmp_path, script) for script in (waits, reports)]
    with running_job(jobs[0], "job") as older, running_job(jobs[1], "job") as newer:
        newer.wait(10.0)
        with over.open("w") as gate:
            gate.write("over\n")
        older.wait(10.0)
    assert job_end(jobs[1], newer).result() == {"exit": 0}
    with pytest.raises(Fatal) as caught:
        job_end(jobs[0], older).result()
    assert (caught.value.seen, caught.value.where) == ("words of the older", str(jobs[0].output))
    assert jobs[1].output.read_text() == "words of the newer\n"
