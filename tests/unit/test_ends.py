"""Every end of a Spark job is judged once: the command line and Airflow only say it differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from onceover.cli.sparkjob import JobEnd, said_of
from onceover.lead.leftalone import left_alone
from onceover.spark.ended import Ended, How, judge
from onceover.spark.failures import jvm_gone
from onceover.spark.launch.again import Restarts
from onceover.state.records.runstate import FlowRun, RunState
from onceover_airflow.jobs.verdict import AfterJob, TaskVerdict, verdict_of

FOLDER: Final = Path("/home/orders/log")
NO_LAUNCHER: Final = "/x/pyspark/bin/spark-class: line 97: CMD: bad array subscript"
PICKED_UP: Final = "Picked up JAVA_TOOL_OPTIONS: -Xss1m\nNOTE: Picked up JDK_JAVA_OPTIONS: -Dx=y\n"
FULL: Final = "onceover.spark.driver: the report cannot be written: [Errno 28] No space left on device"
OTHER: Final = FlowRun(state=RunState.RUNNING, started_ms=1_790_000_000_000, host="worker-7")
AWAY: Final = {"message": "west does not answer", "code": "Retriable"}


def report(code: int, **fields: Any) -> dict[str, Any]:
    """Return what a driver has reported."""
    return {"exit": code, "generation": 3, **fields}


@dataclass(frozen=True)
class Case:
    """What is known of a job's end, and what each skin makes of it.

    Args:
        code, told, tail, refused, stopped: the evidence.
        error: of the command line; None where it has a document.
        exit_code: of that error.
        next: what Airflow's task does.
        killed: whether another start follows at once, in either.
    """

    how: How
    code: int
    told: Mapping[str, Any] | None
    error: str | None
    exit_code: int
    next: AfterJob
    killed: bool = False
    tail: str = ""
    refused: str | None = None
    stopped: bool = False

    @property
    def end(self) -> Ended:
        """How the job has ended."""
        return judge(self.code, self.told, FOLDER, tail=self.tail, refused=self.refused, stopped=self.stopped)


GONE: Final = report(5, error=jvm_gone().as_dict())
CASES: Final = {
    "well": Case(How.WELL, 0, report(0), None, 0, AfterJob.OK),
    "well, and killed as it shut down": Case(How.WELL, 143, report(0), None, 0, AfterJob.OK),
    "stopped partitions": Case(How.FOUND, 3, report(3, stopped=[{}]), None, 3, AfterJob.FAIL),
    "an audit that did not pass": Case(How.FOUND, 1, report(1, verdict="FAIL"), None, 1, AfterJob.FAIL),
    "temporary": Case(How.FAILED, 5, report(5, error=AWAY), "Retriable", 5, AfterJob.RETRY),
    "superseded": Case(
        How.FAILED, 4, report(4, error={"message": "x", "code": "Fenced"}), "Fenced", 4, AfterJob.FAIL
    ),
    "the driver has outlived its JVM": Case(How.FAILED, 5, GONE, "JVM_GONE", 5, AfterJob.RETRY, killed=True),
    "the driver has seen its JVM end by itself": Case(
        How.FAILED, 52, GONE, "JVM_GONE", 5, AfterJob.RETRY, killed=True
    ),
    "temporary, and killed as it shut down": Case(
        How.FAILED, -9, report(5, error=AWAY), "Retriable", 5, AfterJob.RETRY, killed=True
    ),
    "temporary, without words": Case(How.FAILED, 5, report(5), "_Reported", 5, AfterJob.RETRY),
    "another run is left alone": Case(
        How.LEFT_ALONE, 3, report(3, error=left_alone("f", OTHER).as_dict()), "LEFT_ALONE", 3, AfterJob.SKIP
    ),
    "a process that died behind a success": Case(
        How.CONTRADICTED, 1, report(0), "DRIVER_DISAGREES", 1, AfterJob.FAIL
    ),
    "a report without an end": Case(How.CONTRADICTED, 0, {}, "DRIVER_DISAGREES", 1, AfterJob.FAIL),
    "stopped before it led": Case(
        How.STOPPED, 0, {"exit": 0, "generation": None}, "STOPPED_EARLY", 130, AfterJob.RETRY, stopped=True
    ),
    "its JVM taken from it as it was stopped": Case(
        How.STOPPED, 143, GONE, "STOPPED_EARLY", 130, AfterJob.RETRY, stopped=True
    ),
    "stopped, without a word": Case(
        How.STOPPED, -15, None, "STOPPED_EARLY", 130, AfterJob.RETRY, stopped=True
    ),
    "a disk that is full": Case(
        How.UNWRITABLE, 1, None, "PATH_UNUSABLE", 3, AfterJob.FAIL, refused="No space left on device"
    ),
    "a disk that was full": Case(How.UNWRITABLE, 1, None, "PATH_UNUSABLE", 3, AfterJob.FAIL, tail=FULL),
    "a quota that was used up": Case(
        How.UNWRITABLE, 1, None, "PATH_UNUSABLE", 3, AfterJob.FAIL, tail="[Errno 122] Disk quota exceeded"
    ),
    # A worker's disk, an hour ago, or what a record says.
    "killed, and somebody told of a full disk": Case(
        How.KILLED, -9, None, "DRIVER_KILLED", 5, AfterJob.RETRY, killed=True, tail=FULL
    ),
    "killed": Case(How.KILLED, -9, None, "DRIVER_KILLED", 5, AfterJob.RETRY, killed=True),
    "killed before it started": Case(
        How.KILLED, 1, None, "DRIVER_KILLED", 5, AfterJob.RETRY, killed=True, tail=NO_LAUNCHER
    ),
    "killed before it started, and options of the environment": Case(
        How.KILLED, 1, None, "DRIVER_KILLED", 5, AfterJob.RETRY, killed=True, tail=f"{PICKED_UP}{NO_LAUNCHER}"
    ),
    # The one end of which the two do not think alike: a scheduler believes the code, a person reads the log.
    "5, without a word": Case(How.UNTOLD, 5, None, "DRIVER_FAILED", 1, AfterJob.RETRY),
    "not run": Case(How.NOT_RUN, 1, None, "DRIVER_FAILED", 1, AfterJob.FAIL, tail="Unrecognized option"),
    "not run, and other words before the same": Case(
        How.NOT_RUN, 1, None, "DRIVER_FAILED", 1, AfterJob.FAIL, tail=f"Out of memory\n{NO_LAUNCHER}"
    ),
}
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_every_end_is_here() -> None:
    """A new one is nobody's until both have said what they make of it."""
    assert {case.how for case in CASES.values()} == set(How)


