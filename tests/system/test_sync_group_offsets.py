"""The `sync_group_offsets` DAG in a real Airflow: the harmless is written, the risky asked about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceover.embed.airflow import AirflowStandalone
from onceover.embed.kafka import KafkaCluster
from tests.support.clusters import SharedCluster
from tests.support.flows import InlineFlow, write_flow
from tests.support.groups import commit_all, offset_of
from tests.support.replica import delete_topics
from tests.support.wait import wait_until
from tests.system.conftest import CONNECTION_ID, PLANTED, Side

DAG, FLOW = "sync_group_offsets", "sys-groups"
TOPIC, PLAIN, FOREIGN = f"{FLOW}.orders", f"{FLOW}-plain", f"{FLOW}-foreign"
APPROVAL = "approve_moves"
STEP_TIMEOUT_S = 200.0

pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]


@pytest.fixture
def copied(
    tmp_path: Path, flows: Path, secured_cluster: KafkaCluster, target_cluster: SharedCluster
) -> Iterator[None]:
    """A copied topic, a group that is to be moved, and one that somebody else has committed for there."""
    source, target = secured_cluster.client, target_cluster.client
    Side(source).create(TOPIC)
    Side(source).feed(TOPIC, 90)
    InlineFlow(write_flow(tmp_path, FLOW, source, target, [f"{FLOW}[.].*"])).copy()
    commit_all(source, TOPIC, {PLAIN: {0: 12}, FOREIGN: {0: 20}})
    commit_all(target, TOPIC, {FOREIGN: {0: 5}})
    yield
    delete_topics(source, [TOPIC])
    delete_topics(target, [TOPIC])


def question(airflow: AirflowStandalone, run_id: str) -> dict[str, Any]:
    """Return what a person is asked."""

    def waiting() -> bool:
        assert airflow.run_state(DAG, run_id) != "failed", airflow.task_logs(DAG, run_id, "plan_groups")
        return bool(airflow.tasks(DAG, run_id)[APPROVAL]["state"] == "awaiting_input")

    wait_until(waiting, STEP_TIMEOUT_S, "a person is asked", poll_s=0.5)
    asked: dict[str, Any] = airflow.call("GET", details(run_id))
    return asked


def details(run_id: str) -> str:
    """Return where the question is, and where it is answered."""
    return f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances/{APPROVAL}/-1/hitlDetails"


def test_a_risky_move_is_made_only_when_a_person_approves_it(
    airflow: AirflowStandalone, connection: None, copied: None, target_cluster: SharedCluster
) -> None:
    """Asked about the foreign commit; unasked, as on a schedule, it is left alone and the run says so."""
    client = target_cluster.client
    run_id = airflow.trigger(DAG, {"flow": FLOW, "approve": False})
    assert airflow.wait_run(DAG, run_id, timeout_s=STEP_TIMEOUT_S) == "failed"
    assert (offset_of(client, PLAIN, TOPIC), offset_of(client, FOREIGN, TOPIC)) == (12, 5)
    assert "nobody has approved" in airflow.task_logs(DAG, run_id, "apply_groups")

    run_id = airflow.trigger(DAG, {"flow": FLOW})
    body = question(airflow, run_id)["body"]
    assert f"| move group | `{FOREIGN} {TOPIC}:0` | 5 | 20 | skip 15 |" in body
    assert PLAIN not in body
    # Airflow 3.3.2 may ask a second time after an answer that came within a second of the question.
    while airflow.run_state(DAG, run_id) not in ("success", "failed"):
        if airflow.tasks(DAG, run_id)[APPROVAL]["state"] == "awaiting_input":
            airflow.call("PATCH", details(run_id), {"chosen_options": ["Approve"], "params_input": {}})
        wait_until(
            lambda: (
                airflow.run_state(DAG, run_id) in ("success", "failed")
                or airflow.tasks(DAG, run_id)[APPROVAL]["state"] == "awaiting_input"
            ),
            STEP_TIMEOUT_S,
            "the run ends, or asks again",
            poll_s=0.5,
        )
    assert airflow.run_state(DAG, run_id) == "success", airflow.task_logs(DAG, run_id, "apply_groups")
    assert offset_of(client, FOREIGN, TOPIC) == 20
    events = [event for event in airflow.asset_events() if event["source_run_id"] == run_id]
    assert [event["uri"] for event in events] == [f"kafka://target/{FLOW}.groups"]
    shown = "".join(airflow.task_logs(DAG, run_id, task_id) for task_id in ("plan_groups", "apply_groups"))
    assert PLANTED not in shown
    assert CONNECTION_ID not in body
