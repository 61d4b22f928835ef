"""What the end of a Spark job means for its Airflow task. Pure: no Airflow, no I/O.

Invariant: a task is retried only when running it again can help by itself, that is after exit code 5
and after a killed process. Every other failure needs a person, who is told so at once. How the job has ended
is judged elsewhere (``onceover.spark.ended``), as for everybody who starts one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from onceover.errors import Retriable
from onceover.shown import screen

if TYPE_CHECKING:
    from onceover.spark.ended import Ended

MEANING: Final = {
    1: "the job failed",
    2: "bad usage or configuration, nothing was changed",
    3: "an operator has to decide",
    4: "fenced by a newer generation of the flow",
    5: "temporary failure",
}
# A page of stopped partitions in one error message helps nobody; `onceover status` lists all.
MAX_LISTED: Final = 10
# Enough of the driver's last words to explain a job that never came up.
QUOTED_LINES: Final = 15


class AfterJob(StrEnum):
    """What the task does after the job has ended."""

    OK = "ok"
    RETRY = "retry"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """The decision and the text a person reads; ``killed`` when processes of the job died."""

    next: AfterJob
    message: str
    killed: bool = False


def verdict_of(end: Ended) -> TaskVerdict:
    """Decide what becomes of the task of a job that has ended so."""
    # Nothing of Spark's is for the process that parses DAG files.
    from onceover.spark.ended import How

    match end.how:
        case How.WELL:
            return TaskVerdict(AfterJob.OK, "done")
        case How.LEFT_ALONE:
            error = end.report["error"]
            return TaskVerdict(AfterJob.SKIP, f"skipped: {error.get('message')}; {error.get('resolve')}")
        case How.FOUND | How.FAILED:
            told = end.report["exit"]
            after = AfterJob.RETRY if told == Retriable.exit_code else AfterJob.FAIL
            return TaskVerdict(after, describe_failure(told, end.report), killed=end.killed)
        case How.CONTRADICTED:
            return TaskVerdict(AfterJob.FAIL, _contradicted(end))
        case How.STOPPED:
            return TaskVerdict(AfterJob.RETRY, "ended by somebody before it could say how it stands")
        case How.UNWRITABLE:
            return TaskVerdict(AfterJob.FAIL, str(end.refusal))
        case How.KILLED:
            by = "" if end.signal is None else f"by signal {end.signal} "
            message = f"the Spark driver was killed {by}before it could report"
            return TaskVerdict(AfterJob.RETRY, message, killed=True)
        case How.UNTOLD:
            return TaskVerdict(AfterJob.RETRY, "temporary failure (exit code 5, no report)")
        case How.NOT_RUN:
            return TaskVerdict(AfterJob.FAIL, _not_run(end))


def _contradicted(end: Ended) -> str:
    return (
        "the job's report and its process disagree; expected: the same exit code; seen: report "
        f"{end.report.get('exit')!r}, process {end.returncode}; to resolve: read the task's log, then start "
        "the flow again"
    )


def _not_run(end: Ended) -> str:
    meaning = MEANING.get(end.returncode, "the job ended without a word")
    said = "\n".join(end.said.splitlines()[-QUOTED_LINES:])
    tail = f"; its last lines:\n{said}" if said else ""
    return f"{meaning} (exit code {end.returncode}, no report): the job did not start properly{tail}"


def judge_scope(verdict: TaskVerdict, report: Mapping[str, Any]) -> TaskVerdict:
    """Fail a copy that ended well and had nothing in scope.

    Green every day would be a misspelt pattern's disguise; a flow whose topics are still to come has no
    run to make yet.
    """
    from onceover.topics.scopecheck import nothing_in_scope

    nothing = nothing_in_scope(report.get("warnings", ()))
    return (
        verdict if verdict.next is not AfterJob.OK or nothing is None else TaskVerdict(AfterJob.FAIL, nothing)
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