@each
def test_an_end_is_judged(case: Case) -> None:
    """By report, process and last lines together."""
    assert (case.end.how, case.end.killed) == (case.how, case.killed)


@each
def test_the_command_line_says_it_with_an_error(case: Case) -> None:
    """Whose class is the exit code; what was found is a document of its own."""
    said = said_of(case.end, "replicate.log")
    code = said.document["exit"] if said.error is None else said.error.exit_code
    assert (said.error and said.error.code, code) == (case.error, case.exit_code)
    assert said.killed == case.killed


@each
def test_airflow_says_it_with_what_follows(case: Case) -> None:
    """And is killed wherever the command line is: both start it again then, or neither."""
    verdict = verdict_of(case.end)
    assert (verdict.next, verdict.killed) == (case.next, case.killed)


@each
def test_both_try_again_what_may_pass(case: Case) -> None:
    """What Airflow tries again, the command line leaves with 5, or as ended by somebody."""
    said, verdict = said_of(case.end, "replicate.log"), verdict_of(case.end)
    if case.how is not How.UNTOLD:
        passes = said.error is not None and said.error.exit_code in (5, 130)
        assert passes == (verdict.next is AfterJob.RETRY)


@pytest.mark.parametrize("name", ["a disk that is full", "a disk that was full"])
def test_both_name_the_disk(name: str) -> None:
    """The folder, in the same words, and what is to be done."""
    end = CASES[name].end
    error = said_of(end, "replicate.log").error
    assert verdict_of(end).message == str(error)
    assert f"{FOLDER} cannot be used: No space left on device; where: {FOLDER}" in str(error)


def test_a_jvm_killed_before_it_started_is_said_without_a_signal() -> None:
    """Nobody knows which it was."""
    end = CASES["killed before it started"].end
    assert verdict_of(end).message == "the Spark driver was killed before it could report"
    assert str(said_of(end, "a.log").error).startswith(
        "the driver was killed before it could report; where: a"
    )


def test_both_say_who_disagrees() -> None:
    """A success that its process does not confirm is none."""
    end = CASES["a process that died behind a success"].end
    for said in (str(said_of(end, "a.log").error), verdict_of(end).message):
        assert "disagree; " in said and "expected: the same exit code; seen: report 0, process 1" in said


@pytest.mark.parametrize("odd", ["JVM_GONE", ["JVM_GONE"], {}, {"code": None}, {"code": ["JVM_GONE"]}])
def test_an_odd_error_is_no_crash(odd: object) -> None:
    """A report is read, not trusted."""
    end = judge(5, report(5, error=odd), FOLDER)
    error = said_of(end, "a.log").error
    assert (end.killed, error is not None and error.exit_code, verdict_of(end).next) == (
        False,
        5,
        AfterJob.RETRY,
    )


@each
def test_another_start_follows_a_kill_alone(case: Case) -> None:
    """One loop, with either skin's view of an end."""
    for view in (said_of(case.end, "a.log"), verdict_of(case.end)):
        assert len(runs(view)) == (4 if case.killed else 1)


def runs(end: JobEnd | TaskVerdict) -> list[float]:
    """Return how long was waited before each run of a job that always ends so; -1 before the first."""
    waited = [-1.0]
    restarts = Restarts("forever")
    assert restarts.to_its_end(lambda: end, lambda _, pause_s: waited.append(pause_s)) is end
    return waited
