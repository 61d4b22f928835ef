"""What the end of a job means for its task: every way to end, with and without a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceover.spark import ended
from onceover_airflow.jobs.verdict import (
    MAX_LISTED,
    AfterJob,
    TaskVerdict,
    count_report,
    judge_scope,
    verdict_of,
)

# As PySpark 4.2.0's spark-submit was seen to report them.
KILLED = {
    "driver SIGKILL": 137,
    "driver SIGTERM": 143,
    "JVM SIGKILL": -9,
    "JVM SIGTERM": 143,
    "JVM SIGINT": 130,
}


def report(code: int, **fields: Any) -> dict[str, Any]:
    return {"onceover": 1, "command": "replicate", "ok": code == 0, "exit": code, "flow": "f", **fields}


def judge(returncode: int, report: dict[str, Any] | None, *, log_tail: str = "") -> TaskVerdict:
    """Return what becomes of a task whose job has ended so."""
    return verdict_of(ended.judge(returncode, report, Path("log"), tail=log_tail))


@pytest.mark.parametrize("returncode", KILLED.values(), ids=KILLED.keys())
def test_killed_without_report_is_retried(returncode: int) -> None:
    """A killed job resumes by itself."""
    assert judge(returncode, None).next is AfterJob.RETRY


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, AfterJob.OK),
        (1, AfterJob.FAIL),
        (2, AfterJob.FAIL),
        (3, AfterJob.FAIL),
        (4, AfterJob.FAIL),
        (5, AfterJob.RETRY),
    ],
)
def test_reported_code_decides(code: int, expected: AfterJob) -> None:
    """Only exit code 5 is worth another try."""
    assert judge(code, report(code)).next is expected


@pytest.mark.parametrize(
    ("code", "expected"), [(0, AfterJob.OK), (3, AfterJob.FAIL), (4, AfterJob.FAIL), (5, AfterJob.RETRY)]
)
def test_report_outlives_a_kill_during_shutdown(code: int, expected: AfterJob) -> None:
    """The report is written last: a signal that came later does not change what was done."""
    assert judge(-9, report(code)).next is expected


@pytest.mark.parametrize("returncode", [5, -9, 143])
@pytest.mark.parametrize(
    ("code", "crash"),
    [("JVM_GONE", True), ("WORKER_KILLED", True), ("SPARK_MASTER_GONE", False), ("WORKER_LATE", False)],
)
def test_processes_that_died_are_counted_as_such_although_the_driver_outlived_them(
    returncode: int, code: str, crash: bool
) -> None:
    """A driver that reports the death of its JVM or workers has not died itself: crashes all the same."""
    verdict = judge(returncode, report(5, error={"code": code, "message": "gone"}))
    assert (verdict.next, verdict.killed) == (AfterJob.RETRY, crash or returncode != 5)


@pytest.mark.parametrize("error", [None, "JVM_GONE", {}, {"code": None}, {"code": ["JVM_GONE"]}])
def test_report_with_an_odd_error_is_no_crash(error: object) -> None:
    """It is read, not trusted."""
    verdict = judge(5, report(5, error=error))
    assert (verdict.next, verdict.killed) == (AfterJob.RETRY, False)


@pytest.mark.parametrize(("returncode", "code"), [(0, 5), (5, 0), (1, 0), (2, 4)])
def test_report_against_exit_code_fails(returncode: int, code: int) -> None:
    """Contradicting evidence is never taken for success, nor tried again and again."""
    verdict = judge(returncode, report(code))
    assert verdict.next is AfterJob.FAIL
    assert "disagree" in verdict.message


@pytest.mark.parametrize("told", [None, "0", [], {}])
def test_report_without_a_code_fails(told: object) -> None:
    """A document that does not say how the run ended proves nothing."""
    assert judge(0, {"exit": told}).next is AfterJob.FAIL


@pytest.mark.parametrize("returncode", [0, 1, 2, 3, 4, 77])
def test_silent_end_without_signal_fails_with_the_last_lines(returncode: int) -> None:
    """A job that could not start at all would fail the same way again."""
    verdict = judge(returncode, None, log_tail="Could not parse Master URL")
    assert verdict.next is AfterJob.FAIL
    assert "Could not parse Master URL" in verdict.message


def test_silent_temporary_failure_is_retried() -> None:
    """Exit code 5 speaks for itself."""
    assert judge(5, None).next is AfterJob.RETRY


def test_failure_names_what_where_expected_seen_and_resolve() -> None:
    """The task's message is the job's own error, complete."""
    error = {
        "message": "a newer run has taken over",
        "where": "flow f",
        "expected": "generation 3",
        "seen": "generation 4",
        "resolve": "nothing: the newer run copies",
    }
    assert judge(4, report(4, error=error)).message == (
        "fenced by a newer generation of the flow (exit code 4)\n"
        "a newer run has taken over; where: flow f; expected: generation 3; seen: generation 4; "
        "to resolve: nothing: the newer run copies"
    )


@pytest.mark.parametrize("nested", [True, False])
def test_stopped_partitions_are_named_with_what_resolves_them(nested: bool) -> None:
    """Both shapes of a stopped partition are read: flat, and nested as in `status`."""
    reason = {"code": "TRUNCATED", "message": "the log starts at 5", "resolve": "onceover partition skip-to"}
    where: dict[str, Any] = {"topic": "orders", "partition": 3}
    stopped = [{**where, "stop": reason} if nested else {**where, **reason}]
    text = judge(3, report(3, stopped=stopped)).message
    assert "orders:3 stopped: the log starts at 5; to resolve: onceover partition skip-to" in text


def test_long_lists_of_stopped_partitions_are_cut() -> None:
    """A message stays readable; the rest is counted."""
    stopped = [{"topic": "t", "partition": p, "message": "m"} for p in range(MAX_LISTED + 7)]
    text = judge(3, report(3, stopped=stopped)).message
    assert text.count("stopped:") == MAX_LISTED
    assert "and 7 more: onceover status f" in text


def test_killed_knows_signals_from_codes() -> None:
    """128 itself is no signal."""
    codes = (-15, -9, 0, 1, 5, 128, 129, 137, 143)
    assert [code for code in codes if judge(code, None).killed] == [-15, -9, 129, 137, 143]


def test_copy_of_nothing_is_no_success() -> None:
    """A misspelt pattern would be green every day; another remark fails nothing, no verdict is softened."""
    nothing = {"code": "NOTHING_IN_SCOPE", "message": "no topic is in scope: x.*", "resolve": "correct x.*"}
    remark = {"code": "PATTERN_WITHOUT_TOPIC", "message": "y", "resolve": "z"}
    well = judge(0, report(0))
    assert judge_scope(well, report(0, warnings=[remark])) == well
    assert judge_scope(well, report(0)) == judge_scope(well, {}) == well
    told = judge_scope(well, report(0, warnings=[remark, nothing]))
    assert told == TaskVerdict(AfterJob.FAIL, "no topic is in scope: x.*; correct x.*")
    away = judge(5, report(5))
    assert judge_scope(away, report(5, warnings=[nothing])) == away


def test_counts_hold_no_text_but_names() -> None:
    """An XCom shows numbers; neither paths nor errors get there."""
    counted = count_report(
        report(
            0,
            generation=3,
            until="1m",
            records=10,
            bytes=99,
            transactions=2,
            seconds=1.5,
            host="h",
            stopped=[{}],
        )
    )
    assert counted == {
        "flow": "f",
        "generation": 3,
        "until": "1m",
        "records": 10,
        "bytes": 99,
        "transactions": 2,
        "seconds": 1.5,
        "partitions_stopped": 1,
    }
