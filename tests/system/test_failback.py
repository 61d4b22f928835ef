"""The `failback` DAG in a real Airflow: an unplanned switchover has left records on the source alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.cli import main as command_line
from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flows import InlineFlow, write_flow
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.judge import compare_topics
from tests.support.flows.replica import delete_topics, read_records
from tests.system.conftest import PLANTED, AskingRun, Side
from tests.system.person import Person

DAG = "failback"
QUESTIONS = ("approve_orphans", "approve_progress", "approve_drill")
# The longest: with tables, and with what is for good.
AT_A_PAGE = "approve_drill"
FLOW = "sys-over"
TOPIC, GROUP = f"{FLOW}.orders", f"{FLOW}-billing"
HOW = {
    "lanes": 1,
    "switchover": {"redirect": "command", "command": ["/bin/true"]},
    "source": {"alias": "secured"},
    "target": {"alias": "target"},
}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def switched_over(
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
    tmp_path: Path,
    flows: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[None]:
    """Clients write on the target by now, a group rests there, and the source holds five records alone."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("ONCEOVER_FLOWS", str(flows))
    source, target = Side(secured_cluster.client), Side(target_cluster.client)
    source.create(TOPIC)
    source.feed(TOPIC, 30)
    commit(secured_cluster.client, GROUP, TOPIC, {0: 5})
    clients = secured_cluster.client, target_cluster.client
    flow = InlineFlow(write_flow(tmp_path, FLOW, *clients, [f"{FLOW}[.].*"], **HOW))
    flow.copy()
    source.feed(TOPIC, 5)
    words = ["drill", "run", str(flow.path), "--mode", "unplanned", "--approve", "--json"]
    code = command_line.main(words)
    assert code == 0, json.loads(capsys.readouterr().out)
    target.feed(TOPIC, 6)
    yield
    for client in clients:
        delete_topics(client, [TOPIC])


def test_a_person_is_led_back(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    switched_over: None,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
) -> None:
    """Three questions, each with what it is about; then everything is where it was, and more, exactly."""
    run = AskingRun.start(airflow, person, DAG, QUESTIONS[0], {"flow": FLOW})
    assert run.run_id.startswith(f"{FLOW}__")
    asked = []
    for number, approval in enumerate(QUESTIONS):
        step = AskingRun(airflow, person, DAG, approval, run.run_id)
        question = step.question()
        assert question is not None, number
        asked.append(question["body"])
        answer = step.choose if approval == AT_A_PAGE else step.respond
        answer("Approve")
    assert run.ended() == "success", run.log("run_drill")
    assert f"`topic {TOPIC} on secured`" in asked[0]
    assert "destructive" in asked[0]
    assert f"`{TOPIC}:0`" in asked[1]
    assert "point of no return" in asked[2]
    assert airflow.xcom(DAG, run.run_id, "apply_orphans")["orphans"] == 5
    assert airflow.xcom(DAG, run.run_id, "run_drill")["verdict"] == "PASS"
    assert len(read_records(target_cluster.client, f"__onceover.{FLOW}.orphans")) == 5
    verdict = compare_topics(target_cluster.client, secured_cluster.client, [TOPIC], timeout_s=60)
    assert verdict.ok, verdict.explain()
    assert verdict.target_records == 36
    assert offset_of(secured_cluster.client, GROUP, TOPIC) == 5
    assert PLANTED not in "".join(asked) + run.log("apply_orphans", "apply_progress", "run_drill")
