"""The `replicate` DAG in a real Airflow, with real Spark, between real clusters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onceover.errors import UsageError
from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.judge import compare_topics
from tests.system.conftest import BROKEN_FLOW, CONNECTION_ID, PLANTED
from tests.system.killing import AFTER, BEFORE, DAG, FLOW, PARTITIONS, TOPIC, KilledRun, told_of

pytestmark = pytest.mark.timeout(900)


def shown_by_airflow(airflow: AirflowStandalone, run_id: str) -> str:
    """Return everything that Airflow's pages show of a run: logs, XComs, rendered fields, asset events."""
    texts = [json.dumps(airflow.asset_events())]
    for task_id, task in airflow.tasks(DAG, run_id).items():
        texts.append(json.dumps(task))
        texts += [airflow.task_logs(DAG, run_id, task_id, n + 1) for n in range(task["try_number"])]
        for key in airflow.xcom_keys(DAG, run_id, task_id):
            texts += [key, json.dumps(airflow.xcom(DAG, run_id, task_id, key))]
    return "\n".join(texts)


def test_killed_run_resumes_by_itself_and_nothing_is_lost_or_repeated(
    killed: KilledRun, secured_cluster: KafkaCluster, target_cluster: SharedCluster
) -> None:
    """Every record once, in order, unchanged, as an independent reader sees it."""
    assert killed.state == "success"
    verdict = compare_topics(secured_cluster.client, target_cluster.client, [TOPIC], timeout_s=60)
    assert verdict.ok, verdict.explain()
    assert verdict.source_records == verdict.target_records == BEFORE + AFTER


def test_the_same_try_starts_a_new_driver_at_once(killed: KilledRun, airflow: AirflowStandalone) -> None:
    """Airflow's scheduler and its delays are out of the way; the log says what happened."""
    (only,) = airflow.task_tries(DAG, killed.run_id, "replicate")
    assert only["state"] == "success"
    text = airflow.task_logs(DAG, killed.run_id, "replicate", 1)
    assert "killed by signal 9" in text
    assert "started again at once, 1 of 3" in text


def test_report_counts_for_the_last_driver_and_holds_the_lag(
    killed: KilledRun, airflow: AirflowStandalone
) -> None:
    """Names and numbers only: what was fed after the kill is in them, what the first driver copied is not."""
    counts = airflow.xcom(DAG, killed.run_id, "report_result")
    assert AFTER <= counts.pop("records") < BEFORE + AFTER
    assert counts.pop("bytes") > 0
    assert counts.pop("transactions") > 0
    assert counts.pop("generation") > killed.first["generation"]
    assert counts == {
        "flow": FLOW,
        "partitions": PARTITIONS,
        "partitions_stopped": 0,
        "lag_offsets": 0,
        "caught_up": True,
    }
    assert TOPIC in airflow.task_logs(DAG, killed.run_id, "report_result")


def test_asset_is_announced_once(
    killed: KilledRun, airflow: AirflowStandalone, target_cluster: SharedCluster
) -> None:
    """Other DAGs can be scheduled on a flow that has caught up, or on one of its topics."""
    events = killed.announced
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
    killed: KilledRun, lineage_file: Path, secured_cluster: KafkaCluster, target_cluster: SharedCluster
) -> None:
    """While it runs, and at its end, by the names that Spark and Flink use; under Airflow's task.

    A kill is the task's own business: it is one run.
    """
    events = killed.lineage
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
    killed: KilledRun, airflow: AirflowStandalone, var: Path
) -> None:
    """Logs, XComs, rendered fields, asset events, command lines, Spark UI, and every file of the run."""
    assert PLANTED in killed.environ[f"AIRFLOW_CONN_{CONNECTION_ID.upper()}"]
    assert [name for name in killed.environ if name.startswith("AIRFLOW__")] == []
    assert "(kill)" not in killed.shown
    shown = killed.shown + shown_by_airflow(airflow, killed.run_id)
    # Each place was really looked at.
    for word in ("spark.app.name", "replicate.py", "rendered_fields", "return_value", "x-onceover://target/"):
        assert word in shown, word
    assert PLANTED not in shown
    assert (airflow.home / "lineage.jsonl").exists()
    files = [path for path in [*airflow.home.rglob("*"), *var.rglob("*")] if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if PLANTED.encode() in path.read_bytes()] == []


def test_broken_flow_fails_at_once_without_starting_anything(
    broken_run: str, airflow: AirflowStandalone, var: Path
) -> None:
    """One try, one message that names the key; no Spark, nothing written."""
    assert airflow.run_state(DAG, broken_run) == "failed"
    tasks = airflow.tasks(DAG, broken_run)
    assert tasks["check_flow"]["state"] == "failed"
    assert len(airflow.task_tries(DAG, broken_run, "check_flow")) == 1
    assert {tasks[name]["state"] for name in ("replicate", "report_result")} == {"upstream_failed"}
    assert "did you mean" in airflow.task_logs(DAG, broken_run, "check_flow")
    assert not (var / BROKEN_FLOW).exists()


@pytest.mark.parametrize("conf", [{"flow": "unknown"}, {"flow": None}, {"run_length": "soon"}])
def test_bad_form_is_refused(airflow: AirflowStandalone, conf: dict[str, str | None]) -> None:
    """Airflow itself refuses what the form would not allow."""
    with pytest.raises(UsageError, match="refused"):
        airflow.trigger(DAG, conf)
