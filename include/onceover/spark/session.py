"""The Spark session of a driver."""

from __future__ import annotations

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

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
