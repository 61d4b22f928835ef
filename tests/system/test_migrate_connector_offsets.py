"""The `migrate_connector_offsets` DAG in a real Airflow, on a real Connect worker: picked, approved, done."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.connect import ConnectCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import EXACTLY_ONCE, Connect, assert_counted, counting_plugin
from tests.system.conftest import PLANTED, AskingRun, read_again
from tests.system.person import Person

DAG, PICK, APPROVAL = "migrate_connector_offsets", "pick_connectors", "approve_migration"
TASKS: Final = (
    "list_connectors",
    PICK,
    "plan_migration",
    APPROVAL,
    "apply_migration",
    "verify_migration",
)
CONNECT, REST_ID, KAFKA_ID = "sys-connect", "connect_rest", "connect_kafka"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(
    session_home: Path, target_cluster: SharedCluster, connect_files: Path, airflow: AirflowStandalone
) -> Iterator[ConnectCluster]:
    """One exactly-once worker, its Connect file, and the Connections that the file names."""
    group = f"sys-connect-{uuid.uuid4().hex[:8]}"
    plugin = counting_plugin()
    path = connect_files / f"{CONNECT}.yaml"
    extra = json.dumps({"bootstrap.servers": target_cluster.bootstrap})
    connections = (
        {"connection_id": KAFKA_ID, "conn_type": "kafka", "extra": extra},
        # The worker asks nobody for a password and ignores this one; what matters is who gets to see it.
        {"connection_id": REST_ID, "conn_type": "http", "login": "onceover", "password": PLANTED},
    )
    with ConnectCluster.start(
        session_home / group, target_cluster.bootstrap, group, properties=EXACTLY_ONCE, plugins=[plugin]
    ) as cluster:
        document = {
            "connect": CONNECT,
            "rest": list(cluster.urls),
            "rest_auth": {"connection": REST_ID},
            "worker_config": str(cluster.properties_path),
            "kafka": {"connection": KAFKA_ID},
        }
        path.write_text(yaml.safe_dump(document))
        read_again(airflow, DAG)
        for body in connections:
            airflow.call("POST", "/api/v2/connections", body)
        yield cluster
        for body in connections:
            airflow.call("DELETE", f"/api/v2/connections/{body['connection_id']}")
        path.unlink()


@pytest.fixture
def connect(cluster: ConnectCluster, target_cluster: SharedCluster) -> Iterator[Connect]:
    """A tester's hand on the worker."""
    hand = Connect(cluster, target_cluster.client)
    yield hand
    hand.close()


@pytest.fixture
def counting(connect: Connect, unique_name: str) -> Iterator[str]:
    """A connector that counts; its records and its offsets go on from what was committed, or it shows."""
    connect.create_topic(unique_name)
    connect.count(unique_name, unique_name)
    connect.await_numbers(unique_name, 50)
    yield unique_name
    connect.delete(unique_name)


def journal(var: Path, connector: str) -> list[dict[str, Any]]:
    """Return what the DAG did to a connector."""
    path = var / "connect" / CONNECT / "journal" / f"{connector}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_connector_that_a_person_picks_and_approves_goes_on_in_its_own_topic(
    airflow: AirflowStandalone,
    person: Person,
    cluster: ConnectCluster,
    connect: Connect,
    counting: str,
    var: Path,
) -> None:
    """Offered is what the worker runs; nothing happens before the answer; no record is lost or repeated."""
    picking = AskingRun.start(airflow, person, DAG, PICK, {"connect": CONNECT})
    offered = picking.question()
    assert offered is not None
    assert (offered["options"], offered["multiple"]) == ([counting], True)
    picking.choose(counting)

    run = replace(picking, approval=APPROVAL)
    question = run.question()
    assert question is not None
    own = f"{cluster.offsets_topic}-{counting}"
    for shown in (f"| stop | `{counting}` |", f"| copy offsets | `{cluster.offsets_topic} -> {own}` |"):
        assert shown in question["body"]
    assert journal(var, counting) == []
    assert connect.states(counting)[0] == "RUNNING"
    assert own not in connect.topics()

    run.respond("Approve")
    assert set(run.answered().values()) == {"success"}
    assert connect.config(counting)["offsets.storage.topic"] == own
    assert_counted(connect.await_more(counting))
    assert "done" in {line["outcome"] for line in journal(var, counting)}
    assert airflow.xcom(DAG, run.run_id, "verify_migration")["connectors"] == [counting]
    events = [event for event in airflow.asset_events() if event["source_run_id"] == run.run_id]
    assert [event["uri"] for event in events] == [f"x-onceover://{CONNECT}/{counting}.offsets"]
    xcoms = [airflow.xcom(DAG, run.run_id, task_id) for task_id in TASKS]
    assert PLANTED not in run.log(*TASKS) + json.dumps(xcoms)


@pytest.mark.soak
def test_a_migrated_connector_goes_back_once_that_was_approved(
    airflow: AirflowStandalone, person: Person, connect: Connect, counting: str, var: Path
) -> None:
    """By the same DAG, with a plan of its own: no record is lost or repeated on either way."""
    named = {"connect": CONNECT, "connectors": [counting]}
    there = AskingRun.start(airflow, person, DAG, APPROVAL, named)
    assert there.question() is not None
    assert there.answer("Approve")["apply_migration"] == "success"
    assert "offsets.storage.topic" in connect.config(counting)

    back = AskingRun.start(airflow, person, DAG, APPROVAL, {**named, "operation": "downgrade"})
    question = back.question()
    assert question is not None and "| overwrite offsets |" in question["body"]
    assert "offsets.storage.topic" in connect.config(counting)
    ended = back.answer("Approve")

    assert (ended["apply_migration"], ended["verify_migration"]) == ("success", "skipped")
    assert "offsets.storage.topic" not in connect.config(counting)
    assert_counted(connect.await_more(counting))


@pytest.mark.soak
def test_a_rejected_plan_stops_no_connector(
    airflow: AirflowStandalone,
    person: Person,
    cluster: ConnectCluster,
    connect: Connect,
    counting: str,
    var: Path,
) -> None:
    """Named in the form, nobody is asked which; rejected, nothing at all is changed."""
    run = AskingRun.start(airflow, person, DAG, APPROVAL, {"connect": CONNECT, "connectors": [counting]})
    assert run.question() is not None
    ended = run.answer("Reject")
    assert (ended[PICK], ended["apply_migration"], ended["verify_migration"]) == ("skipped",) * 3
    assert "offsets.storage.topic" not in connect.config(counting)
    assert connect.states(counting)[0] == "RUNNING"
    assert journal(var, counting) == []
