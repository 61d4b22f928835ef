"""The `sync_topics` DAG in a real Airflow: asked, approved, rejected, not asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.embed.airflow import AirflowStandalone
from onceover.embed.kafka import KafkaCluster
from tests.support.clusters import SharedCluster
from tests.support.replica import delete_topics, topic_config
from tests.support.wait import wait_until
from tests.system.conftest import PLANTED

DAG, FLOW = "sync_topics", "sys-topics"
KEPT, NEW = f"{FLOW}.kept", f"{FLOW}.new"
APPROVAL = "approve_changes"
TASKS = ("plan_topics", "apply_topics", "report_topics")
STEP_TIMEOUT_S = 150.0

pytestmark = pytest.mark.timeout(600)


def create(client: dict[str, str], topic: str, config: dict[str, str]) -> None:
    """Create a topic with two partitions."""
    admin = AdminClient(client)
    admin.create_topics([NewTopic(topic, 2, 1, config=config)])[topic].result(STEP_TIMEOUT_S)
    wait_until(lambda: topic in admin.list_topics(timeout=10).topics, STEP_TIMEOUT_S, f"topic {topic}")


@pytest.fixture
def topics(secured_cluster: KafkaCluster, target_cluster: SharedCluster) -> Iterator[None]:
    """A topic that keeps everything on the target and not on the source, and one that is missing there."""
    create(secured_cluster.client, KEPT, {"retention.ms": "3600000"})
    create(secured_cluster.client, NEW, {"retention.ms": "7200000"})
    create(target_cluster.client, KEPT, {"retention.ms": "-1"})
    yield
    delete_topics(secured_cluster.client, [KEPT, NEW])
    there = AdminClient(target_cluster.client).list_topics(timeout=10).topics
    delete_topics(target_cluster.client, [topic for topic in there if FLOW in topic])


def approval(airflow: AirflowStandalone, run_id: str) -> dict[str, Any]:
    """Return the approval's task instance."""
    assert airflow.run_state(DAG, run_id) != "failed", failure(airflow, run_id)
    return airflow.tasks(DAG, run_id)[APPROVAL]


def failure(airflow: AirflowStandalone, run_id: str) -> str:
    """Return what the failed tasks wrote."""
    failed = [name for name, state in states(airflow, run_id).items() if state == "failed"]
    return "\n".join(f"{name}:\n{airflow.task_logs(DAG, run_id, name)}" for name in failed)


def asked(airflow: AirflowStandalone, run_id: str, *, after_try: int = 0) -> dict[str, Any] | None:
    """Return the question once a person is asked, None when the run has ended without."""

    def waiting() -> str:
        task = approval(airflow, run_id)
        if task["state"] == "awaiting_input" and task["try_number"] > after_try:
            return "asked"
        return "ended" if airflow.run_state(DAG, run_id) == "success" else ""

    if wait_until(waiting, STEP_TIMEOUT_S, "the approval waits, or the run ends", poll_s=0.5) == "ended":
        return None
    question: dict[str, Any] = airflow.call("GET", details(run_id))
    return question


def details(run_id: str) -> str:
    """Return where the question is, and where it is answered."""
    return f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances/{APPROVAL}/-1/hitlDetails"


def answer(airflow: AirflowStandalone, run_id: str, option: str) -> dict[str, str]:
    """Answer as a person, no faster than one could; return the tasks' states at the end.

    An answer that comes before the scheduler has seen that the asking process ended makes Airflow 3.3.2
    take the resumed task for a killed one: it asks again, or fails.
    """
    wait_until(lambda: scheduler_saw_the_end(airflow, run_id), STEP_TIMEOUT_S, "the asking process has ended")
    airflow.call("PATCH", details(run_id), {"chosen_options": [option], "params_input": {}})
    assert asked(airflow, run_id, after_try=approval(airflow, run_id)["try_number"]) is None
    return states(airflow, run_id)


def scheduler_saw_the_end(airflow: AirflowStandalone, run_id: str) -> bool:
    """Tell whether the scheduler has said so in its log."""
    return any(
        "Received executor event with state" in line and run_id in line and APPROVAL in line
        for line in (airflow.home / "scheduler.log").read_text().splitlines()
    )


def states(airflow: AirflowStandalone, run_id: str) -> dict[str, str]:
    """Return the tasks' states."""
    return {task_id: str(task["state"]) for task_id, task in airflow.tasks(DAG, run_id).items()}


def journal(var: Path) -> list[dict[str, Any]]:
    """Return what the DAG did."""
    path = var / FLOW / "journal" / "topics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_changes_that_may_cost_records_are_made_when_a_person_approves_them(
    airflow: AirflowStandalone, connection: None, topics: None, target_cluster: SharedCluster, var: Path
) -> None:
    """The question shows them and nothing else; everything is applied, journaled and announced."""
    run_id = airflow.trigger(DAG, {"flow": FLOW})
    question = asked(airflow, run_id)
    assert question is not None
    assert f"| set config | `{KEPT} retention.ms` | `-1` | `3600000` | destructive |" in question["body"]
    assert NEW not in question["body"]
    before = len(journal(var))
    assert topic_config(target_cluster.client, KEPT)["retention.ms"] == "-1"

    assert set(answer(airflow, run_id, "Approve").values()) == {"success"}
    assert topic_config(target_cluster.client, KEPT)["retention.ms"] == "3600000"
    assert topic_config(target_cluster.client, NEW)["retention.ms"] == "7200000"
    assert [line["outcome"] for line in journal(var)[before:]].count("done") == 3
    assert airflow.xcom(DAG, run_id, "apply_topics")["changes_made"] == 3
    events = [event for event in airflow.asset_events() if event["source_run_id"] == run_id]
    assert [event["uri"] for event in events] == [f"kafka://target/{FLOW}.topics"]
    shown = "".join(airflow.task_logs(DAG, run_id, task_id) for task_id in TASKS)
    assert "nothing to do" in shown
    assert PLANTED not in shown


@pytest.mark.soak
def test_rejected_changes_are_not_made_and_harmless_ones_need_no_answer(
    airflow: AirflowStandalone, connection: None, topics: None, target_cluster: SharedCluster, var: Path
) -> None:
    """Rejected: nothing at all is changed. Without the risky topic nobody is asked."""
    run_id = airflow.trigger(DAG, {"flow": FLOW})
    assert asked(airflow, run_id) is not None
    before = len(journal(var))
    ended = answer(airflow, run_id, "Reject")
    assert (ended["apply_topics"], ended["report_topics"]) == ("skipped", "success")
    assert topic_config(target_cluster.client, KEPT)["retention.ms"] == "-1"
    assert NEW not in AdminClient(target_cluster.client).list_topics(timeout=10).topics
    assert len(journal(var)) == before

    delete_topics(target_cluster.client, [KEPT])
    run_id = airflow.trigger(DAG, {"flow": FLOW})
    assert airflow.wait_run(DAG, run_id, timeout_s=STEP_TIMEOUT_S) == "success"
    assert states(airflow, run_id)[APPROVAL] == "skipped"
    assert topic_config(target_cluster.client, NEW)["retention.ms"] == "7200000"
