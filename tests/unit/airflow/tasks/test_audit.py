"""The auditing task: what it asks for, how each verdict ends it, what is told and announced."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRuntimeError,
    AirflowSkipException,
    ErrorType,
    ParamValidationError,
)
from airflow.sdk.execution_time.comms import ErrorResponse

from onceover.audit.checks.suites import RULES
from onceover.audit.checks.verdict import RuleOutcome, conclude
from onceover.audit.model import FindingKind, Reason
from onceover.audit.report import jsonreport
from onceover.config.flow.flowfile import Flow
from onceover.errors import Retriable, UsageError
from onceover.spark.ended import judge
from onceover.spark.launch.submit import AuditOptions
from onceover.state.records.verdicts import Verdict
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.jobs.verdict import verdict_of
from onceover_airflow.tasks import audit
from tests.support.worlds import audits
from tests.unit.airflow.conftest import FakeSpark

_EXITS = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNVERIFIABLE: 3}
_CODES = {Verdict.FAIL: "LOST", Verdict.UNVERIFIABLE: "OFFSETS"}
_SEEN = {
    Verdict.PASS: audits.result(),
    Verdict.FAIL: audits.result(
        [audits.partition_result(0, audits.digests(0, 0, 200), findings=[audits.finding(FindingKind.LOST)])]
    ),
    Verdict.UNVERIFIABLE: audits.result(
        [
            audits.partition_result(
                0, audits.digests(0, 0, 200), unverifiable=[audits.stretch(Reason.RETENTION, 0, 0, 9)]
            )
        ]
    ),
}


class Task:
    """A task instance that keeps what is pushed, and hands out what was."""

    def __init__(self, returned: Any = None, pushed: dict[str, Any] | None = None) -> None:
        self.returned = returned
        self.pushed = pushed or {}

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep a value."""
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str | None = None) -> Any:
        """Return what the audit left."""
        assert task_ids == audit.AUDIT_TASK
        return self.returned if key is None else self.pushed.get(key)


class Events(dict[AssetAlias, "Events"]):
    """Outlet events that remember what was added."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[tuple[str, Any]] = []

    def __missing__(self, alias: AssetAlias) -> Events:
        assert alias == AssetAlias(audit.AUDITED_ALIAS)
        return self

    def add(self, asset: Asset, extra: Any) -> None:
        """Announce an asset."""
        self.added.append((asset.uri, extra))


def document(verdict: Verdict) -> dict[str, Any]:
    """Return the job's report for a verdict."""
    outcomes = [
        RuleOutcome(rule, rule.code != _CODES.get(verdict), checked=1, unexpected=1) for rule in RULES
    ]
    told = jsonreport.document(_SEEN[verdict], conclude(outcomes))
    assert told["verdict"] == verdict
    return {**told, "exit": _EXITS[verdict], "report": "/home/x/report.html"}


