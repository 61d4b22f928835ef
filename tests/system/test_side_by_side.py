"""Three flows at once, in both directions, from the one `replicate` DAG, beside one that cannot log in."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
import yaml

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.judge import compare_topics
from tests.system.conftest import LOST_CLIENT, Side

DAG = "replicate"
RECORDS = 2000
# Four Spark drivers share the machine with Airflow.
_RUN_TIMEOUT_S = 600.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


def test_three_flows_at_once_from_one_dag_and_a_failing_one_disturbs_none(
    airflow: AirflowStandalone,
    connection: None,
    flows: Path,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
) -> None:
    """A DAG run each, copying at the same time; what is wrong with one stays with it."""
    there = secured_cluster.client, target_cluster.client
    sides = {"sys-one": there, "sys-two": there, "sys-back": (there[1], there[0])}
    for flow, (source, _) in sides.items():
        Side(source).create(f"{flow}.records")
        Side(source).feed(f"{flow}.records", RECORDS)
    client_file = flows / LOST_CLIENT
    client_file.touch(mode=0o600)
    client_file.write_text(yaml.safe_dump({**secured_cluster.client, "sasl.password": "another"}))

    lost = airflow.trigger(DAG, {"flow": "sys-lost", "run_length": "caught-up"})
    runs = {flow: airflow.trigger(DAG, {"flow": flow, "run_length": "caught-up"}) for flow in sides}
    states = {flow: airflow.wait_run(DAG, run, timeout_s=_RUN_TIMEOUT_S) for flow, run in runs.items()}

    assert states == dict.fromkeys(sides, "success")
    assert airflow.wait_run(DAG, lost, timeout_s=_RUN_TIMEOUT_S) == "failed"
    assert len(airflow.task_tries(DAG, lost, "replicate")) == 1
    for flow, (source, target) in sides.items():
        verdict = compare_topics(source, target, [f"{flow}.records"], timeout_s=60)
        assert verdict.ok, verdict.explain()
        assert verdict.target_records == RECORDS
    tries = [airflow.task_tries(DAG, run, "replicate") for run in runs.values()]
    assert [len(one) for one in tries] == [1, 1, 1]
    begun = max(datetime.fromisoformat(one["start_date"]) for (one,) in tries)
    ended = min(datetime.fromisoformat(one["end_date"]) for (one,) in tries)
    assert begun < ended
