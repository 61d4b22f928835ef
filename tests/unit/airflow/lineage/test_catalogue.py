"""A run as a catalogue is told of it: by tasks that run a job, and never at its cost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from openlineage.client.transport import Config, Transport

from onceover.audit.checks.suites import RULES
from onceover.audit.checks.verdict import RuleOutcome, conclude
from onceover.audit.report import jsonreport
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.flows import FOREVER
from onceover_airflow.jobs.operators import (
    COPIED_ALIAS,
    MOST_TOPIC_ASSETS,
    FlowJobOperator,
    ReplicateOperator,
)
from onceover_airflow.lineage.events import TOPICS_PER_EVENT
from onceover_airflow.lineage.toldrun import ToldRun
from onceover_airflow.lineage.untold import LineageRun
from onceover_airflow.tasks.audit import AuditOperator
from tests.support.worlds import audits
from tests.unit.airflow.conftest import FakeSpark

SECRET = "planted-7f3a91c2"
CONNECTION = {
    "conn_type": "kafka",
    "extra": {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": SECRET,
        "sasl.password": SECRET,
    },
}
TOPICS = {"flights.x": "flights.x", "flights.y": "flights.y"}
DONE = {"exit": 0, "flow": "flights", "generation": 3, "caught_up": True, "stopped": [], "topics": TOPICS}
NEVER = {"controls": {"emit": False}}
SAYS_TOPICS = "2026-11-22 05:15:46,299 INFO    onceover.spark.driver: topics copied: 2"

Execute = Callable[..., Any]


class TaskInstance(SimpleNamespace):
    """As much of a running task as the provider asks for."""

    def get_template_context(self) -> dict[str, Any]:
        """Return what its ids are made of."""
        at = datetime(2026, 1, 31, tzinfo=UTC)
        return {"dag_run": SimpleNamespace(logical_date=at, run_after=at, clear_number=0, conf={})}

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep nothing."""


class Outlets(dict[AssetAlias, "Outlets"]):
    """Outlet events that remember what was added."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[str] = []

    def __missing__(self, alias: AssetAlias) -> Outlets:
        assert alias == AssetAlias(COPIED_ALIAS)
        return self

    def add(self, asset: Asset, extra: Any) -> None:
        """Announce an asset."""
        self.added.append(asset.uri)


@pytest.fixture
def outlets() -> Outlets:
    """What the tasks announce."""
    return Outlets()


@pytest.fixture
def execute(spark: FakeSpark, outlets: Outlets, monkeypatch: pytest.MonkeyPatch) -> Execute:
    """Run a task's work without Airflow's guard against calling it by hand."""
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SOURCE", json.dumps(CONNECTION))
    monkeypatch.setattr("onceover.spark.launch.submit.audit_job", lambda *_args, **_options: spark.job)

    def execute(kind: type[FlowJobOperator] = ReplicateOperator, **arguments: Any) -> Any:
        with DAG("nightly"):
            task: Any = kind(task_id="work", flow="flights", **arguments)
        ti = TaskInstance(dag_id="nightly", task_id="work", try_number=2, max_tries=3, map_index=-1)
        run = SimpleNamespace(run_type="scheduled", dag_id="replicate_nightly", run_id="scheduled__2")
        context = {"ti": ti, "dag_run": run, "outlet_events": outlets, "params": {"run_length": FOREVER}}
        return task.execute.__wrapped__(task, context)

    return execute


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Tell a file; return what stands in it."""
    path = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(path), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__NAMESPACE", "prod")

    def read() -> list[dict[str, Any]]:
        text = path.read_text() if path.exists() else ""
        assert SECRET not in text
        return [json.loads(line) for line in text.splitlines()]

    return read


