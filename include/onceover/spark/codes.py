"""What Spark refuses or loses. Pure."""

from __future__ import annotations

from enum import auto
from typing import Final

from onceover.codes import Code


class SparkCode(Code):
    """Errors of masters, executors and their processes."""

    BAD_MASTER = auto()
    SPARK_MASTER_GONE = auto()
    SPARK_FAILED = auto()
    TOO_FEW_SLOTS = auto()
    WORKER_KILLED = auto()
    WORKER_LATE = auto()
    RUN_FILES_GONE = auto()
    JVM_GONE = auto()
    JVM_UNREACHABLE = auto()
    STOPS_UNKNOWN = auto()
    COPY_INCOMPLETE = auto()


# Of processes that died: once it is an accident, again and again a crash.
DIED: Final = (SparkCode.WORKER_KILLED, SparkCode.JVM_GONE)
