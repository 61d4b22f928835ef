"""The Spark session of a driver: how it begins, and whether it is over."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onceover.planning.background import in_background
from onceover.process.guard import take_secret
from onceover.spark.failures import opening_error
from onceover.spark.lean import leave_out_pandas
from onceover.spark.slots import slots_of

# Spark's own word for it. It shows the value nowhere: neither in its UI nor in its logs.
_OPTION = "spark.authenticate.secret"


@dataclass(frozen=True)
class Opening:
    """A session that is about to be opened: a context manager, which waits for its context and ends it.

    Whatever goes wrong is raised where a result is asked for.

    Args:
        context: there first: what needs no SQL can begin.
        session: there a second later.
        standalone: the master is one that may not want the job.
    """

    context: Future[SparkContext]
    session: Future[SparkSession]
    standalone: bool

    def __enter__(self) -> Opening:
        self.context.result()
        return self

    def slots(self) -> int:
        """Return how many tasks can run at the same time; Spark has waited a minute for executors by now.

        Raises:
            Retriable: SPARK_MASTER_GONE, no master has taken the job.
        """
        with _told(standalone=self.standalone):
            return slots_of(self.context.result())

    def __exit__(self, *_: object) -> None:
        # A session that is opened on a context which is stopped tells a page about it.
        wait((self.session,))
        context: Any = self.context.result()
        # It looks once a second whether it should end, and its thread ends with the process, which is over.
        context._accumulatorServer = None
        if self.session.exception() is None:
            self.session.result().stop()
        else:
            context.stop()


def opening() -> Opening:
    """Begin to open the session: the JVM works at it while Python loads what a job needs."""
    leave_out_pandas()
    secret = take_secret()
    standalone = secret is not None
    context: Future[SparkContext] = in_background(lambda: _open_context(secret))
    session = in_background(lambda: _open_session(context, standalone=standalone))
    return Opening(context, session, standalone=standalone)


def is_ending(context: SparkContext) -> bool:
    """Tell whether the JVM was told to end, or is gone."""
    jvm: Any = context._jvm
    try:
        stopped = context._jsc.sc().isStopped()
        return bool(stopped or jvm.org.apache.spark.util.ShutdownHookManager.inShutdown())
    except (Py4JError, ConnectionError):
        return True


def _open_context(secret: str | None) -> SparkContext:
    """Return the context of the job that spark-submit has started.

    A standalone master wants the secret among the options, and on a command line everybody would see it: so
    it comes through the environment, and is put there here.
    """
    if secret is None:
        return SparkContext.getOrCreate()
    with _told(standalone=True):
        return SparkContext.getOrCreate(SparkConf().set(_OPTION, secret))


def _open_session(context: Future[SparkContext], *, standalone: bool) -> SparkSession:
    found = context.result()
    with _told(standalone=standalone):
        _wake_daemon(found)
        return SparkSession.builder.getOrCreate()


@contextmanager
def _told(*, standalone: bool) -> Iterator[None]:
    """Say of a standalone master that takes no job what Spark does not."""
    try:
        yield
    except Py4JJavaError as error:
        if not standalone:
            raise
        jvm: Any = SparkContext._jvm
        raise opening_error(error, stopped=jvm.org.apache.spark.SparkEnv.get() is None) from error


def _wake_daemon(context: SparkContext) -> None:
    """Have Spark start the processes that it forks Python workers from, in a thread, while SQL is loaded.

    A hint, no more: whatever goes wrong with it will go wrong with the job again, and is told there.
    """
    slots = context.defaultParallelism

    def wake() -> None:
        with suppress(Py4JError, PySparkException, ConnectionError):
            context.parallelize(range(slots), slots).foreachPartition(_nothing)

    threading.Thread(target=wake, name="onceover-wake-daemon", daemon=True).start()


def _nothing(rows: Iterable[int]) -> None:
    """Take rows; importable under the same name on driver and workers: Spark pickles it by reference."""
