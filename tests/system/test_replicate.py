"""The `replicate` DAG in a real Airflow, with real Spark, between real clusters."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from onceover.errors import UsageError
from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.clusters import SharedCluster
from tests.support.judge import compare_topics
from tests.support.wait import wait_until
from tests.system.conftest import CONNECTION_ID, PARTITIONS, PLANTED, Side, told_of

DAG = "replicate"
FLOW = "sys-flights"
TOPIC = "sys-flights.departures"
# Seconds on an idle machine. On one that is busy with other tests Spark alone may take a minute to start.
RUN_TIMEOUT_S = 300.0
STEP_TIMEOUT_S = 150.0
BEFORE, AFTER = 2000, 500
SIZE_BYTES = 1000


pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class KilledRun:
    """A run whose driver was killed midway, and what could be seen while it lived."""

    run_id: str
    state: str
    first: Mapping[str, Any]
    environ: Mapping[str, str]
    shown: str


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the document, None while it is not there."""
    document: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return document


def stable_offsets(client: dict[str, str], topic: str) -> int:
    """Return the offsets that read_committed readers can reach, 0 while there is no topic."""
    consumer = Consumer({**client, "group.id": "unused", "isolation.level": "read_committed"})
    try:
        if topic not in consumer.list_topics(timeout=10).topics:
            return 0
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in range(PARTITIONS)
        ]
        return sum(end for _, end in ends)
    finally:
        consumer.close()


def spark_pages(ui: str) -> str:
    """Return what the Spark UI says about the environment, as page and as JSON."""
    address = urlsplit(ui)
    assert address.hostname == "127.0.0.1"
    web = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    try:
        text = ""
        for path in ("/environment/", "/executors/", "/jobs/"):
            web.request("GET", path)
            text += web.getresponse().read().decode()
        return text
    finally:
        web.close()


def command_lines() -> str:
    """Return every command line of this machine."""
    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return "\n".join(" ".join(line) for line in lines)


def shown_by_airflow(airflow: AirflowStandalone, run_id: str) -> str:
    """Return everything that Airflow's pages show of a run: logs, XComs, rendered fields, asset events."""
    texts = [json.dumps(airflow.asset_events())]
    for task_id, task in airflow.tasks(DAG, run_id).items():
        texts.append(json.dumps(task))
        texts += [airflow.task_logs(DAG, run_id, task_id, n + 1) for n in range(task["try_number"])]
        for key in airflow.xcom_keys(DAG, run_id, task_id):
            texts += [key, json.dumps(airflow.xcom(DAG, run_id, task_id, key))]
    return "\n".join(texts)


@pytest.fixture(scope="module")
def run(
    airflow: AirflowStandalone,
    connection: None,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
    var: Path,
) -> KilledRun:
    """Start the flow from the form, kill -9 its driver in the middle of the copy, feed more, wait."""
    source = Side(secured_cluster.client)
    source.create(TOPIC)
    source.feed(TOPIC, BEFORE, size_bytes=SIZE_BYTES)
    run_id = airflow.trigger(DAG, {"flow": FLOW, "run_length": "caught-up"})
    first = wait_until(lambda: read_json(var / FLOW / "driver.json"), STEP_TIMEOUT_S, "the driver runs")
    environ = psutil.Process(first["pid"]).environ()
    shown = spark_pages(first["ui"]) + command_lines()
    wait_until(lambda: stable_offsets(target_cluster.client, TOPIC), STEP_TIMEOUT_S, "records arrive")
    for pid in (first["jvm_pid"], first["pid"]):
        os.kill(pid, signal.SIGKILL)
    source.feed(TOPIC, AFTER, size_bytes=SIZE_BYTES)
    state = airflow.wait_run(DAG, run_id, timeout_s=RUN_TIMEOUT_S)
    return KilledRun(run_id, state, first, environ, shown)


def test_killed_run_resumes_by_itself_and_nothing_is_lost_or_repeated(
    run: KilledRun, secured_cluster: KafkaCluster, target_cluster: SharedCluster
) -> None:
    """Every record once, in order, unchanged, as an independent reader sees it."""
    assert run.state == "success"
    verdict = compare_topics(secured_cluster.client, target_cluster.client, [TOPIC], timeout_s=60)
    assert verdict.ok, verdict.explain()
    assert verdict.source_records == verdict.target_records == BEFORE + AFTER


def test_the_same_try_starts_a_new_driver_at_once(run: KilledRun, airflow: AirflowStandalone) -> None:
    """Airflow's scheduler and its delays are out of the way; the log says what happened."""
    (only,) = airflow.task_tries(DAG, run.run_id, "replicate")
    assert only["state"] == "success"
    text = airflow.task_logs(DAG, run.run_id, "replicate", 1)
    assert "killed by signal 9" in text
    assert "started again at once, 1 of 3" in text