@pytest.fixture
def seen(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver go on once the task was told of its topics."""
    copies = ToldRun.copies

    def told_of(self: ToldRun, topics: Mapping[str, str]) -> None:
        copies(self, topics)
        (home / "flights" / "seen").touch()

    monkeypatch.setattr(ToldRun, "copies", told_of)


def names(event: Mapping[str, Any], side: str) -> list[str]:
    """Return an event's datasets as addresses."""
    return [f"{each['namespace']}/{each['name']}" for each in event[side]]


def test_a_copy_is_told_from_its_start_to_its_end(
    execute: Execute, spark: FakeSpark, told: Callable[[], list[dict[str, Any]]], seen: None
) -> None:
    """A copy without an end is told of while it runs, as soon as its topics are known."""
    spark.tell(report=DONE, say=[SAYS_TOPICS, SAYS_TOPICS], topics=TOPICS)
    execute(until="forever")
    events = told()
    assert [each["eventType"] for each in events] == ["START", "RUNNING", "COMPLETE"]
    assert {(each["job"]["namespace"], each["job"]["name"]) for each in events} == {
        ("prod", "onceover.flights")
    }
    assert len({each["run"]["runId"] for each in events}) == 1
    assert names(events[0], "inputs") == names(events[0], "outputs") == []
    for event in events[1:]:
        assert names(event, "inputs") == ["kafka://a:1/flights.x", "kafka://a:1/flights.y"]
        assert names(event, "outputs") == ["kafka://127.0.0.1:2/flights.x", "kafka://127.0.0.1:2/flights.y"]
        assert {"eventTime", "producer", "schemaURL"} <= event.keys()
    parent = events[2]["run"]["facets"]["parent"]
    assert parent["job"] == {"namespace": "prod", "name": "nightly.work"} | parent["job"]
    assert parent["root"]["job"]["name"] == "nightly"


def test_embedded_clusters_are_told_of_too(
    execute: Execute,
    spark: FakeSpark,
    told: Callable[[], list[dict[str, Any]]],
    outlets: Outlets,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their addresses stand in ONCEOVER_HOME, and in no process's environment."""
    monkeypatch.delenv("ONCEOVER_WEST", raising=False)
    (home / "clusters").mkdir(parents=True)
    (home / "clusters" / "environment").write_text("ONCEOVER_WEST=127.0.0.1:5\n")
    file = tmp_path / "flights.yaml"
    file.write_text(file.read_text().replace("127.0.0.1:2", "${ONCEOVER_WEST}"))
    spark.tell(report=DONE)
    execute(until="caught-up")
    assert [each["eventType"] for each in told()] == ["START", "COMPLETE"]
    assert outlets.added == ["kafka://127.0.0.1:5/flights.x", "kafka://127.0.0.1:5/flights.y"]


@pytest.mark.parametrize(
    ("report", "raised"),
    [
        (
            {"exit": 3, "stopped": [{"topic": "flights.x", "partition": 0, "message": "m"}]},
            AirflowFailException,
        ),
        ({"exit": 5, "error": {"message": "west is away"}}, JobInterrupted),
    ],
)
def test_a_copy_that_ends_badly_is_a_failed_run(
    execute: Execute,
    spark: FakeSpark,
    told: Callable[[], list[dict[str, Any]]],
    seen: None,
    report: dict[str, Any],
    raised: type[Exception],
) -> None:
    """With the topics that it told of before."""
    spark.tell(report["exit"], report=report, say=[SAYS_TOPICS], topics=TOPICS)
    with pytest.raises(raised):
        execute(until="caught-up")
    assert [each["eventType"] for each in told()] == ["START", "RUNNING", "FAIL"]
    assert len(told()[-1]["outputs"]) == len(TOPICS)


def test_a_copy_that_was_told_to_end_is_no_failure(
    execute: Execute,
    spark: FakeSpark,
    told: Callable[[], list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody has marked or cleared the task."""

    def restarts(self: ReplicateOperator) -> Any:
        self.on_kill()
        return FlowJobOperator.restarts(self)

    monkeypatch.setattr(ReplicateOperator, "restarts", restarts)
    with pytest.raises(JobInterrupted):
        execute(until="forever")
    assert [each["eventType"] for each in told()] == ["START", "ABORT"]


def test_what_one_event_cannot_hold_goes_before_it(
    execute: Execute, spark: FakeSpark, told: Callable[[], list[dict[str, Any]]]
) -> None:
    """Nothing of a large flow is left out."""
    topics = {f"flights.{number:04}": f"flights.{number:04}" for number in range(TOPICS_PER_EVENT + 1)}
    spark.tell(report={**DONE, "topics": topics})
    execute(until="caught-up")
    events = told()
    assert [(each["eventType"], len(each["outputs"])) for each in events] == [
        ("START", 0),
        ("RUNNING", TOPICS_PER_EVENT),
        ("COMPLETE", 1),
    ]


AUDITED = jsonreport.document(audits.result(), conclude([RuleOutcome(rule, True) for rule in RULES]))


@pytest.mark.parametrize("verdict", ["PASS", "FAIL", "UNVERIFIABLE"])
def test_an_audit_that_reaches_a_verdict_has_done_its_work(
    execute: Execute, spark: FakeSpark, told: Callable[[], list[dict[str, Any]]], verdict: str
) -> None:
    """Its tests say what it was; a catalogue that looks at completed runs only would miss the bad news."""
    code = {"PASS": 0, "FAIL": 1, "UNVERIFIABLE": 3}[verdict]
    spark.tell(code, report={**AUDITED, "verdict": verdict, "exit": code})
    with suppress(AirflowFailException):
        execute(AuditOperator)
    start, end = told()
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert end["job"]["name"] == "onceover.flights.audit"
    assert end["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert len(end["run"]["facets"]["test"]["tests"]) == len(RULES)
    assert names(end, "inputs") == ["kafka://a:1/orders", "kafka://127.0.0.1:2/orders"]
    assert end["inputs"][1]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert end["outputs"] == []


@pytest.mark.parametrize(
    ("code", "report", "raised", "state"),
    [
        (5, {"exit": 5, "error": {"message": "away"}}, JobInterrupted, "FAIL"),
        (2, {"exit": 2, "error": {"code": "NOT_STARTED", "message": "never"}}, AirflowSkipException, "ABORT"),
    ],
)
def test_an_audit_without_a_verdict_proves_nothing(
    execute: Execute,
    spark: FakeSpark,
    told: Callable[[], list[dict[str, Any]]],
    code: int,
    report: dict[str, Any],
    raised: type[Exception],
    state: str,
) -> None:
    """There are no tests, and no datasets."""
    spark.tell(code, report=report)
    with pytest.raises(raised):
        execute(AuditOperator)
    end = told()[-1]
    assert (end["eventType"], end["inputs"], "test" in end["run"]["facets"]) == (state, [], False)


class Silent(Transport):
    """A catalogue that takes an event and does not answer."""

    kind = "silent"
    config_class = Config
    asked = threading.Event()
    over = threading.Event()

    def __init__(self, config: Config) -> None:
        """Needs no settings."""

    def emit(self, event: Any) -> None:
        """Wait for as long as the test lasts."""
        self.asked.set()
        self.over.wait()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Such a catalogue is configured; of the provider's ten seconds at the end none are waited here."""
    for event in (Silent.asked, Silent.over):
        event.clear()
    transport = {"type": f"{__name__}.{Silent.__name__}"}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT", "0")
    yield
    Silent.over.set()


def test_a_catalogue_that_does_not_answer_holds_up_no_copy(
    execute: Execute, spark: FakeSpark, silent: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is started, and ends well, with the first event under way: that is given up, and said so."""
    spark.tell(report=DONE)
    assert execute(until="caught-up")["generation"] == DONE["generation"]
    assert Silent.asked.is_set()
    assert not Silent.over.is_set()
    assert "the task goes on" in caplog.text


def test_a_transport_that_cannot_be_made_fails_no_copy(
    execute: Execute, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A typing error in Airflow's settings is said, and no more."""
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps({"type": "http"}))
    spark.tell(report=DONE)
    assert execute(until="caught-up")["generation"] == DONE["generation"]
    assert "lineage is not told" in caplog.text


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"AIRFLOW__OPENLINEAGE__DISABLED": "True"},
        {"AIRFLOW__OPENLINEAGE__EMISSION_POLICY": json.dumps([{"scope": {"dag_id": "nightly"}, **NEVER}])},
    ],
)
def test_nobody_is_told_where_nobody_wants_it(
    execute: Execute,
    spark: FakeSpark,
    told: Callable[[], list[dict[str, Any]]],
    setting: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not configured, switched off, or off for this task: no thread, no event."""
    if not setting:
        monkeypatch.delenv("AIRFLOW__OPENLINEAGE__TRANSPORT")
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    opened: list[LineageRun] = []
    to_its_end = ReplicateOperator._to_its_end

    def watched(self: Any, *arguments: Any) -> Any:
        opened.append(arguments[-1])
        return to_its_end(self, *arguments)

    monkeypatch.setattr(ReplicateOperator, "_to_its_end", watched)
    spark.tell(report=DONE)
    execute(until="caught-up")
    assert [type(each) for each in opened] == [LineageRun]
    assert told() == []


def test_nothing_of_it_is_loaded_where_it_is_off() -> None:
    """A second of CPU in each task."""
    code = (
        "import sys\n"
        "from onceover_airflow.lineage.catalogue import ToldOf, open_run\n"
        "from onceover_airflow.lineage.untold import LineageRun\n"
        "opened = open_run(ToldOf.COPY, None, {}, None, None)\n"
        "print(type(opened) is LineageRun, [name for name in sys.modules if name.startswith('openlineage')])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "True []"


@pytest.mark.parametrize(
    ("report", "announced"),
    [
        (DONE, ["kafka://127.0.0.1:2/flights.x", "kafka://127.0.0.1:2/flights.y"]),
        ({**DONE, "caught_up": False}, []),
        ({**DONE, "topics": dict.fromkeys(map(str, range(MOST_TOPIC_ASSETS + 1)), "x")}, []),
    ],
)
def test_target_topics_are_announced_once_all_is_there(
    execute: Execute, spark: FakeSpark, outlets: Outlets, report: dict[str, Any], announced: list[str]
) -> None:
    """Whether lineage is told or not; thousands of them would fill Airflow's database."""
    spark.tell(report=report)
    execute(until="caught-up")
    assert outlets.added == announced
