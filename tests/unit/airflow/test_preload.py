"""What Airflow's parents load for the processes that they fork."""

from __future__ import annotations

import importlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onceover_airflow import preload

DAGS = Path(__file__).parents[3] / "dags"
# Seconds and memory that no task needs, or threads: a fork takes none of them along, and all of their locks.
NEEDLESS = ("pyspark", "matplotlib", "confluent_kafka", "great_expectations")
PROGRAM = """
import json, runpy, sys, threading
import airflow.sdk, airflow.jobs.scheduler_job_runner
from onceover_airflow import preload
paths = sys.argv[2:]
preload.on_starting(component=None)
loaded = set(sys.modules)
for path in paths:
    runpy.run_path(path)
print(json.dumps({
    "threads": threading.active_count(),
    "late": sorted(name for name in set(sys.modules) - loaded if name.startswith("onceover")),
    "loaded": sorted(loaded),
}))
"""


def loaded_by(command: str, tmp_path: Path) -> dict[str, Any]:
    """Have a process begin as that command of Airflow's, and read all DAG files as its children would."""
    argv = [sys.executable, "-W", "ignore", "-c", PROGRAM, command, *map(str, sorted(DAGS.glob("*.py")))]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("command", ["dag-processor", "scheduler"])
def test_children_find_all_that_dag_files_import(command: str, tmp_path: Path) -> None:
    """And nothing that runs threads, or costs what no task needs, comes into a process that forks."""
    found = loaded_by(command, tmp_path)
    assert found["late"] == []
    assert found["threads"] == 1
    assert [name for name in NEEDLESS if name in found["loaded"]] == []
    runs = command == "scheduler"
    assert ("onceover.wiring.flows" in found["loaded"]) is runs


@pytest.mark.parametrize("argv", [["airflow", "triggerer"], ["airflow"], []])
def test_other_jobs_load_nothing(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the web server nor the triggerer forks for tasks."""
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(importlib, "import_module", pytest.fail)
    preload.on_starting(component=None)


def test_a_module_that_does_not_load_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Other people's DAGs are run by the same scheduler."""
    monkeypatch.setattr(sys, "argv", ["airflow", "scheduler"])
    monkeypatch.setattr(preload, "_ROOMS", {"scheduler": ("onceover.model", "onceover.not_there")})
    with caplog.at_level(logging.ERROR):
        preload.on_starting(component=None)
    assert "onceover.not_there is not loaded ahead" in caplog.text
