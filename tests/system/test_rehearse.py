"""The `rehearse` DAG in a real Airflow: it passes beside a flow, its page is served, nothing stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.drills.rehearsing import things
from tests.support.flows.flows import InlineFlow, write_flow
from tests.support.flows.groups import commit_all
from tests.support.flows.replica import delete_topics
from tests.system.conftest import PLANTED, Side
from tests.system.person import Person
from tests.system.test_audit import page

DAG, FLOW = "rehearse", "sys-rehearse"
TOPIC, GROUP = f"{FLOW}.orders", f"{FLOW}-billing"
RUN_TIMEOUT_S = 200.0

pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]


@pytest.fixture
def copied(
    tmp_path: Path, flows: Path, secured_cluster: KafkaCluster, target_cluster: SharedCluster
) -> Iterator[None]:
    """A copied topic with a group that reads it."""
    source, target = secured_cluster.client, target_cluster.client
    Side(source).create(TOPIC)
    Side(source).feed(TOPIC, 90)
    InlineFlow(write_flow(tmp_path, FLOW, source, target, [f"{FLOW}[.].*"])).copy()
    commit_all(source, TOPIC, {GROUP: {0: 12}})
    yield
    delete_topics(source, [TOPIC])
    delete_topics(target, [TOPIC])


def test_a_rehearsal_from_the_form_passes_and_its_report_is_shown(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    copied: None,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
) -> None:
    """The asset is announced, the page is for the logged-in, both clusters are as they were."""
    clients = secured_cluster.client, target_cluster.client
    before = [things(client, FLOW) for client in clients]
    run_id = person.form(DAG).fill(flow=FLOW).send()
    shown = airflow.wait_run(DAG, run_id, timeout_s=RUN_TIMEOUT_S)
    log = airflow.task_logs(DAG, run_id, "plan_rehearsal") + airflow.task_logs(DAG, run_id, "rehearse")
    assert shown == "success", log
    assert [things(client, FLOW) for client in clients] == before
    assert GROUP in log
    assert PLANTED not in log
    assert airflow.xcom(DAG, run_id, "rehearse")["verdict"] == "PASS"
    events = [event for event in airflow.asset_events() if event["source_run_id"] == run_id]
    assert [event["uri"] for event in events] == [f"x-onceover://target/{FLOW}.rehearsal"]
    links = airflow.call("GET", f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances/rehearse/links")
    link = links["extra_links"]["Report"]
    assert page(airflow, link, login=False, accept="application/json").status_code == 401
    report = page(airflow, link, login=True)
    assert report.status_code == 200
    assert ">PASS</h1>" in report.text
    assert "sandbox" in report.headers["content-security-policy"]


def test_a_flow_that_never_ran_is_told_in_words(
    airflow: AirflowStandalone, person: Person, connection: None
) -> None:
    """Started by hand it fails, with the way out."""
    run_id = person.form(DAG).fill(flow="sys-progress").send()
    assert airflow.wait_run(DAG, run_id, timeout_s=RUN_TIMEOUT_S) == "failed"
    assert "was never started" in airflow.task_logs(DAG, run_id, "plan_rehearsal")
