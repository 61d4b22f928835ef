"""How a session begins and ends: what is told of it, whatever else goes wrong meanwhile."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from onceover.errors import Fenced, OnceoverError
from onceover.spark import session
from onceover.spark.session import Opening

GONE = ConnectionRefusedError(111, "Connection refused")
STOPPED = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."


def opened(*, stop: Exception | None) -> Opening:
    """Return a session whose end goes as told."""

    def ending() -> None:
        if stop is not None:
            raise stop

    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(sparkContext=SimpleNamespace(), stop=ending))
    return Opening(future, jvm=1)


def test_fenced_stays_fenced_where_the_jvm_is_gone_too() -> None:
    """Taken for killed, it would be started again at once, and fence the newer run."""
    with pytest.raises(Fenced), opened(stop=GONE):
        raise Fenced("generation 3 runs")


def test_an_end_that_fails_is_told_where_nothing_else_went_wrong() -> None:
    """It may be how a killed JVM is noticed."""
    with pytest.raises(ConnectionRefusedError), opened(stop=GONE):
        pass


class Objecting(Py4JJavaError):
    """What py4j raises for an exception in the JVM, without the JVM."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self._text = text

    def __str__(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("text", "ending", "standalone", "code"),
    [
        (STOPPED, False, True, "SPARK_MASTER_GONE"),
        (
            "calling None.x.JavaSparkContext.\n: java.lang.NullPointerException",
            False,
            True,
            "SPARK_MASTER_GONE",
        ),
        ("calling None.x.JavaSparkContext.\n: java.io.IOException: disk", False, True, "SPARK_FAILED"),
        (STOPPED, True, True, "JVM_GONE"),
        ("java.lang.NullPointerException", True, False, "JVM_GONE"),
        (STOPPED, False, False, None),
    ],
)
def test_a_master_that_takes_no_job_is_told_from_a_jvm_that_ends(
    monkeypatch: pytest.MonkeyPatch, text: str, ending: bool, standalone: bool, code: str | None
) -> None:
    """Killed, a run is started again at once; another secret stays another one."""
    hooks = SimpleNamespace(inShutdown=lambda: ending)
    util = SimpleNamespace(ShutdownHookManager=hooks)
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(util=util))))
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    expected = Objecting if code is None else OnceoverError
    with pytest.raises(expected) as found, session._told(standalone=standalone):
        raise Objecting(text)
    assert getattr(found.value, "code", None) == code
