"""What a failure in Spark means: whose fault it was, and whether running it again can help."""

from __future__ import annotations

import json
import os
from asyncio import CancelledError

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from onceover.errors import Fatal, Fenced, NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.link.connection import ConnectionLost
from onceover.spark.failures import WorkerError, carrying, cause_of, error_of, query_error, session_error
from onceover.spark.launch.master import checked, reach

# As Spark 4.2 puts a worker's exception between its own words.
AROUND = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to
stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure:
Lost task 0.3 in stage 0.0 (TID 6) (127.0.0.1
executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    yield from copy_lanes(plan, rows)
onceover.spark.failures.WorkerError: {text}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


def through_spark(error: BaseException) -> OnceoverError:
    """Raise ``error`` in a worker; return what its driver makes of it."""
    with pytest.raises(WorkerError) as caught, carrying("lane 0"):
        raise error
    return error_of(PySparkException(AROUND.format(text=caught.value)))


class Asking(Py4JError):  # py4j has no types
    """What py4j raises of a JVM's exception: who wants to read it asks that JVM for the stack trace."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


def test_a_failure_that_nobody_can_be_asked_about_any_more_is_a_jvm_that_is_gone() -> None:
    """Its text was wanted, which called the JVM: that ended the driver as something that nobody foresaw."""
    for found in (cause_of(Asking(), -1), session_error(Asking(), -1), error_of(Asking())):
        assert found.code == "JVM_GONE"


def test_a_disk_that_is_full_is_no_fault_of_ours() -> None:
    """Nobody has to look for a bug, and running it again would not help."""
    found = error_of(PySparkException("Query failed:\njava.io.IOException: No space left on device\n\tat x"))
    assert isinstance(found, NeedsOperator)
    assert (found.code, found.seen) == ("PATH_UNUSABLE", "java.io.IOException: No space left on device")


def test_a_jvm_that_was_told_to_end_is_asked_before_its_words_are_believed() -> None:
    """It is deaf some seconds before it is gone, on a busy machine more than anybody waits."""
    objects = Py4JError("Cannot call methods on a thing that is null")
    parent = os.getppid()
    assert session_error(objects, parent, 0.0, lambda: True).code == "JVM_GONE"
    assert session_error(objects, parent, 0.0, lambda: False).code == "SPARK_FAILED"


def test_query_that_fails_while_its_jvm_goes_down_failed_by_that() -> None:
    """Whatever it says of it; what one of us has raised is told as it is."""
    seen = PySparkException('Cannot invoke "DAGScheduler.cleanupQueryJobs(long)" because it is null')
    assert query_error(seen, lambda: True).code == "JVM_GONE"
    assert query_error(seen, lambda: False).code == "SPARK_FAILED"
    with pytest.raises(WorkerError) as caught, carrying("a test"):
        raise NeedsOperator("no", code="FOREIGN_CLUSTER")
    ours = PySparkException(AROUND.format(text=caught.value))
    assert query_error(ours, lambda: True).code == "FOREIGN_CLUSTER"


@pytest.mark.parametrize("kind", [ValueError, SystemExit, CancelledError])
def test_whatever_a_worker_fails_with_its_driver_is_told(kind: type[BaseException]) -> None:
    """Also where it is no ``Exception``: Spark would only say that a stage has failed."""
    found = through_spark(kind("words"))
    assert isinstance(found, Fatal)
    assert (found.code, found.message) == ("UNEXPECTED", f"unexpected {kind.__name__}: words")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
def test_a_worker_that_is_told_to_end_has_not_failed(kind: type[BaseException]) -> None:
    """By a signal, or by Spark, which wants no more of its rows."""
    with pytest.raises(kind), carrying("lane 0"):
        raise kind


@pytest.mark.parametrize("kind", [Retriable, UsageError, NeedsOperator, Fenced, Fatal, ConnectionLost])
def test_error_of_ours_crosses_whole(kind: type[OnceoverError]) -> None:
    """Kind and every field; a subclass comes as what its caller does next."""
    error = kind("said {so}", code="C", where='a "b"', expected="e", seen="\n\u00e4", resolve="do this")
    found = through_spark(error)
    assert found.as_dict() == error.as_dict()
    assert found.exit_code == error.exit_code


def test_foreign_exception_fails_at_once_with_type_text_and_place() -> None:
    """What nobody foresaw is not known to pass."""
    found = through_spark(ZeroDivisionError("division by zero"))
    assert isinstance(found, Fatal)
    assert (found.exit_code, found.code) == (1, "UNEXPECTED")
    assert found.message == "unexpected ZeroDivisionError: division by zero"
    assert __file__ in str(found.where)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "WORKER_KILLED"),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", "WORKER_KILLED"),
        ("org.apache.spark.SparkException: Python worker failed to connect back.", "WORKER_LATE"),
        ("Python worker did not connect back in time", "WORKER_LATE"),
        (
            "File file:/v/f/receipts/00000003-3450350082fc74c9/_spark_metadata does not exist",
            "RUN_FILES_GONE",
        ),
        ("All masters are unresponsive! Giving up.", "SPARK_MASTER_GONE"),
        ("Job 3 cancelled because SparkContext was shut down", "JVM_GONE"),
    ],
)
def test_processes_that_were_taken_from_spark_come_back(text: str, code: str) -> None:
    """These are known to pass; the text says which it was."""
    found = error_of(PySparkException(f"Job aborted:\n{text}\n\tat x"))
    assert isinstance(found, Retriable)
    assert (found.code, found.seen) == (code, text)


def test_what_java_has_thrown_is_told_and_not_which_call_it_was() -> None:
    """As where a machine's own settings of Spark name a folder that is not there."""
    why = "java.io.FileNotFoundException: File file:/events does not exist"
    text = f"An error occurred while calling None.org.apache.spark.JavaSparkContext.\n: {why}\n\tat a.B"
    assert session_error(Py4JError(text), os.getppid(), wait_s=0.0).message == f"Spark failed: {why}"


@pytest.mark.parametrize(
    "text",
    [
        "java.io.IOException: Input/output error",
        "Could not parse Master URL: 'lokal'",
        "java.lang.OutOfMemoryError: Java heap space",
        "",
        "onceover-error {not json}",
        'onceover-error {"kind": "os", "message": "x"}',
    ],
)
def test_what_spark_says_otherwise_is_not_tried_again(text: str) -> None:
    """Asked again it would say the same; its own words are in the message."""
    found = error_of(PySparkException(text))
    assert isinstance(found, Fatal)
    assert text in found.message


def test_jvm_that_objects_is_not_gone() -> None:
    """Every error of py4j used to be."""
    text = "An error occurred while calling o1.x. Trace:\npy4j.Py4JException: Method x([]) does not exist\n"
    found = session_error(Py4JError(text), os.getppid(), wait_s=0.0)
    assert isinstance(found, Fatal)
    assert found.code == "SPARK_FAILED"


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("no answer"),
        ConnectionRefusedError(111, "refused"),
        # Killed while it was asked: seen once, in a round of chaos.
        Py4JError("An error occurred while calling o209.lastProgress"),
        Py4JError("PythonSQLUtils does not exist in the JVM"),
    ],
)
def test_jvm_is_gone_when_its_process_is(error: Exception) -> None:
    """The driver is its child: only another parent proves it."""
    gone, alive = session_error(error, -1), session_error(error, os.getppid(), wait_s=0.0)
    assert isinstance(gone, Retriable)
    assert gone.code == "JVM_GONE"
    assert isinstance(alive, Fatal)
    assert alive.code == "JVM_UNREACHABLE"


