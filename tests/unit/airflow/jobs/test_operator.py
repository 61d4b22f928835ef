"""The replicating task: what it starts, how it ends, what it never shows."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from airflow.sdk import DAG, RetryAction
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, AirflowSkipException, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from onceover.errors import Retriable, UsageError
from onceover.lead.leftalone import left_alone
from onceover.spark.launch import runfiles, submit
from onceover.state.records.runstate import FlowRun, RunState
from onceover.wiring import status
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.jobs import retrying
from onceover_airflow.jobs.hooks import SparkJobHook
from onceover_airflow.jobs.operators import SPARK_UI_KEY, ReplicateOperator
from onceover_airflow.jobs.retrying import RETRIES
from onceover_airflow.jobs.verdict import TaskVerdict
from tests.support.session.wait import wait_until
from tests.unit.airflow.conftest import FakeSpark

SECRET = "planted-7f3a91c2"
CONNECTION = {
    "conn_type": "kafka",
    "extra": {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "copier",
        "sasl.password": SECRET,
    },
}
DONE = {"exit": 0, "flow": "flights", "until": "caught-up", "generation": 3, "records": 7, "stopped": []}


@pytest.fixture
def operator(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> ReplicateOperator:
    """The task as the DAG makes it, with its Connection in the environment."""
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SOURCE", json.dumps(CONNECTION))
    with DAG("test"):
        return ReplicateOperator(task_id="replicate", flow="flights", until="caught-up")


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the task has waited between two drivers, which takes no time here."""
    found: list[float] = []
    monkeypatch.setattr("onceover_airflow.jobs.operators.time.sleep", found.append)
    return found


def execute(operator: ReplicateOperator) -> Any:
    """Run the task's work without Airflow's guard against calling it by hand."""
    return ReplicateOperator.execute.__wrapped__(operator, {})  # pyrefly: ignore[missing-attribute]