def test_report_counts_for_the_last_driver_and_holds_the_lag(
    run: KilledRun, airflow: AirflowStandalone
) -> None:
    """Names and numbers only: what was fed after the kill is in them, what the first driver copied is not."""
    counts = airflow.xcom(DAG, run.run_id, "report_result")
    assert AFTER <= counts.pop("records") < BEFORE + AFTER
    assert counts.pop("bytes") > 0
    assert counts.pop("transactions") > 0
    assert counts.pop("generation") > run.first["generation"]
    assert counts == {
        "flow": FLOW,
        "partitions": PARTITIONS,
        "partitions_stopped": 0,
        "lag_offsets": 0,
        "caught_up": True,
    }
    assert TOPIC in airflow.task_logs(DAG, run.run_id, "report_result")


def test_asset_is_announced_once(
    run: KilledRun, airflow: AirflowStandalone, target_cluster: SharedCluster
) -> None:
    """Other DAGs can be scheduled on a flow that has caught up, or on one of its topics."""
    events = [event for event in airflow.asset_events() if event["source_run_id"] == run.run_id]
    assert [(event["source_task_id"], event["uri"]) for event in events] == [
        ("report_result", f"x-onceover://target/{FLOW}"),
        ("replicate", f"kafka://{target_cluster.bootstrap}/{TOPIC}"),
    ]
    assert events[0]["extra"]["caught_up"] is True


def dag_run_of(event: dict[str, Any]) -> str:
    """Return the id that the provider gives to the DAG's run: other tests start runs of the same DAG."""
    found: str = event["run"]["facets"]["parent"]["run"]["runId"]
    return found


def test_a_catalogue_is_told_where_the_records_come_from(
    run: KilledRun, lineage_file: Path, secured_cluster: KafkaCluster, target_cluster: SharedCluster
) -> None:
    """While it runs, and at its end, by the names that Spark and Flink use; under Airflow's task.

    A kill is the task's own business: it is one run.
    """
    events = told_of(lineage_file, f"onceover.{FLOW}")
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    assert events[-1]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    here, there = secured_cluster.client["bootstrap.servers"], target_cluster.bootstrap
    for event in events[1:]:
        assert {(each["namespace"], each["name"]) for each in event["inputs"]} == {(f"kafka://{here}", TOPIC)}
        assert {(each["namespace"], each["name"]) for each in event["outputs"]} == {
            (f"kafka://{there}", TOPIC)
        }
    parent = events[-1]["run"]["facets"]["parent"]
    task = told_of(lineage_file, "replicate.replicate")
    runs = [dag_run_of(event) for event in task if event["run"]["runId"] == parent["run"]["runId"]]
    assert runs
    # What Airflow itself tells of the tasks names no dataset but topics.
    named = [
        each
        for name in ("replicate", "report_result")
        for each in told_of(lineage_file, f"{DAG}.{name}")
        if dag_run_of(each) == runs[0]
    ]
    datasets = {each["name"] for event in named for each in [*event["inputs"], *event["outputs"]]}
    assert datasets <= {TOPIC}


def test_password_is_in_the_environment_of_the_job_and_nowhere_else(
    run: KilledRun, airflow: AirflowStandalone, var: Path
) -> None:
    """Logs, XComs, rendered fields, asset events, command lines, Spark UI, and every file of the run."""
    assert PLANTED in run.environ[f"AIRFLOW_CONN_{CONNECTION_ID.upper()}"]
    assert [name for name in run.environ if name.startswith("AIRFLOW__")] == []
    assert "(kill)" not in run.shown
    shown = run.shown + shown_by_airflow(airflow, run.run_id)
    # Each place was really looked at.
    for word in ("spark.app.name", "replicate.py", "rendered_fields", "return_value", "x-onceover://target/"):
        assert word in shown, word
    assert PLANTED not in shown
    assert (airflow.home / "lineage.jsonl").exists()
    files = [path for path in [*airflow.home.rglob("*"), *var.rglob("*")] if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if PLANTED.encode() in path.read_bytes()] == []


def test_broken_flow_fails_at_once_without_starting_anything(airflow: AirflowStandalone, var: Path) -> None:
    """One try, one message that names the key; no Spark, nothing written."""
    run_id = airflow.trigger(DAG, {"flow": "sys-broken"})
    assert airflow.wait_run(DAG, run_id, timeout_s=60) == "failed"
    tasks = airflow.tasks(DAG, run_id)
    assert tasks["check_flow"]["state"] == "failed"
    assert len(airflow.task_tries(DAG, run_id, "check_flow")) == 1
    assert {tasks[name]["state"] for name in ("replicate", "report_result")} == {"upstream_failed"}
    assert "did you mean" in airflow.task_logs(DAG, run_id, "check_flow")
    assert not (var / "sys-broken").exists()


@pytest.mark.parametrize("conf", [{"flow": "unknown"}, {"flow": None}, {"run_length": "soon"}])
def test_bad_form_is_refused(airflow: AirflowStandalone, conf: dict[str, str | None]) -> None:
    """Airflow itself refuses what the form would not allow."""
    with pytest.raises(UsageError, match="refused"):
        airflow.trigger(DAG, conf)
