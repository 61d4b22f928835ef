"""A Spark job as a child of the command line: its start, and what its driver has to say at the end."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from onceover.cli.codes import CommandCode
from onceover.cli.terminal.output import Interrupted
from onceover.errors import Fatal, OnceoverError, Retriable, unusable_path
from onceover.exitstatus import killed_by
from onceover.process.children import ChildProcess
from onceover.process.java import find_java
from onceover.spark.codes import DIED
from onceover.spark.launch.master import reach
from onceover.spark.launch.scratch import scratch
from onceover.spark.launch.submit import SparkJob

# A driver whose JVM was taken from it ends the transactions that the lanes left open, and says what
# happened. It needs a second or two; a cluster that is away makes it try for longer.
_DRIVER_ENDS_S: Final = 20.0
# Enough of Spark's last words to see why it did not come up.
_TAIL_LINES: Final = 5
_TAIL_OF_JAVA: Final = 200
_FRAME: Final = re.compile(r"\s+at \S+\(|\s+\.\.\. \d+ more")
# As long as a report of many topics is.
_REPORT_BYTES: Final = 64 << 10
# All that spark-submit says, with code 1, where the JVM that makes its command line was killed.
_NO_LAUNCHER: Final = re.compile(r"\S*spark-class: line \d+: CMD: bad array subscript")


@contextmanager
def running_job(job: SparkJob, name: str) -> Iterator[ChildProcess]:
    """Run spark-submit meanwhile; it gets SIGTERM when this process is gone.

    Args:
        job: with files of its own.
        name: of the process, in messages.

    Raises:
        Retriable: the Spark master does not answer; nothing was started.
        UsageError: there is no secret to talk to it, or no folder for temporary files; PATH_UNUSABLE, the
            driver was not able to report.
    """
    reach(job.master)
    # The Java that is usable may not be the first on PATH, or on PATH at all.
    environment = job.process_environment({**os.environ, "JAVA_HOME": str(find_java().home)})
    with scratch(job.scratch) as held:
        child = ChildProcess.start(
            job.command(),
            name=name,
            log_path=job.output,
            env=environment,
            death_signal=signal.SIGTERM,
            family_ends_s=_DRIVER_ENDS_S,
            inherited=(held,),
        )
        try:
            yield child
        finally:
            child.stop()
        # Before its scratch is removed, which makes room again.
        refused = _unwritable(job.report.parent, child) if _document(job) is None else None
    if refused is not None:
        raise unusable_path(refused)


def job_result(job: SparkJob, child: ChildProcess, *, stopped: bool = False) -> dict[str, Any]:
    """Return the document that a Spark job's driver has written.

    Args:
        job: as it was started; its report and what it printed stay, for people.
        stopped: whether somebody has asked it to end.

    Raises:
        OnceoverError: what the driver says it failed with; ``Interrupted`` when it was asked to end before it
            could say anything, ``Retriable`` when it was killed, ``Fatal`` when it ended without a word.
    """
    document = _document(job)
    if document is None:
        raise _silent_end(child, stopped=stopped)
    failure = document.get("error")
    if failure is not None:
        reported = _reported(document["exit"], failure)
        # Asked to end before its driver listens, the JVM is what is ended; and of a cluster that is away
        # nobody wants to hear "run it again" who has just ended it.
        raise stopped_early(reported) if stopped and reported.exit_code == Retriable.exit_code else reported
    return document


def _document(job: SparkJob) -> dict[str, Any] | None:
    """Return what the driver has reported; None where there is nothing, or not the whole of it."""
    try:
        document: dict[str, Any] = json.loads(job.report.read_text())
    except (OSError, ValueError):
        return None
    return document


def was_killed(error: OnceoverError) -> bool:
    """Tell whether what a run ended with is that processes of it were killed."""
    return error.code in (*DIED, CommandCode.DRIVER_KILLED)


def _silent_end(child: ChildProcess, *, stopped: bool) -> OnceoverError:
    if stopped:
        return stopped_early()
    number, said = killed_by(child.returncode or 0), child.tail(_TAIL_LINES)
    if number is not None or _NO_LAUNCHER.fullmatch(said):
        return Retriable(
            f"the driver was killed {f'by signal {number} ' if number else ''}before it could report",
            code=CommandCode.DRIVER_KILLED,
            where=str(child.log_path),
            resolve="run it again: it resumes where it was; the log says more",
        )
    return Fatal(
        f"Spark did not run the driver (exit code {child.returncode}, no report)",
        code=CommandCode.DRIVER_FAILED,
        where=str(child.log_path),
        seen=_last_words(child),
        resolve="correct what the log's last lines say",
    )


def _unwritable(folder: Path, child: ChildProcess) -> OSError | None:
    """Return why a driver's report, or what it printed, cannot be written: mostly a disk that is full.

    Its JVM may have made room by now, as it puts away what it had there: then its last lines tell.
    """
    full = os.strerror(errno.ENOSPC)
    if not folder.is_dir():
        return None  # nothing was started
    if full in child.tail(_TAIL_OF_JAVA):
        return OSError(errno.ENOSPC, full, str(folder))
    try:
        with NamedTemporaryFile(dir=folder) as file:
            file.write(bytes(_REPORT_BYTES))
            file.flush()
    except OSError as error:
        return OSError(error.errno, error.strerror, str(folder))
    return None


def _last_words(child: ChildProcess) -> str:
    """Return the last lines that say something: of Java's, most tell where in its code it was."""
    lines = child.tail(_TAIL_OF_JAVA).splitlines()
    return "\n".join([line for line in lines if not _FRAME.match(line)][-_TAIL_LINES:])


def stopped_early(met: OnceoverError | None = None) -> Interrupted:
    """Return what a run ends with that somebody has ended before it could say how it stands.

    Args:
        met: what was in its way.
    """
    return Interrupted(
        "stopped before it had begun, or could finish what it had",
        code=CommandCode.STOPPED_EARLY,
        seen=None if met is None else met.message,
        resolve="start it again: it goes on where it was",
    )


class _Reported(OnceoverError):
    """An error that the driver has reported, with its exit code."""


def _reported(exit_code: int, failure: dict[str, Any]) -> OnceoverError:
    kind = type(_Reported.__name__, (_Reported,), {"exit_code": exit_code})
    error: OnceoverError = kind(
        failure["message"], **{k: failure[k] for k in ("code", "where", "expected", "seen", "resolve")}
    )
    return error
