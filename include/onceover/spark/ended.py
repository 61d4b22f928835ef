"""How a Spark job has ended, judged once for everybody who starts one. Pure.

Invariant: a report is written last, so where there is one it tells the outcome, even if the process was
killed while it shut down; where report and process contradict each other, neither is believed. Who has
started the job says the same in its own way: the command line with errors and exit codes, Airflow with what
its task does next.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from onceover.errors import FULL_DISK, NeedsOperator, Retriable, unusable_amid
from onceover.exitstatus import killed_by
from onceover.lead.codes import LeadCode
from onceover.spark.codes import DIED, SparkCode

# How many of a job's last lines are looked at: Java says where in its code it was, behind the reason.
KEPT_LINES: Final = 200
# All that spark-submit says, with code 1, where the JVM that makes its command line was killed.
# A JVM that reads options from its environment says so before.
_NO_LAUNCHER: Final = re.compile(
    r"((NOTE: )?Picked up \w+: .*\n)*\S*spark-class: line \d+: CMD: bad array subscript"
)


class How(StrEnum):
    """All ways in which a job ends, for those who start one."""

    WELL = "well"
    # Reported, not 0, and nothing went wrong: partitions are stopped, an audit did not pass.
    FOUND = "found"
    # Reported, with what went wrong.
    FAILED = "failed"
    # Reported: another run lives, which was not to be taken over.
    LEFT_ALONE = "left alone"
    # Report and process say different things, or the report does not say how it ended.
    CONTRADICTED = "contradicted"
    # Somebody has ended it before it could say how it stands.
    STOPPED = "stopped"
    # No report: it cannot be written, mostly because a disk is full.
    UNWRITABLE = "unwritable"
    # No report: a signal has ended spark-submit, its JVM or the driver.
    KILLED = "killed"
    # No report, and the exit code of what may pass.
    UNTOLD = "untold"
    # No report, and nothing that explains it but the last lines.
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job has ended, and by what that is known.

    Args:
        how: in a word.
        killed: its processes died, also where its driver has outlived that: another start at once may help.
        returncode: of spark-submit, negative for a signal.
        report: the driver's; empty where it has none. But for CONTRADICTED and STOPPED, ``exit`` is a number.
        said: its last lines.
        folder: where it reports.
        refused: of UNWRITABLE, why that is so, in the words of the operating system.
    """

    how: How
    killed: bool
    returncode: int
    report: Mapping[str, Any]
    said: str
    folder: Path
    refused: str | None

    @property
    def signal(self) -> int | None:
        """The signal that has ended it, where one did and it is known which."""
        return killed_by(self.returncode)

    @property
    def refusal(self) -> NeedsOperator:
        """UNWRITABLE as the error that it is."""
        # Of its number nobody wants to know.
        return unusable_amid(OSError(0, self.refused or "nobody knows why", str(self.folder)))


def judge(
    returncode: int,
    report: Mapping[str, Any] | None,
    folder: Path,
    *,
    tail: str = "",
    refused: str | None = None,
    stopped: bool = False,
) -> Ended:
    """Return how a job has ended.

    Args:
        returncode: of spark-submit, negative for a signal.
        report: the driver's, None where there is none, or not the whole of it.
        folder: where it reports.
        tail: its last lines, ``KEPT_LINES`` of them; they count where there is no report.
        refused: why nothing can be written in ``folder``; None where it can, or nobody has tried.
        stopped: whether somebody has asked it to end.
    """
    if report is not None:
        how = _told(returncode, report, stopped=stopped)
        return Ended(how, _died(how, returncode, report), returncode, report, tail, folder, None)
    full = FULL_DISK.search(tail)
    # What was killed may have told of any disk, and long before: only what was tried counts then.
    if full is not None and killed_by(returncode) not in (signal.SIGKILL, signal.SIGTERM):
        refused = full.group()
    how = _silent(returncode, tail, unwritable=refused is not None, stopped=stopped)
    return Ended(how, how is How.KILLED, returncode, {}, tail, folder, refused)


def _told(returncode: int, report: Mapping[str, Any], *, stopped: bool) -> How:
    told = report.get("exit")
    if stopped and _came_to_nothing(report):
        return How.STOPPED
    # A JVM that has ended by itself has a code of its own, and the driver, which has seen it go, another.
    outlived = told == Retriable.exit_code and _code(report) == SparkCode.JVM_GONE
    if not isinstance(told, int) or (told != returncode and killed_by(returncode) is None and not outlived):
        return How.CONTRADICTED
    if told == 0:
        return How.WELL
    if not isinstance(report.get("error"), Mapping):
        # What may pass is no finding, also where nobody has said what it is.
        return How.FAILED if told == Retriable.exit_code else How.FOUND
    return How.LEFT_ALONE if _code(report) == LeadCode.LEFT_ALONE else How.FAILED


def _code(report: Mapping[str, Any]) -> object:
    """Return the code of a reported error; None without one. It is read, not trusted."""
    error = report.get("error")
    return error.get("code") if isinstance(error, Mapping) else None


def _came_to_nothing(report: Mapping[str, Any]) -> bool:
    """Tell whether a run that was asked to end has not led anything, or has lost what it needed on the way.

    Asked to end before its driver listens, the JVM is what is ended; and of a cluster that is away nobody
    wants to hear "run it again" who has just ended it.
    """
    if report.get("error") is not None:
        return report.get("exit") == Retriable.exit_code
    return report.get("generation") is None


def _died(how: How, returncode: int, report: Mapping[str, Any]) -> bool:
    """Tell whether processes died of a job that has reported: it may outlive its JVM, and Spark's workers."""
    if how is not How.FAILED or report["exit"] != Retriable.exit_code:
        return False
    return _code(report) in DIED or killed_by(returncode) is not None


def _silent(returncode: int, tail: str, *, unwritable: bool, stopped: bool) -> How:
    if unwritable:
        return How.UNWRITABLE
    if stopped:
        return How.STOPPED
    if killed_by(returncode) is not None or _NO_LAUNCHER.fullmatch(tail):
        return How.KILLED
    return How.UNTOLD if returncode == Retriable.exit_code else How.NOT_RUN