@pytest.fixture
def asked(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A fake audit job; what it is asked for."""
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SOURCE", json.dumps(connection))
    calls: list[Any] = []

    def job(flow: Any, options: AuditOptions, *, master: str | None) -> Any:
        calls.append((flow.flow, options, master))
        return spark.job

    monkeypatch.setattr("onceover.spark.launch.submit.audit_job", job)
    return calls


def execute(task: Task, run_type: str = "manual", **options: str) -> Any:
    """Run the task's work without Airflow's guard against calling it by hand."""
    with DAG("test"):
        operator = audit.AuditOperator(task_id="audit", flow="flights", **options)
    run = audit.AuditOperator.execute.__wrapped__  # pyrefly: ignore[missing-attribute]
    return run(operator, {"ti": task, "dag_run": SimpleNamespace(run_type=run_type)})


def test_pass_ends_the_task_well(asked: list[Any], spark: FakeSpark) -> None:
    """The XCom holds names, counts and paths; the job was asked for what has come since the last audit."""
    spark.tell(report=document(Verdict.PASS))
    counts = execute(Task())
    assert (counts["verdict"], counts["records"], counts["findings"]) == ("PASS", 400, 0)
    assert counts["report"] == "/home/x/report.html"
    assert asked == [("flights", AuditOptions(), None)]


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (Verdict.FAIL, "FAIL: 1 records are not as they should be: 1 lost"),
        (Verdict.UNVERIFIABLE, "UNVERIFIABLE: Nothing wrong was found, but not everything .* 9 RETENTION"),
    ],
)
def test_other_verdicts_fail_the_task_in_their_own_words(
    asked: list[Any], spark: FakeSpark, verdict: Verdict, told: str
) -> None:
    """They are no faults of the job: not tried again, and the numbers are kept for the report."""
    spark.tell(_EXITS[verdict], report=document(verdict))
    task = Task()
    with pytest.raises(AirflowFailException, match=told):
        execute(task, topics="orders", since="watermark", full="True", master="local[2]")
    assert task.pushed[audit.VERDICT_KEY]["verdict"] == verdict
    options = AuditOptions(topics=("orders",), since="start")
    assert asked == [("flights", options, "local[2]")]


_NEVER: dict[str, Any] = {
    "exit": 2,
    "error": {"code": "NOT_STARTED", "message": "flow flights was never started: there is nothing to audit"},
}


@pytest.mark.parametrize(
    ("run_type", "raised"), [("scheduled", AirflowSkipException), ("manual", AirflowFailException)]
)
def test_a_schedule_that_comes_before_the_first_start_is_skipped_with_the_reason(
    asked: list[Any], spark: FakeSpark, run_type: str, raised: type[Exception]
) -> None:
    """A red task on the first morning says that something broke. Who asks by hand hears that it is wrong."""
    spark.tell(2, report=_NEVER)
    with pytest.raises(raised, match="never started"):
        execute(Task(), run_type=run_type)


def test_verdict_that_cannot_be_kept_is_told_all_the_same(
    spark: FakeSpark, asked: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow's server is away for a moment: the task's own words are the audit's, not about an XCom."""

    class Refused(Task):
        def xcom_push(self, key: str, value: Any) -> None:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))

    spark.tell(_EXITS[Verdict.FAIL], report=document(Verdict.FAIL))
    with pytest.raises(AirflowFailException, match=r"^flow flights: FAIL: "):
        execute(Refused())
    assert f"{audit.VERDICT_KEY} is not shown" in caplog.text


