"""The `seed_progress` DAG in a real Airflow: approved, rejected, and in MirrorMaker 2's place."""

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
from tests.support.connect.mirror import START_S, Load, start_mirror
from tests.support.flows.flows import InlineFlow, assert_same, write_flow
from tests.support.flows.groups import commit
from tests.support.flows.replica import delete_topics, read_records
from tests.support.session.wait import wait_until
from tests.system.conftest import PLANTED, AskingRun, Side
from tests.system.killing import PARTITIONS
from tests.system.person import Person

DAG, APPROVAL = "seed_progress", "approve_progress"
TASKS: Final = ("plan_progress", APPROVAL, "apply_progress")
SEEDED, ADOPTED = "sys-progress", "sys-adopted"
GROUP = f"{SEEDED}-mirror"
START: Final = {0: 4, 1: 30, 2: 0}
MIRROR = "elsewhere"
RUNS = "MirrorMaker runs"
_FORGOTTEN_S = 60.0

pytestmark = pytest.mark.timeout(900)


def start(airflow: AirflowStandalone, person: Person, flow: str, **params: Any) -> AskingRun:
    """Trigger the DAG."""
    return AskingRun.start(airflow, person, DAG, APPROVAL, {"flow": flow, **params})


def journal(var: Path, flow: str) -> list[str]:
    """Return what the DAG says that it did."""
    path = var / flow / "journal" / "seed.jsonl"
    return [json.loads(line)["outcome"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def topic(secured_cluster: KafkaCluster, target_cluster: SharedCluster, request: Any) -> Iterator[str]:
    """A topic of the flow, 30 records in every partition; all of the flow is forgotten afterwards."""
    name = f"{SEEDED}.{request.node.name.partition('[')[0]}"
    source = Side(secured_cluster.client)
    source.create(name)
    source.feed(name, 30 * PARTITIONS)
    commit(secured_cluster.client, GROUP, name, START)
    yield name
    delete_topics(secured_cluster.client, [name])
    there = AdminClient(target_cluster.client).list_topics(timeout=10).topics
    if left := [each for each in there if SEEDED in each]:
        delete_topics(target_cluster.client, left)


@pytest.mark.soak
def test_positions_are_written_when_a_person_approves_them(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    topic: str,
    tmp_path: Path,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
    var: Path,
) -> None:
    """Every position and what it costs is shown first; the copy then begins exactly there."""
    run = start(airflow, person, SEEDED, origin=f"group:{GROUP}")
    question = run.question()
    assert question is not None
    rows = [line for line in question["body"].splitlines() if "| position |" in line]
    shown = [tuple(cell.strip() for cell in row.split("|")[2:6]) for row in rows]
    expected = [(f"`{topic}:{p}`", "-", str(at), f"skip {at}" if at else "-") for p, at in START.items()]
    assert shown == expected
    assert topic not in AdminClient(target_cluster.client).list_topics(timeout=10).topics
    assert journal(var, SEEDED) == []

    assert set(run.answer("Approve").values()) == {"success"}
    assert airflow.xcom(DAG, run.run_id, "apply_progress") == {"flow": SEEDED, "written": 3, "generation": 1}
    assert "done" in journal(var, SEEDED)
    assert PLANTED not in run.log(*TASKS) + question["body"]
    source, target = secured_cluster.client, target_cluster.client
    InlineFlow(write_flow(tmp_path, SEEDED, source, target, [f"{SEEDED}[.].*"])).copy()
    for partition, at in START.items():
        theirs = read_records(source, topic, partition)
        wanted = [record for offset, record in sorted(theirs.items()) if offset >= at]
        assert [record for _, record in sorted(read_records(target, topic, partition).items())] == wanted


@pytest.mark.soak
def test_rejected_or_refused_positions_are_not_written(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    topic: str,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
    var: Path,
) -> None:
    """Rejected: nothing at all is changed. All refused: nobody is asked, and the run fails and says why."""
    before = journal(var, SEEDED)
    run = start(airflow, person, SEEDED, origin="earliest")
    assert run.question() is not None
    assert run.answer("Reject")["apply_progress"] == "skipped"

    beyond = f"{GROUP}-beyond"
    commit(secured_cluster.client, beyond, topic, dict.fromkeys(START, 1000))
    refused = start(airflow, person, SEEDED, origin=f"group:{beyond}")
    assert refused.ended() == "failed"
    assert refused.states[APPROVAL] == "skipped"
    assert f"0 positions written, {PARTITIONS} refused: {topic}:0" in refused.log("apply_progress")
    assert topic not in AdminClient(target_cluster.client).list_topics(timeout=10).topics
    assert journal(var, SEEDED) == before


@pytest.mark.soak
def test_a_killed_mirrormaker_is_adopted_after_approval(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    tmp_path: Path,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
) -> None:
    """Refused while it lives; afterwards every position is proven, and nothing is lost or repeated."""
    source, target = secured_cluster.client, target_cluster.client
    inside = {"bootstrap.servers": secured_cluster.internal_bootstrap}
    topic = f"{ADOPTED}.records"
    Side(source).create(topic)
    params = {"kind": "adopt", "mm2_target": MIRROR}

    def copied() -> int:
        if topic not in AdminClient(target).list_topics(timeout=10).topics:
            return 0
        return sum(len(read_records(target, topic, partition)) for partition in range(PARTITIONS))

    aliases, topics = ("secured", MIRROR), f"{ADOPTED}[.].*"
    with (
        Load(source, topic, PARTITIONS),
        start_mirror(tmp_path / "mm2", inside, target, aliases, topics) as mirror,
    ):
        wait_until(lambda: copied() > 0, START_S, "it copies", poll_s=0.3)
        living = start(airflow, person, ADOPTED, **params)
        assert living.ended() == "failed"
        assert RUNS in living.log("apply_progress")
        wait_until(lambda: copied() > 2000, START_S, "it copies", poll_s=0.3)
        mirror.kill()

    def forgotten() -> AskingRun | None:
        run = start(airflow, person, ADOPTED, **params, apply=False)
        assert run.ended() == "success"
        return None if RUNS in run.log("plan_progress") else run

    wait_until(forgotten, _FORGOTTEN_S, "MirrorMaker's workers are forgotten")
    run = start(airflow, person, ADOPTED, **params)
    question = run.question()
    assert question is not None
    assert question["body"].count("proven:") == PARTITIONS
    assert set(run.answer("Approve").values()) == {"success"}
    InlineFlow(write_flow(tmp_path, ADOPTED, source, target, [f"{ADOPTED}[.].*"])).copy()
    assert_same(source, target, [topic])
