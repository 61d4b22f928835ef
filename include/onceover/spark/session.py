"""The Spark session of a driver: how it begins, and whether it is over."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from onceover.planning.background import in_background
from onceover.process.guard import take_secret

# Spark's own word for it. It shows the value nowhere: neither in its UI nor in its logs.
_OPTION = "spark.authenticate.secret"


def open_session() -> SparkSession:
    """Return the session of the job that spark-submit has started, a context manager.

    A standalone master wants the secret among the options, and on a command line everybody would see it: so
    it comes through the environment, and is put there here.
    """
    secret = take_secret()
    if secret is not None:
        SparkContext.getOrCreate(SparkConf().set(_OPTION, secret))
    return SparkSession.builder.getOrCreate()


def opening() -> Future[SparkSession]:
    """Begin to open the session; the JVM works at it while Python loads what a job needs (a second of each).

    Whatever goes wrong with it is raised where the result is asked for.
    """
    return in_background(open_session)


def is_ending(spark: SparkSession) -> bool:
    """Tell whether the JVM was told to end, or is gone."""
    jvm: Any = spark._jvm
    try:
        stopped = spark.sparkContext._jsc.sc().isStopped()
        return bool(stopped or jvm.org.apache.spark.util.ShutdownHookManager.inShutdown())
    except (Py4JError, ConnectionError):
        return True