@pytest.mark.parametrize("verdict", list(Verdict))
def test_buttons_lead_to_the_pages_after_every_verdict(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report is worth the most when the audit did not pass."""
    monkeypatch.setenv("ONCEOVER_HOME", "/home")
    with DAG("test"):
        operator = audit.AuditOperator(task_id="audit", flow="flights")
    links = {link.name: link for link in operator.operator_extra_links}
    key: Any = None
    assert [link.get_link(operator, ti_key=key) for link in links.values()] == ["", ""]

    told = {**document(verdict), "report": "/home/flights/audit/1-a/report.html"}
    how = verdict_of(judge(_EXITS[verdict], told, Path("log")))
    operator.judged(how, told, {"ti": Task()})  # pyrefly: ignore[bad-assignment]

    assert links["Report"].get_link(operator, ti_key=key) == "/onceover/audits/flights/1-a/report.html"
    assert links["Data Docs"].get_link(operator, ti_key=key) == ""
    assert len({link.xcom_key for link in links.values()}) == 2


def test_buttons_stand_on_the_task_that_reports_too(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is where the run ends, and where people look."""
    monkeypatch.setenv("ONCEOVER_HOME", "/home")
    counts = audit.count_audit(document(Verdict.PASS)) | {
        "report": "/home/flights/audit/1-a/report.html",
        "data_docs": "/home/flights/audit/1-a/data_docs/index.html",
    }
    context = {"ti": Task(counts), "outlet_events": Events(), "params": {}}
    monkeypatch.setattr(audit, "get_current_context", lambda: context)
    with DAG("test"):
        operator = audit.ReportOperator(task_id="report_audit", flow="flights")
    links = {link.name: link for link in operator.operator_extra_links}
    key: Any = None
    assert [link.get_link(operator, ti_key=key) for link in links.values()] == ["", ""]

    run = audit.ReportOperator.execute.__wrapped__  # pyrefly: ignore[missing-attribute]
    assert run(operator, context) == counts

    assert {name: link.get_link(operator, ti_key=key) for name, link in links.items()} == {
        "Report": "/onceover/audits/flights/1-a/report.html",
        "Data Docs": "/onceover/audits/flights/1-a/data_docs/index.html",
    }


def test_cluster_that_is_away_is_tried_again(asked: list[Any], spark: FakeSpark) -> None:
    """No verdict: nothing is kept, nothing is concluded."""
    spark.tell(5, report={"exit": 5, "error": {"message": "west is away"}})
    task = Task()
    with pytest.raises(JobInterrupted, match="west is away"):
        execute(task)
    assert task.pushed == {}


def test_job_that_fails_without_a_verdict_says_why(asked: list[Any], spark: FakeSpark) -> None:
    """An operator has to decide about the flow, not about an audit."""
    spark.tell(3, report={"exit": 3, "error": {"message": "the flow belongs to other clusters"}})
    with pytest.raises(AirflowFailException, match="other clusters"):
        execute(Task())


@pytest.mark.parametrize("verdict", list(Verdict))
def test_report_tells_every_verdict_and_announces_a_pass_only(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, verdict: Verdict, caplog: pytest.LogCaptureFixture
) -> None:
    """An asset stands for proof: other DAGs may rely on it."""
    counts = audit.count_audit(document(verdict))
    passed = verdict is Verdict.PASS
    task = Task(counts) if passed else Task(pushed={audit.VERDICT_KEY: counts})
    events = Events()
    monkeypatch.setattr(audit, "get_current_context", lambda: {"ti": task, "outlet_events": events})
    with caplog.at_level("INFO"):
        assert audit.report_audit("flights") == counts
    assert f"{verdict}: " in caplog.text
    assert ("no asset is announced: the verdict is" in caplog.text) is not passed
    assert "/home/x/report.html" in caplog.text
    assert [uri for uri, _ in events.added] == (["x-onceover://west/flights.audit"] if passed else [])


def test_pass_of_a_part_is_not_announced(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The asset stands for the flow."""
    counts = {**audit.count_audit(document(Verdict.PASS)), "topics": ["orders"]}
    events = Events()
    monkeypatch.setattr(audit, "get_current_context", lambda: {"ti": Task(counts), "outlet_events": events})
    assert audit.report_audit("flights") == counts
    assert "no asset is announced: only some topics were audited: orders" in caplog.text
    assert events.added == []


def test_audit_without_a_verdict_announces_nothing(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither proven nor disproven."""
    monkeypatch.setattr(audit, "get_current_context", lambda: {"ti": Task(), "outlet_events": Events()})
    assert audit.report_audit("flights") is None


@pytest.mark.parametrize(
    ("since", "fits"),
    [
        ("watermark", True),
        ("start", True),
        ("2026-01-31", True),
        ("2026-01-31T12:00:00Z", True),
        ("2026-01-31 12:00:00.5+01:00", True),
        ("", False),
        ("yesterday", False),
        ("--full", False),
    ],
)
def test_form_takes_beginnings_that_the_audit_understands(since: str, fits: bool) -> None:
    """A typing error is refused before Spark is started."""
    params = ParamsDict(audit.audit_params())
    if fits:
        params["since"] = since
        assert params.validate()["since"] == since
    else:
        with pytest.raises(ParamValidationError):
            params["since"] = since


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch, spark: FakeSpark) -> Callable[..., Any]:
    """Run the first task with a form; the flow copies flights.jfk, or its target does not answer."""
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SOURCE", json.dumps(connection))

    def check_topics(_: Flow, topics: tuple[str, ...]) -> None:
        if "away" in topics:
            raise Retriable("west does not answer")
        if topics and not any(re.fullmatch(each, "flights.jfk") for each in topics):
            raise UsageError("flow flights copies no topic that was asked for")

    def check(**form: Any) -> Any:
        untouched = {name: param.value for name, param in audit.audit_params().items()}
        params = {**untouched, "master": None, **form}
        monkeypatch.setattr(audit, "get_current_context", lambda: {"params": params})
        return audit.check_audit("flights")

    monkeypatch.setattr("onceover.wiring.audit.check_topics", check_topics)
    return check


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"full": True, "since": "2026-01-31"}, "exclude each other; seen: since 2026-01-31"),
        ({"since": "2026-99-99"}, "since 2026-99-99 is no ISO time"),
        ({"since": "1960-01-01"}, "before 1970"),
        ({"since": "2999-01-01"}, "since 2999-01-01 is in the future"),
        ({"topics": "nope"}, "copies no topic"),
        ({"topics": "["}, "no regular expression"),
        ({"master": "lokal"}, "lokal"),
    ],
)
def test_what_cannot_be_audited_fails_in_the_first_task(
    checked: Callable[..., Any], form: dict[str, Any], told: str
) -> None:
    """Before Spark is started, and in the words of the command line."""
    with pytest.raises(AirflowFailException, match=told):
        checked(**form)


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"full": True},
        {"full": True, "since": "start"},
        {"since": "2026-01-31T12:00:00Z", "topics": "flights[.].*"},
        {"topics": "away"},
    ],
)
def test_what_can_be_audited_passes_the_first_task(checked: Callable[..., Any], form: dict[str, Any]) -> None:
    """A cluster that does not answer is the job's to wait for."""
    assert checked(**form)["flow"] == "flights"
