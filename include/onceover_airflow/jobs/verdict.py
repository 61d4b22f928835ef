"""What the end of a Spark job means for its Airflow task. Pure: no Airflow, no I/O.

Invariant: a task is retried only when running it again can help by itself, that is after exit code 5
and after a killed process. Every other failure needs a person, who is told so at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from onceover.exitstatus import killed_by
from onceover.shown import screen

EXIT_DONE: Final = 0
EXIT_TEMPORARY: Final = 5
MEANING: Final = {
    1: "the job failed",
    2: "bad usage or configuration, nothing was changed",
    3: "an operator has to decide",
    4: "fenced by a newer generation of the flow",
    5: "temporary failure",
}
# A page of stopped partitions in one error message helps nobody; `onceover status` lists all.
MAX_LISTED: Final = 10


class AfterJob(StrEnum):
    """What the task does after the job has ended."""

    OK = "ok"
    RETRY = "retry"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """The decision and the text a person reads; ``killed`` when processes of the job died."""

    next: AfterJob
    message: str
    killed: bool = False


def judge(returncode: int, report: Mapping[str, Any] | None, *, log_tail: str = "") -> TaskVerdict:
    """Decide by the job's report and by the exit code of spark-submit (negative: a signal).

    The report is written last, so where there is one it tells the outcome even if the process was
    killed while it shut down. Where both speak and contradict each other, nothing is believed.
    ``log_tail`` (the job's last lines) is quoted only when there is no report to quote.
    """
    if report is None:
        return _judge_silent(returncode, log_tail)
    told = report.get("exit")
    if not isinstance(told, int) or (told != returncode and not killed(returncode)):
        return TaskVerdict(
            AfterJob.FAIL,
            f"the job's report and its process disagree; expected: the same exit code; seen: report "
            f"{told!r}, process {returncode}; to resolve: read the task's log, then start the flow again",
        )
    if told == EXIT_DONE:
        return TaskVerdict(AfterJob.OK, "done")
    message = describe_failure(told, report)
    if told != EXIT_TEMPORARY:
        return TaskVerdict(AfterJob.FAIL, message)
    return TaskVerdict(AfterJob.RETRY, message, killed=killed(returncode) or _died(report))


def judge_scope(verdict: TaskVerdict, report: Mapping[str, Any] | None) -> TaskVerdict:
    """Fail a copy that ended well and had nothing in scope.

    Green every day would be a misspelt pattern's disguise; a flow whose topics are still to come has no
    run to make yet.
    """
    from onceover.topics.scopecheck import nothing_in_scope

    nothing = nothing_in_scope((report or {}).get("warnings", ()))
    return (
        verdict if verdict.next is not AfterJob.OK or nothing is None else TaskVerdict(AfterJob.FAIL, nothing)
    )


def killed(returncode: int) -> bool:
    """Tell whether spark-submit, its JVM or the Python driver was ended by a signal."""
    return killed_by(returncode) is not None


def _died(report: Mapping[str, Any]) -> bool:
    """Tell whether the driver reports the death of its JVM or of Spark's workers, which it has outlived."""
    # Nothing of Spark's is for the process that parses DAG files.
    from onceover.spark.codes import DIED

    error = report.get("error")
    return isinstance(error, Mapping) and error.get("code") in DIED


def _judge_silent(returncode: int, log_tail: str) -> TaskVerdict:
    number = killed_by(returncode)
    if number is not None:
        return TaskVerdict(
            AfterJob.RETRY,
            f"the Spark driver was killed by signal {number} before it could report",
            killed=True,
        )
    if returncode == EXIT_TEMPORARY:
        return TaskVerdict(AfterJob.RETRY, "temporary failure (exit code 5, no report)")
    meaning = MEANING.get(returncode, "the job ended without a word")
    tail = f"; its last lines:\n{log_tail}" if log_tail else ""
    return TaskVerdict(
        AfterJob.FAIL, f"{meaning} (exit code {returncode}, no report): the job did not start properly{tail}"
    )


def describe_failure(exit_code: int, report: Mapping[str, Any]) -> str:
    """Return what, where, expected, seen and what resolves it, from a report with ``exit`` > 0."""
    parts = [f"{MEANING.get(exit_code, 'the job failed')} (exit code {exit_code})"]
    error = report.get("error")
    if isinstance(error, Mapping):
        parts.append(describe_error(error))
    stopped = report.get("stopped") or []
    parts += [_describe_stop(stop) for stop in stopped[:MAX_LISTED]]
    if len(stopped) > MAX_LISTED:
        parts.append(
            f"and {len(stopped) - MAX_LISTED} more: onceover status {report.get('flow', '')}".rstrip()
        )
    return screen("\n".join(parts))


def describe_error(error: Mapping[str, Any]) -> str:
    """Return one line from the ``error`` object of the command line's JSON."""
    line = str(error.get("message") or error.get("code") or "no message")
    labels = (("where", "where"), ("expected", "expected"), ("seen", "seen"), ("resolve", "to resolve"))
    return "; ".join([line, *(f"{label}: {error[key]}" for key, label in labels if error.get(key))])


def _describe_stop(stop: Mapping[str, Any]) -> str:
    # "status" nests code, message and resolve under "stop"; the replicate report has them flat.
    reason = stop["stop"] if isinstance(stop.get("stop"), Mapping) else stop
    return f"{stop.get('topic')}:{stop.get('partition')} stopped: {describe_error(reason)}"


def read_report(path: Path) -> dict[str, Any] | None:
    """Return the report, or ``None`` when the job ended before it had written one completely."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return document if isinstance(document, dict) else None


def count_report(report: Mapping[str, Any]) -> dict[str, int | float | str]:
    """Return what may go into an XCom: names and counts."""
    counts: dict[str, int | float | str] = {
        key: report[key]
        for key in (
            "flow",
            "generation",
            "until",
            "records",
            "bytes",
            "transactions",
            "seconds",
            "caught_up",
            "restarts",
        )
        if isinstance(report.get(key), int | float | str)
    }
    stopped: Sequence[object] = report.get("stopped") or []
    return {**counts, "partitions_stopped": len(stopped)}


def topics_in(told: Mapping[str, Any]) -> dict[str, str]:
    """Return the topics, source name to target name, that a driver's note or report tells of."""
    topics = told.get("topics")
    return dict(topics) if isinstance(topics, dict) else {}
