"""The Spark session of a driver: how it begins, and whether it is over."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onceover.planning.background import in_background
from onceover.process.guard import take_secret
from onceover.spark.failures import jvm_gone, opening_error
from onceover.spark.lean import leave_out_pandas

# Spark's own word for it. It shows the value nowhere: neither in its UI nor in its logs.
_OPTION = "spark.authenticate.secret"


@dataclass(frozen=True)
class Opening:
    """A session that is being opened: a context manager, which waits for it and ends it.

    Args:
        session: what it will be, or what went wrong with it.
        jvm: process id of the JVM, whose child the driver is for as long as that lives.
    """

    session: Future[SparkSession]
    jvm: int

    def __enter__(self) -> SparkSession:
        return self.session.result()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        spark = self.session.result()
        context: Any = spark.sparkContext
        # It looks once a second whether it should end, and its thread ends with the process, which is over.
        context._accumulatorServer = None
        # What went wrong is what counts, not that a JVM which is gone cannot be told to end.
        with nullcontext() if kind is None else suppress(Py4JError, PySparkException, ConnectionError):
            spark.stop()


def opening(jvm: int) -> Opening:
    """Begin to open the session: the JVM works at it while Python loads what a job needs.

    Args:
        jvm: who has started this process, as it was at its very beginning.
    """
    leave_out_pandas()
    secret = take_secret()
    return Opening(in_background(lambda: _open(secret)), jvm)


def is_ending(spark: SparkSession) -> bool:
    """Tell whether the JVM was told to end, or is gone."""
    jvm: Any = spark._jvm
    try:
        context: Any = spark.sparkContext._jsc
        return bool(context.sc().isStopped()) or _in_shutdown(jvm)
    except (Py4JError, ConnectionError):
        return True


def _open(secret: str | None) -> SparkSession:
    """Return the session of the job that spark-submit has started.

    A standalone master wants the secret among the options, and on a command line everybody would see it: so
    it comes through the environment, and is put there here.

    Raises:
        Retriable: SPARK_MASTER_GONE, the standalone master does not want the job; JVM_GONE.
    """
    with _told(standalone=secret is not None):
        context = SparkContext.getOrCreate(_conf(secret))
        _wake_daemon(context)
        return SparkSession.builder.getOrCreate()


def _conf(secret: str | None) -> SparkConf | None:
    return None if secret is None else SparkConf().set(_OPTION, secret)


@contextmanager
def _told(*, standalone: bool) -> Iterator[None]:
    """Tell apart a JVM that is told to end and a master that takes no job: Spark says the same of both."""
    try:
        yield
    except Py4JJavaError as error:
        if _in_shutdown(SparkContext._jvm):
            raise jvm_gone() from error
        if not standalone:
            raise
        raise opening_error(error) from error


def _in_shutdown(jvm: Any) -> bool:
    return bool(jvm.org.apache.spark.util.ShutdownHookManager.inShutdown())


def _wake_daemon(context: SparkContext) -> None:
    """Have Spark start the process that it forks Python workers from, while SQL is loaded.

    A hint, no more: whatever goes wrong with it will go wrong with the job again, and is told there.
    """
    # One on each executor, of which a cluster has no more than cores.
    tasks = int(context.getConf().get("spark.cores.max", "1") or 1)
    in_background(lambda: context.parallelize(range(tasks), tasks).count())
