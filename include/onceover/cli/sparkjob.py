"""A Spark job as a child of the command line: its start, and what its driver has to say at the end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from onceover.embed.java import find_java
from onceover.embed.processes import ChildProcess
from onceover.errors import OnceoverError, Retriable
from onceover.spark.submit import SparkJob


def start_job(job: SparkJob, name: str, log_path: Path) -> ChildProcess:
    """Start spark-submit; it gets SIGTERM when this process is gone. The report of an earlier run is removed.

    Args:
        name: of the process, in messages.
        log_path: where its output goes.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    job.report.unlink(missing_ok=True)
    return ChildProcess.start(
        job.command(),
        name=name,
        log_path=log_path,
        # The Java that is usable may not be the first on PATH, or on PATH at all.
        env={**os.environ, "JAVA_HOME": str(find_java().home), **job.environment},
        death_signal=signal.SIGTERM,
    )


def job_result(report: Path, child: ChildProcess, log_path: Path) -> dict[str, Any]:
    """Return the document that a Spark job's driver has written.

    Raises:
        OnceoverError: what the driver says it failed with; ``Retriable`` when it was killed.
    """
    try:
        document: dict[str, Any] = json.loads(report.read_text())
    except (OSError, ValueError) as error:
        raise Retriable(
            f"the driver ended with code {child.returncode} and without a report",
            code="DRIVER_KILLED",
            where=str(log_path),
            resolve="run it again: it resumes where it was; the log says more",
        ) from error
    failure = document.get("error")
    if failure is not None:
        raise _reported(document["exit"], failure)
    return document


class _Reported(OnceoverError):
    """An error that the driver has reported, with its exit code."""


def _reported(exit_code: int, failure: dict[str, Any]) -> OnceoverError:
    kind = type(_Reported.__name__, (_Reported,), {"exit_code": exit_code})
    error: OnceoverError = kind(
        failure["message"], **{k: failure[k] for k in ("code", "where", "expected", "seen", "resolve")}
    )
    return error
