"""A `@continuous` flow in a real Airflow: it runs again after a failure, but not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from onceover_lab.embed.airflow import AirflowStandalone
from tests.support.session.wait import wait_until
from tests.system.conftest import read_again

FLOW = "sys-always"
DAG = f"sync_group_offsets_{FLOW}"
SEEN_WITHIN_S = 180.0
LIMIT = 10

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def failing(flows: Path, airflow: AirflowStandalone) -> Iterator[None]:
    """A flow that is always on and cannot work: its client file is missing. Ended by pausing it."""
    side = {"alias": "nowhere", "client_file": "missing.yaml"}
    document = {
        "flow": FLOW,
        "source": side,
        "target": {**side, "alias": "neither"},
        "topics": {"include": ["none"]},
        "schedules": {"sync_group_offsets": "@continuous", "audit": None},
    }
    path = flows / f"{FLOW}.yaml"
    path.write_text(yaml.safe_dump(document))
    read_again(airflow, "sync_group_offsets")
    yield
    airflow.call("PATCH", f"/api/v2/dags/{DAG}", {"is_paused": True})
    path.unlink()


def failed(airflow: AirflowStandalone) -> list[str]:
    """Return the logical dates of the runs that failed; none while Airflow has not seen the flow."""
    if not airflow.has_dag(DAG):
        return []
    runs = airflow.call("GET", f"/api/v2/dags/{DAG}/dagRuns?state=failed&limit=50")["dag_runs"]
    return [run["logical_date"] for run in runs]


# test_dags.py asks Airflow's own timetable for the second run; here it takes a minute to come.
@pytest.mark.soak
def test_a_continuous_flow_runs_again_after_a_failure(airflow: AirflowStandalone, failing: None) -> None:
    """Each run is one of its own; without a start date Airflow took the second one for the first."""
    wait_until(lambda: len(failed(airflow)) >= 2, SEEN_WITHIN_S, "it has run twice", poll_s=1.0)
    dates = failed(airflow)
    assert len(set(dates)) == len(dates)


@pytest.mark.soak
def test_a_continuous_flow_that_only_fails_is_paused(airflow: AirflowStandalone, failing: None) -> None:
    """After the limit nobody is told for the eleventh time."""
    airflow.call("PATCH", f"/api/v2/dags/{DAG}", {"is_paused": False})

    def paused() -> bool:
        return bool(airflow.call("GET", f"/api/v2/dags/{DAG}")["is_paused"])

    wait_until(lambda: len(failed(airflow)) > 0, SEEN_WITHIN_S, "it runs", poll_s=1.0)
    wait_until(paused, 600.0, "it is paused", poll_s=2.0)
    assert len(failed(airflow)) >= LIMIT
