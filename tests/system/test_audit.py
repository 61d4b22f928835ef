"""The `audit` DAG in a real Airflow: PASS, then FAIL, and the report behind Airflow's login."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from confluent_kafka import Producer

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.system.conftest import PLANTED, Side
from tests.system.killing import told_of

DAG, FLOW = "audit", "sys-audit"
TOPIC = f"{FLOW}.orders"
RECORDS = 300
RUN_TIMEOUT_S = 400.0
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

pytestmark = [pytest.mark.timeout(1200), pytest.mark.soak]


def run(airflow: AirflowStandalone, dag_id: str, **params: Any) -> tuple[str, str]:
    """Run a DAG to its end; return its id and how it ended."""
    run_id = airflow.trigger(dag_id, {"flow": FLOW, **params})
    return run_id, airflow.wait_run(dag_id, run_id, timeout_s=RUN_TIMEOUT_S)


def links(airflow: AirflowStandalone, run_id: str, task_id: str) -> dict[str, str]:
    """Return where the buttons of a task lead."""
    path = f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances/{task_id}/links"
    found: dict[str, str] = airflow.call("GET", path)["extra_links"]
    return found


def page(airflow: AirflowStandalone, link: str, *, login: bool, accept: str = BROWSER) -> httpx.Response:
    """Ask for a page as a browser does, with or without a session."""
    headers = {"Accept": accept}
    with httpx.Client(base_url=airflow.url, timeout=30.0, follow_redirects=True, headers=headers) as browser:
        if login:
            body = {"username": airflow.username, "password": airflow.password}
            token = browser.post("/auth/token", json=body).json()["access_token"]
            browser.cookies.set("_token", token)
        return browser.get(link)


def failed_tests(lineage_file: Path, namespace: str) -> set[str]:
    """Return the tests of the target topic that the last audit told a catalogue it failed."""
    *_, end = told_of(lineage_file, f"onceover.{FLOW}.audit")
    assert end["eventType"] == "COMPLETE"
    (copy,) = (each for each in end["inputs"] if (each["namespace"], each["name"]) == (namespace, TOPIC))
    listed = copy["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert len(listed) > 1
    return {each["assertion"] for each in listed if not each["success"]}


def test_audit_is_told_and_reported_whatever_it_finds(
    airflow: AirflowStandalone,
    connection: None,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
    lineage_file: Path,
) -> None:
    """PASS announces the asset; a surplus record fails the run, and the logged-in can read its report.

    Before its first topic exists the flow copies nothing: that fails, in words, and announces nothing.
    """
    empty, state = run(airflow, "replicate")
    assert state == "failed"
    assert "no topic of the source is in scope" in airflow.task_logs("replicate", empty, "replicate")
    assert not [event for event in airflow.asset_events() if event["source_run_id"] == empty]

    source = Side(secured_cluster.client)
    source.create(TOPIC)
    source.feed(TOPIC, RECORDS)
    assert run(airflow, "replicate")[1] == "success"

    run_id, state = run(airflow, DAG)
    assert state == "success", airflow.task_logs(DAG, run_id, "audit")
    counts = airflow.xcom(DAG, run_id, "report_audit")
    assert f"'records': {RECORDS}" in str(counts)
    events = [event for event in airflow.asset_events() if event["source_run_id"] == run_id]
    assert [event["uri"] for event in events] == [f"x-onceover://target/{FLOW}.audit"]
    namespace = f"kafka://{target_cluster.bootstrap}"
    assert failed_tests(lineage_file, namespace) == set()

    producer = Producer(target_cluster.client)
    producer.produce(TOPIC, b"strange", partition=0)
    assert producer.flush(30) == 0
    run_id, state = run(airflow, DAG, full=True)
    assert state == "failed"
    shown = airflow.task_logs(DAG, run_id, "audit") + airflow.task_logs(DAG, run_id, "report_audit")
    assert "1 phantom" in shown
    # Behind the surplus record nothing more is proven.
    assert failed_tests(lineage_file, namespace) == {"phantom"}
    assert PLANTED not in shown
    found = links(airflow, run_id, "audit")
    assert set(found) == {"Report", "Data Docs"}
    assert links(airflow, run_id, "report_audit") == found
    for link in found.values():
        check_page(airflow, link)
    assert ">FAIL</h1>" in page(airflow, found["Report"], login=True).text
    gone = page(airflow, found["Report"].replace("report.html", "gone.html"), login=True)
    assert (gone.status_code, "newest ten audits are kept" in gone.text) == (404, True)


def check_page(airflow: AirflowStandalone, link: str) -> None:
    """A page is for people who are logged in; others are led to the login and from there to the page."""
    assert page(airflow, link, login=False, accept="application/json").status_code == 401
    door = page(airflow, link, login=False)
    assert (door.status_code, door.url.path) == (200, "/auth/login")
    assert door.url.params["next"] == link
    answer = page(airflow, link, login=True)
    assert answer.status_code == 200
    assert "strange" not in answer.text
    for other in re.findall(r'href="([^":#]+)"', answer.text):
        assert page(airflow, urljoin(link, other), login=True).status_code == 200
