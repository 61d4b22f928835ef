"""A copy without an end in a real Airflow: its flow file, its driver, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.up import airflow as upairflow
from tests.support.flows.flows import InlineFlow
from tests.support.session.wait import wait_until
from tests.system.conftest import PROJECT, Side, read_again

DAG: Final = "replicate"
# Seconds on an idle machine.
STEP_S: Final = 200.0


def bring_back(airflow: AirflowStandalone, environ: Mapping[str, str]) -> None:
    """Start those of Airflow's processes again that a test has ended."""
    upairflow.up(
        airflow.home,
        dags=PROJECT / "dags",
        plugins=PROJECT / "plugins",
        environ=environ,
        note=lambda _: None,
    )


@dataclass(frozen=True)
class LastingFlow:
    """A flow of one topic, whose runs are watched."""

    name: str
    path: Path
    source: Side
    home: Path

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return f"{self.name}.records"

    @property
    def conf(self) -> Mapping[str, str]:
        """What a form says of a run without an end."""
        return {"flow": self.name, "run_length": "forever"}

    def driver(self, *, after: int = 0) -> dict[str, Any]:
        """Wait for the note of a driver, another one than ``after``, that has committed something."""

        def noted() -> dict[str, Any] | None:
            path = self.home / self.name / "driver.json"
            note: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
            return note if note.get("pid", after) != after and psutil.pid_exists(note["pid"]) else None

        return wait_until(noted, STEP_S, "a driver runs", poll_s=0.5)

    def await_caught_up(self) -> None:
        """Wait until the target has all that the source has."""

        def is_caught_up() -> bool:
            partitions = InlineFlow(self.path).status()["partitions"]
            return bool(partitions) and all(each["lag_offsets"] == 0 for each in partitions)

        wait_until(is_caught_up, STEP_S, "the flow is caught up", poll_s=1.0)


@contextmanager
def lasting_flow(
    name: str,
    airflow: AirflowStandalone,
    *,
    folder: Path,
    home: Path,
    source: Mapping[str, str],
    target: Mapping[str, str],
) -> Iterator[LastingFlow]:
    """Yield a flow with records to copy, once Airflow offers it.

    Args:
        folder: of the flow files.
        home: ONCEOVER_HOME of the runs.
    """
    document = {
        "flow": name,
        "source": {"alias": "one", "client": dict(source)},
        "target": {"alias": "other", "client": dict(target)},
        "topics": {"include": [f"{name}[.].*"]},
        "lanes": 1,
        "schedules": {"audit": None, "rehearse": None},
    }
    flow = LastingFlow(name, folder / f"{name}.yaml", Side(source), home)
    flow.path.write_text(yaml.safe_dump(document))
    flow.source.create(flow.topic)
    flow.source.feed(flow.topic, 1000)
    wait_until(lambda: airflow.has_dag(DAG), STEP_S, "the DAG is read", poll_s=1.0)
    read_again(airflow, DAG)

    def offered() -> bool:
        details = airflow.call("GET", f"/api/v2/dags/{DAG}/details")
        return name in details["params"]["flow"]["schema"]["enum"]

    # What was being read meanwhile did not have it yet.
    wait_until(offered, STEP_S, "the form offers the flow", poll_s=1.0)
    yield flow
    flow.path.unlink()
