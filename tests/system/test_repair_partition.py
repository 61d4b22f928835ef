"""The `repair_partition` DAG in a real Airflow: approved, rejected, submitted untouched, impossible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flows import InlineFlow, assert_same, write_flow
from tests.support.flows.replica import delete_topics
from tests.system.conftest import PLANTED, AskingRun, Side
from tests.system.killing import PARTITIONS
from tests.system.person import Person

DAG, APPROVAL = "repair_partition", "approve_repair"
TASKS: Final = ("plan_repair", APPROVAL, "apply_repair", "report_repair")
FLOW = "sys-repair"

pytestmark = pytest.mark.timeout(900)


def start(airflow: AirflowStandalone, person: Person, **params: Any) -> AskingRun:
    """Trigger the DAG."""
    return AskingRun.start(airflow, person, DAG, APPROVAL, {"flow": FLOW, **params})


@pytest.fixture
def stopped(
    tmp_path: Path, secured_cluster: KafkaCluster, target_cluster: SharedCluster, request: Any
) -> Iterator[tuple[str, InlineFlow]]:
    """A topic with 30 records a partition whose copy was deleted, and its stopped flow."""
    source, target = secured_cluster.client, target_cluster.client
    topic = f"{FLOW}.{request.node.name.partition('[')[0]}"
    Side(source).create(topic)
    Side(source).feed(topic, 30 * PARTITIONS)
    flow = InlineFlow(write_flow(tmp_path, FLOW, source, target, [f"{FLOW}[.].*"]))
    flow.copy()
    delete_topics(target, [topic])
    flow.copy()
    assert {p["stop"]["code"] for p in flow.status()["partitions"]} == {"TARGET_MISSING"}
    yield topic, flow
    delete_topics(source, [topic])
    there = AdminClient(target).list_topics(timeout=10).topics
    delete_topics(target, [each for each in there if FLOW in each])


def test_a_deleted_target_topic_is_reseeded_when_a_person_approves_it(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    stopped: tuple[str, InlineFlow],
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
    var: Path,
) -> None:
    """What is copied again is shown first, for every partition; then the flow copies everything again.

    Who answered is kept.
    """
    topic, flow = stopped
    generation = flow.status()["generation"]
    run = start(airflow, person, action="reseed", topic=topic, partition=1)
    question = run.question()
    assert question is not None
    rows = [line for line in question["body"].splitlines() if "| position |" in line]
    shown = [tuple(cell.strip() for cell in row.split("|")[2:6]) for row in rows]
    assert shown == [(f"`{topic}:{p}`", "-", "0", "repeat up to 30") for p in range(PARTITIONS)]
    assert f"| create topic | `{topic}` |" in question["body"]
    assert topic not in AdminClient(target_cluster.client).list_topics(timeout=10).topics
    assert flow.status()["generation"] == generation

    assert set(run.answer("Approve").values()) == {"success"}
    journal = (var / FLOW / "journal" / "partition.jsonl").read_text().splitlines()
    who = {"by": airflow.username, "started_by": airflow.username, "run": f"{DAG}/{run.run_id}"}
    told = [json.loads(line)["approved"] for line in journal]
    assert all(each.pop("waited_s") > 0 for each in told)
    assert told == [who] * len(journal) != []
    expected = {"flow": FLOW, "operation": "reseed", "partitions": PARTITIONS, "generation": generation + 1}
    assert airflow.xcom(DAG, run.run_id, "apply_repair") == expected
    assert PLANTED not in run.log(*TASKS) + question["body"]
    flow.copy()
    assert_same(secured_cluster.client, target_cluster.client, [topic])
    assert all(p["stop"] is None for p in flow.status()["partitions"])


@pytest.mark.soak
def test_rejected_impossible_and_needless_repairs_change_nothing(
    airflow: AirflowStandalone, person: Person, connection: None, stopped: tuple[str, InlineFlow]
) -> None:
    """The form untouched asks about everything that is stopped, and resuming fences nobody.

    Marking the question as a success is no answer, whatever its result is said to be.
    """
    topic, flow = stopped
    generation = flow.status()["generation"]
    marked = start(airflow, person, action="reseed", topic=topic, partition=1)
    assert marked.question() is not None
    marked.pretend()
    assert marked.ended() == "success"
    assert (marked.states[APPROVAL], marked.states["apply_repair"]) == ("success", "skipped")
    assert flow.status()["generation"] == generation

    rejected = start(airflow, person, action="reseed", topic=topic, partition=1)
    assert rejected.question() is not None
    assert rejected.answer("Reject")["apply_repair"] == "skipped"

    for params, text in (
        ({"action": "skip-to", "topic": topic, "partition": 0, "offset": 5}, "does not exist"),
        ({"action": "skip-to", "topic": topic, "partition": 0}, "skip-to needs an offset"),
        ({"action": "reseed"}, "reseed needs a partition"),
        ({"action": "reseed", "topic": f"{FLOW}.elsewhere", "partition": 0}, "is not part of flow"),
    ):
        impossible = start(airflow, person, **params)
        assert impossible.ended() == "failed"
        assert text in impossible.log("plan_repair")

    untouched = start(airflow, person)
    question = untouched.question()
    assert question is not None
    assert question["body"].count("| look again |") == PARTITIONS
    assert set(untouched.answer("Approve").values()) == {"success"}
    assert flow.status()["generation"] == generation
