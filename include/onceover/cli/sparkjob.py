"""A Spark job as a child of the command line: its start, and what its driver has to say at the end."""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Final

from onceover.cli.codes import CommandCode
from onceover.cli.terminal.output import Interrupted
from onceover.errors import Fatal, OnceoverError, Retriable
from onceover.exitstatus import killed_by
from onceover.process.children import ChildProcess
from onceover.process.java import find_java
from onceover.spark.codes import DIED
from onceover.spark.launch.master import reach
from onceover.spark.launch.submit import SparkJob

# A driver whose JVM was taken from it ends the transactions that the lanes left open, and says what
# happened. It needs a second or two; a cluster that is away makes it try for longer.
_DRIVER_ENDS_S: Final = 20.0
# Enough of Spark's last words to see why it did not come up.
_TAIL_LINES: Final = 5


def start_job(job: SparkJob, name: str) -> ChildProcess:
    """Start spark-submit; it gets SIGTERM when this process is gone.

    Args:
        job: with a report of its own; its output goes beside that.
        name: of the process, in messages.

    Raises:
        Retriable: the Spark master does not answer; nothing was started.
        UsageError: there is no secret to talk to it.
    """
    reach(job.master)
    return ChildProcess.start(
        job.command(),
        name=name,
        log_path=job.output,
        # The Java that is usable may not be the first on PATH, or on PATH at all.
        env=job.process_environment({**os.environ, "JAVA_HOME": str(find_java().home)}),
        death_signal=signal.SIGTERM,
        family_ends_s=_DRIVER_ENDS_S,
    )


def job_result(job: SparkJob, child: ChildProcess, *, stopped: bool = False) -> dict[str, Any]:
    """Return the document that a Spark job's driver has written.

    Args:
        job: as it was started; its report and what it printed stay, for people.
        stopped: whether somebody has asked it to end.

    Raises:
        OnceoverError: what the driver says it failed with; ``Interrupted`` when it was asked to end before it
            could say anything, ``Retriable`` when it was killed, ``Fatal`` when it ended without a word.
    """
    try:
        document: dict[str, Any] = json.loads(job.report.read_text())
    except (OSError, ValueError) as error:
        raise _silent_end(child, stopped=stopped) from error
    failure = document.get("error")
    if failure is not None:
        raise _reported(document["exit"], failure)
    return document


def was_killed(error: OnceoverError) -> bool:
    """Tell whether what a run ended with is that processes of it were killed."""
    return error.code in (*DIED, CommandCode.DRIVER_KILLED)


def _silent_end(child: ChildProcess, *, stopped: bool) -> OnceoverError:
    if stopped:
        return Interrupted(
            "stopped before it had begun", code=CommandCode.STOPPED_EARLY, resolve="start it again"
        )
    number = killed_by(child.returncode or 0)
    if number is not None:
        return Retriable(
            f"the driver was killed by signal {number} before it could report",
            code=CommandCode.DRIVER_KILLED,
            where=str(child.log_path),
            resolve="run it again: it resumes where it was; the log says more",
        )
    return Fatal(
        f"Spark did not run the driver (exit code {child.returncode}, no report)",
        code=CommandCode.DRIVER_FAILED,
        where=str(child.log_path),
        seen=child.tail(_TAIL_LINES),
        resolve="correct what the log's last lines say",
    )


class _Reported(OnceoverError):
    """An error that the driver has reported, with its exit code."""


def _reported(exit_code: int, failure: dict[str, Any]) -> OnceoverError:
    kind = type(_Reported.__name__, (_Reported,), {"exit_code": exit_code})
    error: OnceoverError = kind(
        failure["message"], **{k: failure[k] for k in ("code", "where", "expected", "seen", "resolve")}
    )
    return error