@pytest.mark.parametrize("begins", ["before this try", "while this try waits to start its driver anew"])
def test_a_scheduled_copy_asks_each_time_whether_another_run_has_begun(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    """It may have waited for a slot, or for its next try, since `check_flow` has asked."""
    run = SimpleNamespace(run_type="scheduled", dag_id="replicate_flights", run_id="scheduled__2")
    others = [FlowRun(state=RunState.RUNNING, host="worker-7", started_ms=0)]
    if begins != "before this try":
        others.insert(0, FlowRun(state=RunState.ENDED))
    monkeypatch.setattr(status, "newest_run", lambda _flow: others.pop(0))
    spark.tell(kill=signal.SIGKILL)
    context = {"dag_run": run, "params": {"run_length": "caught-up"}}
    with pytest.raises(AirflowSkipException, match="worker-7"):
        ReplicateOperator.execute.__wrapped__(operator, context)  # pyrefly: ignore[missing-attribute]
    assert others == []
    assert (spark.saw is None) == (begins == "before this try")


@pytest.mark.parametrize(("kind", "leaves"), [("scheduled", True), ("manual", False)])
def test_a_run_leaves_its_name_and_what_its_own_tries_share(
    operator: ReplicateOperator, monkeypatch: pytest.MonkeyPatch, kind: str, leaves: bool
) -> None:
    """By which its next try tells its own driver from another run's; who clears it starts it anew."""
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(submit, "replicate_job", lambda *_, **options: said.append(options))
    run = SimpleNamespace(run_type=kind, dag_id="replicate_flights", run_id="r 1")
    for tries in (RETRIES, RETRIES, RETRIES + 7):
        context = {
            "dag_run": run,
            "ti": SimpleNamespace(max_tries=tries),
            "params": {"run_length": "caught-up"},
        }
        operator.job(cast(Any, None), cast(Any, context))
    assert {(each["begun_by"], each["leaves_others"]) for each in said} == {("replicate_flights r 1", leaves)}
    first, second, cleared = (each["launch"] for each in said)
    assert first == second != cleared
    operator.job(cast(Any, None), cast(Any, {}))
    assert (said[-1]["begun_by"], said[-1]["launch"]) == (None, None)


def test_a_copy_that_was_killed_waits_for_nobody_to_be_told(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mail server may take a minute to answer, or never do: mostly in what has killed the copy, too."""
    copied, told = threading.Event(), list[bool]()

    def slow(_context: object, _reason: str) -> None:
        told.append(copied.wait(30.0))

    monkeypatch.setattr(retrying, "notify", slow)
    monkeypatch.setattr("onceover_airflow.jobs.operators.time.sleep", lambda _: spark.tell(report=DONE))

    def judged(verdict: TaskVerdict, report: object, _context: object) -> TaskVerdict:
        if report:
            copied.set()
        return verdict

    monkeypatch.setattr(operator, "judged", judged)
    spark.tell(kill=signal.SIGKILL)
    assert execute(operator)["restarts"] == 1
    assert told == [True]


UI = "http://127.0.0.1:4040"
SAYS_UI = f"2026-11-22 05:15:46,299 INFO    onceover.spark.driver: Spark UI: {UI}"
# What a handler may print of a record, or the driver say about a group.
FORGED = [
    "Spark UI: https://evil.example/login",
    "2026-11-22 05:15:46,299 WARNING onceover.spark.driver: group Spark UI: https://evil.example/login: left",
    "2026-11-22 05:15:46,299 INFO    onceover.spark.driver: Spark UI: https://evil.example/login",
]


def test_spark_ui_is_linked_while_the_job_runs(
    operator: ReplicateOperator, spark: FakeSpark, home: Path
) -> None:
    """The button's address is pushed as soon as it is known, and is empty when the task has ended.

    It is the driver's own, whatever anybody's lines say.
    """
    pushed: list[tuple[str, str]] = []

    def push(key: str, value: str) -> None:
        pushed.append((key, value))
        (home / "flights" / "seen").touch()

    context = {"ti": SimpleNamespace(xcom_push=push)}
    spark.tell(report=DONE, say=[*FORGED, SAYS_UI], ui=UI)
    ReplicateOperator.execute.__wrapped__(operator, context)  # pyrefly: ignore[missing-attribute]
    (link,) = operator.operator_extra_links
    assert set(pushed) == {(link.xcom_key, UI)}
    assert link.get_link(operator, ti_key=None) == ""  # pyrefly: ignore[bad-argument-type]


@pytest.mark.parametrize(
    ("note", "address"),
    [
        ({"pid": os.getpid(), "ui": UI}, UI),
        ({"pid": os.getpid(), "ui": "http://worker-1.example:4041"}, "http://worker-1.example:4041"),
        ({"pid": 1, "ui": UI}, None),
        ({"pid": os.getpid(), "ui": "javascript:alert(1)"}, None),
        ({"pid": os.getpid(), "ui": "https://evil.example/login"}, None),
        ({"pid": os.getpid()}, None),
        ({"pid": [], "ui": UI}, None),
        ([], None),
        (None, None),
    ],
)
def test_the_address_is_the_one_that_this_jobs_driver_has_left(
    spark: FakeSpark, tmp_path: Path, note: Any, address: str | None
) -> None:
    """An older note, or one of a newer run, is another driver's."""
    path, told = tmp_path / "driver.json", list[str]()
    if note is not None:
        path.write_text(json.dumps(note))
    hook = SparkJobHook(spark.job, name="x", environment={}, note=path, on_ui=told.append)
    hook._submit_sp = SimpleNamespace(pid=os.getppid())
    hook._look_for_note("onceover.spark.driver: Spark UI: http://what.ever")
    assert told == ([address] if address else [])


AWAY = AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status": 503}))


@pytest.mark.parametrize("problem", [AWAY, PermissionError("no such bucket")])
def test_button_that_cannot_be_shown_ends_no_copy(
    operator: ReplicateOperator,
    spark: FakeSpark,
    home: Path,
    caplog: pytest.LogCaptureFixture,
    problem: Exception,
) -> None:
    """Airflow's server restarts while the job says where its UI is: a warning, and the copy goes on."""

    def refuses(**_: object) -> None:
        (home / "flights" / "seen").touch()
        raise problem

    context = {"ti": SimpleNamespace(xcom_push=refuses)}
    spark.tell(report=DONE, say=[SAYS_UI], ui=UI)
    assert ReplicateOperator.execute.__wrapped__(operator, context)["records"] == 7  # pyrefly: ignore[missing-attribute]
    assert f"{SPARK_UI_KEY} is not shown" in caplog.text


def test_master_that_does_not_answer_is_tried_again_and_a_mistyped_one_is_not(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is not even started."""

    def away(_master: str) -> None:
        raise Retriable("no Spark master answers")

    def mistyped(*_args: object, **_options: object) -> None:
        raise UsageError("'lokal' is not a Spark master")

    monkeypatch.setattr("onceover.spark.launch.master.reach", away)
    with pytest.raises(JobInterrupted, match="no Spark master"):
        execute(operator)
    monkeypatch.setattr("onceover.spark.launch.submit.replicate_job", mistyped)
    with pytest.raises(AirflowFailException, match="lokal"):
        execute(operator)
    assert spark.saw is None


def decision(operator: ReplicateOperator, error: BaseException) -> RetryAction:
    """Return what Airflow does next after ``error``."""
    if isinstance(error, AirflowFailException):
        return RetryAction.FAIL
    assert operator.retry_policy is not None
    return operator.retry_policy.evaluate(error, try_number=1, max_tries=RETRIES).action


def test_success_returns_counts(operator: ReplicateOperator, spark: FakeSpark) -> None:
    """The XCom holds counts; the report file is gone."""
    spark.tell(report=DONE)
    assert execute(operator)["records"] == 7
    assert not list(spark.folder.glob("report*"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_killed_driver_is_retried(
    operator: ReplicateOperator, spark: FakeSpark, pauses: list[float], number: int
) -> None:
    """A dead driver without a report is worth another one at once; in the end, another try."""
    spark.tell(kill=number)
    with pytest.raises(JobInterrupted, match=f"killed by signal {number:d}") as caught:
        execute(operator)
    assert pauses == [0.0, 2.0, 8.0]
    assert decision(operator, caught.value) is RetryAction.RETRY
    assert caught.value.killed
    assert caught.value.ran_s
    assert operator.retries == RETRIES > 100
    assert operator.retry_delay <= timedelta(seconds=5)
    assert operator.on_failure_callback and operator.on_retry_callback


def test_a_driver_that_was_killed_once_is_followed_by_another_in_the_same_try(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says is what counts; a person is told, as nothing else shows it."""
    told: list[str] = []
    monkeypatch.setattr(retrying, "notify", lambda _context, reason: told.append(reason))
    spark.tell(kill=signal.SIGKILL)
    monkeypatch.setattr("onceover_airflow.jobs.operators.time.sleep", lambda _: spark.tell(report=DONE))
    assert execute(operator)["records"] == 7
    assert [reason for reason in told if "killed by signal 9" in reason] == told != []


def test_a_jvm_that_was_killed_before_it_started_is_followed_by_another(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No signal tells of it, but all that there is to read."""
    submit_ = spark.folder / "spark" / "bin" / "spark-submit"
    well = submit_.read_text()
    submit_.write_text("#!/bin/sh\necho '/x/bin/spark-class: line 97: CMD: bad array subscript'; exit 1\n")
    spark.tell(report=DONE)
    monkeypatch.setattr(
        "onceover_airflow.jobs.operators.time.sleep", lambda _: submit_.write_text(well) and None
    )
    assert execute(operator)["restarts"] == 1


def test_bytes_that_are_no_text_end_no_copy(operator: ReplicateOperator, spark: FakeSpark) -> None:
    """A handler may print whatever a record holds."""
    submit_ = spark.folder / "spark" / "bin" / "spark-submit"
    first, rest = submit_.read_text().split("\n", 1)
    submit_.write_text(f"{first}\nimport os; os.write(1, bytes((255, 254, 10)))\n{rest}")
    spark.tell(report=DONE)
    assert execute(operator)["records"] == 7


def test_a_disk_that_is_full_is_named_and_nothing_is_tried_again(
    operator: ReplicateOperator, spark: FakeSpark, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at before the run's scratch goes, which makes room again."""
    scratches: list[bool] = []

    def full(**_: object) -> None:
        scratches.append(any((spark.folder.parent / "tmp").glob("report-*")))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(runfiles, "NamedTemporaryFile", full)
    spark.tell(kill=signal.SIGKILL)
    with pytest.raises(AirflowFailException, match=f"{spark.folder} cannot be used: No space left on device"):
        execute(operator)
    assert (scratches, pauses) == ([True], [])


def test_a_disk_that_was_full_is_named_by_what_was_printed(
    operator: ReplicateOperator, spark: FakeSpark
) -> None:
    """Also where Java has said much behind it; a run that has reported may have said anything."""
    said = [
        "the report cannot be written: [Errno 28] No space left on device",
        *["\tat x.Y.z(Y.java:1)"] * 150,
    ]
    spark.tell(5, say=said)
    with pytest.raises(AirflowFailException, match="No space left on device"):
        execute(operator)
    spark.tell(report=DONE, say=said)
    assert execute(operator)["records"] == 7


def test_what_explains_a_job_that_did_not_start_is_quoted_in_short(
    operator: ReplicateOperator, spark: FakeSpark
) -> None:
    """The last lines only, of all that are kept."""
    spark.tell(1, say=[f"line {number}." for number in range(100)])
    with pytest.raises(AirflowFailException) as failed:
        execute(operator)
    assert str(failed.value).count("line ") == 14
    assert "line 99." in str(failed.value)


def test_a_run_that_began_between_two_looks_is_left_alone_by_the_driver(
    operator: ReplicateOperator, spark: FakeSpark
) -> None:
    """Its task is skipped, with the driver's words."""
    other = FlowRun(state=RunState.RUNNING, started_ms=1_790_000_000_000, host="worker-7")
    spark.tell(3, report={**DONE, "exit": 3, "error": left_alone("flights", other).as_dict()})
    with pytest.raises(AirflowSkipException, match=r"^skipped: .*worker-7.*; to have this one take over"):
        execute(operator)


def test_a_run_for_a_time_is_not_begun_again(
    operator: ReplicateOperator, spark: FakeSpark, pauses: list[float]
) -> None:
    """It would be longer than somebody has asked for; nor is an audit, whose report is then another one."""
    operator.until = "10m"
    spark.tell(kill=signal.SIGKILL)
    with pytest.raises(JobInterrupted):
        execute(operator)
    assert pauses == []


def test_a_task_that_was_told_to_end_starts_no_other_driver(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is told between two of them."""
    spark.tell(kill=signal.SIGKILL)
    monkeypatch.setattr("onceover_airflow.jobs.operators.time.sleep", lambda _: operator.on_kill())
    with pytest.raises(JobInterrupted, match="told to end"):
        execute(operator)


@pytest.mark.parametrize(
    ("code", "action"), [(2, "fail"), (3, "fail"), (4, "fail"), (5, "retry"), (1, "fail")]
)
def test_exit_codes_decide(operator: ReplicateOperator, spark: FakeSpark, code: int, action: str) -> None:
    """Only temporary failures are tried again; the message is the job's."""
    spark.tell(code, report={**DONE, "exit": code, "error": {"message": "the job's own words"}})
    with pytest.raises((JobInterrupted, AirflowFailException), match="the job's own words") as caught:
        execute(operator)
    assert decision(operator, caught.value).value == action


def test_any_other_error_is_not_retried(operator: ReplicateOperator) -> None:
    """A bug does not start Spark three thousand times."""
    assert decision(operator, RuntimeError("a bug")) is RetryAction.FAIL


def test_report_of_another_run_is_not_believed(operator: ReplicateOperator, spark: FakeSpark) -> None:
    """An old report, or that of a run at the same time, says nothing about this one."""
    spark.job.report.write_text(json.dumps(DONE))
    spark.tell(kill=signal.SIGKILL)
    with pytest.raises(JobInterrupted):
        execute(operator)


def test_bad_flow_fails_before_anything_starts(operator: ReplicateOperator, spark: FakeSpark) -> None:
    """The message is the flow file's."""
    operator.flow = "flight"
    with pytest.raises(AirflowFailException, match="flights"):
        execute(operator)
    assert spark.saw is None


def test_secret_reaches_the_environment_alone(
    operator: ReplicateOperator,
    spark: FakeSpark,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The driver can read the Connection; no argument, no line of any log and no template field shows it."""
    caplog.set_level(logging.DEBUG)
    spark.tell(report=DONE)
    execute(operator)
    assert spark.saw is not None
    handed = json.loads(spark.saw["environ"]["AIRFLOW_CONN_KAFKA_SOURCE"])
    assert handed["extra"] == CONNECTION["extra"]
    assert spark.saw["environ"]["JOB_SAYS"] == "1"
    # What it writes is nobody else's.
    assert spark.saw["umask"] == 0o077
    captured = capfd.readouterr()
    shown = [caplog.text, captured.out, captured.err, str(spark.saw["argv"]), repr(vars(operator))]
    assert "secret of the driver" in caplog.text + captured.out
    assert [text for text in shown if SECRET in text] == []
    assert set(operator.template_fields) == {"flow", "until", "master"}


@pytest.mark.parametrize("master", ["yarn", "local[2,4]", "spark://127.0.0.1:7077"])
def test_no_master_moves_the_environment_to_options(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """For YARN the provider makes --conf options of variables; ours never get there."""
    job = replace(spark.job, master=master)
    monkeypatch.setenv("ONCEOVER_SPARK_SECRET", SECRET)
    monkeypatch.setattr("onceover.spark.launch.submit.replicate_job", lambda *_args, **_options: job)
    spark.tell(report=DONE)
    execute(operator)
    hook = operator._job_hook
    assert hook is not None
    command = hook._build_spark_submit_command("driver.py")
    assert master in command
    assert SECRET not in str(command)
    assert "AIRFLOW_CONN" not in str(command)


@contextmanager
def line_to_the_supervisor() -> Iterator[None]:
    """A socket in place of stdin, as Airflow gives one to every task."""
    before = os.dup(0)
    here, there = socket.socketpair()
    with here, there:
        os.dup2(here.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)


def test_nothing_of_airflows_own_reaches_the_job(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers run below it: no key, no database, no other flow's Connection, no line to the supervisor."""
    for name in ("AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW_CONN_OTHER"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("ONCEOVER_EAST", "h:1")
    spark.tell(report=DONE)
    with line_to_the_supervisor():
        execute(operator)
    assert spark.saw is not None
    seen = spark.saw["environ"]
    assert [name for name in seen if name.startswith("AIRFLOW__") or name == "AIRFLOW_CONN_OTHER"] == []
    assert {"PATH", "ONCEOVER_EAST", "AIRFLOW_CONN_KAFKA_SOURCE"} <= seen.keys()
    assert spark.saw["stdin"] == os.devnull


@pytest.mark.parametrize(
    "master", ["spark://evil:7077", "yarn", "k8s://https://evil", "spark://ours:1,evil:1"]
)
def test_no_form_sends_a_flow_to_any_master(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """A driver would carry the flow's credentials there."""
    monkeypatch.setenv("ONCEOVER_SPARK_MASTERS", "spark://ours:1  spark://ours:1,ours:2")
    operator.master = master
    with pytest.raises(AirflowFailException, match=r"may not send.*expected: one of: local, spark://ours:1,"):
        execute(operator)
    assert spark.saw is None


@pytest.mark.parametrize("master", ["", "local", "local[2]", "spark://ours:1,ours:2", "spark://own:7077"])
def test_masters_that_somebody_has_allowed(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """The administrator's, the flow file's own, and this machine."""
    flow = spark.folder / "flights.yaml"
    flow.write_text(f"{flow.read_text()}spark: {{master: 'spark://own:7077'}}\n")
    monkeypatch.setenv("ONCEOVER_SPARK_MASTERS", "spark://ours:1,ours:2")
    spark.tell(report=DONE)
    operator.master = master
    assert execute(operator)["records"] == 7


def run_until_killed(
    operator: ReplicateOperator, spark: FakeSpark, act: Callable[[], None]
) -> tuple[BaseException | None, dict[str, Any]]:
    """Run the task, ``act`` once the driver is there; return how the task ended and what the driver saw."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            execute(operator)
        except (JobInterrupted, AirflowFailException) as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    saw = wait_until(lambda: spark.saw, 20, "the driver runs")
    act()
    thread.join(20)
    assert not thread.is_alive()
    return (errors[0] if errors else None), saw


def test_told_to_end_the_driver_is_asked_first(operator: ReplicateOperator, spark: FakeSpark) -> None:
    """The driver gets SIGTERM and ends by itself; its task is resumed by the next try, not taken for done."""
    spark.tell(report=DONE, stay=True)
    error, saw = run_until_killed(operator, spark, operator.on_kill)
    assert isinstance(error, JobInterrupted)
    assert not psutil.pid_exists(saw["pid"])


def test_driver_that_does_not_listen_loses_its_jvm_and_ends(
    operator: ReplicateOperator, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither spark-submit nor the driver outlives the task for long."""
    monkeypatch.setattr("onceover_airflow.jobs.operators.STOP_BUDGET_S", 0.1)
    spark.tell(stay=True, deaf=True)
    error, saw = run_until_killed(operator, spark, operator.on_kill)
    assert isinstance(error, JobInterrupted)
    wait_until(
        lambda: not any(map(psutil.pid_exists, (saw["pid"], saw["parent"]))), 10, "all processes are gone"
    )


def test_told_to_end_before_the_job_starts_nothing(operator: ReplicateOperator, spark: FakeSpark) -> None:
    """No job is started for a task that has to end."""
    spark.tell(report=DONE)
    operator.on_kill()
    with pytest.raises(JobInterrupted):
        execute(operator)
    assert spark.saw is None


def test_missing_connection_is_named(operator: ReplicateOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which Connection and what to do."""
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_SOURCE")
    with pytest.raises(AirflowFailException, match=r"no Connection kafka_source.*Admin > Connections"):
        execute(operator)
