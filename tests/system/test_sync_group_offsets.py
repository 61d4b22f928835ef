"""The `sync_group_offsets` DAG in a real Airflow: the harmless is written, the risky asked about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flows import InlineFlow, write_flow
from tests.support.flows.groups import commit_all, offset_of
from tests.support.flows.replica import delete_topics
from tests.system.conftest import CONNECTION_ID, PLANTED, AskingRun, Side
from tests.system.person import Person

DAG, FLOW = "sync_group_offsets", "sys-groups"
TOPIC, PLAIN, FOREIGN = f"{FLOW}.orders", f"{FLOW}-plain", f"{FLOW}-foreign"
APPROVAL = "approve_moves"

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


def test_a_risky_move_is_made_only_when_a_person_approves_it(
    airflow: AirflowStandalone, person: Person, connection: None, copied: None, target_cluster: SharedCluster
) -> None:
    """Asked about the foreign commit; unasked, as on a schedule, it is left alone and the run says so."""
    client = target_cluster.client
    unasked = AskingRun.start(airflow, person, DAG, APPROVAL, {"flow": FLOW, "approve": False})
    assert unasked.ended() == "failed"
    assert (offset_of(client, PLAIN, TOPIC), offset_of(client, FOREIGN, TOPIC)) == (12, 5)
    assert "nobody has approved" in unasked.log("apply_groups")

    run = AskingRun.start(airflow, person, DAG, APPROVAL, {"flow": FLOW})
    question = run.question()
    assert question is not None
    assert f"| move group | `{FOREIGN} {TOPIC}:0` | 5 | 20 | skip 15 |" in question["body"]
    assert PLAIN not in question["body"]
    assert run.answer("Approve")["apply_groups"] == "success"
    assert offset_of(client, FOREIGN, TOPIC) == 20
    events = [event for event in airflow.asset_events() if event["source_run_id"] == run.run_id]
    assert [event["uri"] for event in events] == [f"x-onceover://target/{FLOW}.groups"]
    assert PLANTED not in run.log("plan_groups", "apply_groups")
    assert CONNECTION_ID not in question["body"]
