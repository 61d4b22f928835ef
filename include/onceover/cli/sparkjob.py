"""A Spark job as a child of the command line: its start, and its end as a document or an error."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from onceover.cli.codes import CommandCode
from onceover.cli.terminal.output import Interrupted
from onceover.errors import Fatal, OnceoverError, Retriable
from onceover.process.children import ChildProcess
from onceover.process.java import find_java
from onceover.spark.ended import KEPT_LINES, Ended, How, judge
from onceover.spark.launch.master import reach
from onceover.spark.launch.runfiles import read_report, refused
from onceover.spark.launch.scratch import scratch
from onceover.spark.launch.submit import SparkJob

# A driver whose JVM was taken from it ends the transactions that the lanes left open, and says what
# happened. It needs a second or two; a cluster that is away makes it try for longer.
_DRIVER_ENDS_S: Final = 20.0
# Enough of Spark's last words to see why it did not come up.
_QUOTED_LINES: Final = 5
_FRAME: Final = re.compile(r"\s+at \S+\(|\s+\.\.\. \d+ more")


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job has ended: a document, or an error; ``killed`` when processes of it died."""

    document: dict[str, Any]
    error: OnceoverError | None
    killed: bool

    def result(self) -> dict[str, Any]:
        """Return the document.

        Raises:
            OnceoverError: the error, where there is one.
        """
        if self.error is not None:
            raise self.error
        return self.document


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
        why = refused(job.report)
    end = _judged(job, child, why=why)
    if end.how is How.UNWRITABLE:
        raise end.refusal


def job_end(job: SparkJob, child: ChildProcess, *, stopped: bool = False) -> JobEnd:
    """Return how a Spark job has ended: with the document that its driver has written, or with an error.

    The error is what the driver says it failed with; ``Interrupted`` when it was asked to end before it could
    say anything, ``Retriable`` when it was killed, ``Fatal`` when it ended without a word, or with different
    ones in its report and its exit code.

    Args:
        job: as it was started; its report and what it printed stay, for people.
        child: its process, which has ended.
        stopped: whether somebody has asked it to end.
    """
    return said_of(_judged(job, child, stopped=stopped), str(job.output))


def said_of(end: Ended, log: str) -> JobEnd:
    """Return how a job has ended as the command line says it. Pure.

    Args:
        log: the file with all that it has printed.
    """
    return JobEnd(dict(end.report), _error_of(end, log), end.killed)


def _judged(job: SparkJob, child: ChildProcess, *, why: str | None = None, stopped: bool = False) -> Ended:
    return judge(
        child.returncode or 0,
        read_report(job.report),
        job.report.parent,
        tail=child.tail(KEPT_LINES),
        refused=why,
        stopped=stopped,
    )


def _error_of(end: Ended, log: str) -> OnceoverError | None:
    match end.how:
        case How.WELL | How.FOUND:
            return None
        case How.FAILED | How.LEFT_ALONE:
            return _reported(end.report)
        case How.STOPPED:
            return stopped_early(_reported(end.report) if end.report.get("error") else None)
        case How.UNWRITABLE:
            return end.refusal
        case How.CONTRADICTED:
            return _contradicted(end, log)
        case How.KILLED:
            by = "" if end.signal is None else f"by signal {end.signal} "
            return Retriable(
                f"the driver was killed {by}before it could report",
                code=CommandCode.DRIVER_KILLED,
                where=log,
                resolve="run it again: it resumes where it was; the log says more",
            )
        case How.UNTOLD | How.NOT_RUN:
            return _not_run(end, log)


def _contradicted(end: Ended, log: str) -> Fatal:
    return Fatal(
        "the job's report and its process disagree",
        code=CommandCode.DRIVER_DISAGREES,
        where=log,
        expected="the same exit code",
        seen=f"report {end.report.get('exit')!r}, process {end.returncode}",
        resolve="read the log, then start it again",
    )


def _not_run(end: Ended, log: str) -> Fatal:
    """Say that nobody knows more than the last lines, also where the exit code is that of what may pass.

    A scheduler believes that alone; at a terminal somebody is there who can read.
    """
    return Fatal(
        f"Spark did not run the driver (exit code {end.returncode}, no report)",
        code=CommandCode.DRIVER_FAILED,
        where=log,
        seen=_last_words(end.said),
        resolve="correct what the log's last lines say",
    )


def _last_words(said: str) -> str:
    """Return the last lines that say something: of Java's, most tell where in its code it was."""
    return "\n".join([line for line in said.splitlines() if not _FRAME.match(line)][-_QUOTED_LINES:])


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


def _reported(report: Mapping[str, Any]) -> OnceoverError:
    """Return what a driver has reported; it is read, not trusted."""
    told = report.get("error")
    failure: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    kind = type(_Reported.__name__, (_Reported,), {"exit_code": report["exit"]})
    error: OnceoverError = kind(
        str(failure.get("message") or failure.get("code") or "the driver failed, and has not said why"),
        **{key: failure.get(key) for key in ("code", "where", "expected", "seen", "resolve")},
    )
    return error
