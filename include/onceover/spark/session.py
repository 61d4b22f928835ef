"""The Spark session of a driver: how it begins, and whether it is over."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onceover.planning.background import in_background
from onceover.process.guard import take_secret
from onceover.spark.lean import leave_out_pandas

# Spark's own word for it. It shows the value nowhere: neither in its UI nor in its logs.
_OPTION = "spark.authenticate.secret"


@dataclass(frozen=True)
class Opening:
    """A session that is about to be opened: a context manager, which waits for its context and ends it.

    Whatever goes wrong is raised where a result is asked for.

    Args:
        context: there first: what needs no SQL can begin.
        session: there a second later.
    """

    context: Future[SparkContext]
    session: Future[SparkSession]

    def __enter__(self) -> Opening:
        self.context.result()
        return self

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
    context: Future[SparkContext] = in_background(_open_context)
    return Opening(context, in_background(lambda: _open_session(context)))


def is_ending(context: SparkContext) -> bool:
    """Tell whether the JVM was told to end, or is gone."""
    jvm: Any = context._jvm
    try:
        stopped = context._jsc.sc().isStopped()
        return bool(stopped or jvm.org.apache.spark.util.ShutdownHookManager.inShutdown())
    except (Py4JError, ConnectionError):
        return True


def _open_context() -> SparkContext:
    """Return the context of the job that spark-submit has started.

    A standalone master wants the secret among the options, and on a command line everybody would see it: so
    it comes through the environment, and is put there here.
    """
    secret = take_secret()
    conf = SparkConf()
    if secret is not None:
        conf.set(_OPTION, secret)
    return SparkContext.getOrCreate(conf)


def _open_session(context: Future[SparkContext]) -> SparkSession:
    _wake_daemon(context.result())
    return SparkSession.builder.getOrCreate()


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