@pytest.mark.parametrize("master", ["lokal", "spark://host", "http://host:7077", "local[0]", "", "mesos://x"])
def test_mistyped_master_is_bad_usage(master: str) -> None:
    """Before anything is started, with those that there are."""
    with pytest.raises(UsageError) as caught:
        checked(master)
    assert "spark://host:port" in str(caught.value.expected)


@pytest.mark.parametrize(
    "master", ["local", "local[4]", "local[*]", "local[2,4]", "spark://a:1,b:2", "yarn", "k8s://x"]
)
def test_masters_that_spark_knows_pass(master: str) -> None:
    """As the flow file has them."""
    assert checked(master) == master


def test_bad_port_of_a_master_is_bad_usage() -> None:
    """No network was asked."""
    with pytest.raises(UsageError):
        reach("spark://127.0.0.1:99999")


def test_worker_error_is_one_line_of_json() -> None:
    """Spark cuts nothing out of a line."""
    with pytest.raises(WorkerError) as caught, carrying("x"):
        raise Retriable("a\nb", where="c")
    assert json.loads(str(caught.value).partition(" ")[2])["message"] == "a\nb"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (UsageError("a word of ours"), "a word of ours"),
        (ConnectionRefusedError(111, "Connection refused"), "the Spark JVM is gone: it was killed"),
        (Py4JNetworkError("Answer from Java side is empty"), "the Spark JVM is gone: it was killed"),
        (ZeroDivisionError("division by zero"), "unexpected ZeroDivisionError: division by zero"),
        (SystemExit(3), "unexpected SystemExit: 3"),
        (PermissionError(13, "Permission denied", "/home/f"), "/home/f cannot be used: Permission denied"),
        (OSError(28, "No space left on device"), "a file below ONCEOVER_HOME, or a temporary one,"),
    ],
)
def test_every_end_of_a_run_is_told_in_words(failure: BaseException, message: str) -> None:
    """Never by the bare name of a type."""
    assert cause_of(failure, -1).message.startswith(message)


def test_words_that_nobody_knows_of_a_jvm_that_is_gone_are_its_end() -> None:
    """Whatever missed it may say anything; of one that lives they are what they are."""
    text = "An error occurred while calling o1.x. Trace:\nno"
    gone, alive = (session_error(Py4JError(text), jvm, wait_s=0.0) for jvm in (-1, os.getppid()))
    assert (gone.code, alive.code) == ("JVM_GONE", "SPARK_FAILED")
