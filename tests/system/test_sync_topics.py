"""The `sync_topics` DAG in a real Airflow: asked, approved, rejected, not asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.replica import delete_topics, topic_config
from tests.support.session.wait import wait_until
from tests.system.conftest import PLANTED, AskingRun
from tests.system.person import Person

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


def start(airflow: AirflowStandalone, person: Person) -> AskingRun:
    """Trigger the DAG."""
    return AskingRun.start(airflow, person, DAG, APPROVAL, {"flow": FLOW})


def journal(var: Path) -> list[dict[str, Any]]:
    """Return what the DAG did."""
    path = var / FLOW / "journal" / "topics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.soak
def test_changes_that_may_cost_records_are_made_when_a_person_approves_them(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    topics: None,
    target_cluster: SharedCluster,
    var: Path,
) -> None:
    """The question shows them and nothing else; everything is applied, journaled and announced."""
    run = start(airflow, person)
    question = run.question()
    assert question is not None
    assert f"| set config | `{KEPT} retention.ms` | `-1` | `3600000` | destructive |" in question["body"]
    assert NEW not in question["body"]
    before = len(journal(var))
    assert topic_config(target_cluster.client, KEPT)["retention.ms"] == "-1"

    assert set(run.answer("Approve").values()) == {"success"}
    assert topic_config(target_cluster.client, KEPT)["retention.ms"] == "3600000"
    assert topic_config(target_cluster.client, NEW)["retention.ms"] == "7200000"
    assert [line["outcome"] for line in journal(var)[before:]].count("done") == 3
    assert airflow.xcom(DAG, run.run_id, "apply_topics")["changes_made"] == 3
    events = [event for event in airflow.asset_events() if event["source_run_id"] == run.run_id]
    assert [event["uri"] for event in events] == [f"x-onceover://target/{FLOW}.topics"]
    shown = run.log(*TASKS)
    assert "nothing to do" in shown
    assert PLANTED not in shown


@pytest.mark.soak
def test_rejected_changes_are_not_made_and_harmless_ones_need_no_answer(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    topics: None,
    target_cluster: SharedCluster,
    var: Path,
) -> None:
    """Rejected: nothing at all is changed. Without the risky topic nobody is asked."""
    run = start(airflow, person)
    assert run.question() is not None
    before = len(journal(var))
    ended = run.answer("Reject")
    assert (ended["apply_topics"], ended["report_topics"]) == ("skipped", "success")
    assert topic_config(target_cluster.client, KEPT)["retention.ms"] == "-1"
    assert NEW not in AdminClient(target_cluster.client).list_topics(timeout=10).topics
    assert len(journal(var)) == before

    delete_topics(target_cluster.client, [KEPT])
    run = start(airflow, person)
    assert run.ended() == "success"
    assert run.states[APPROVAL] == "skipped"
    assert topic_config(target_cluster.client, NEW)["retention.ms"] == "7200000"
