"""An installed wheel holds what a checkout does, and starts Spark's jobs with nothing beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.commands.wheel import PROJECT, build_wheel, unpacked

_ASK = """
import json, sys
from onceover.config.flow.load import load_flow
from onceover.spark.launch.submit import AuditOptions, audit_job, replicate_job
flow = load_flow(sys.argv[1])
jobs = [replicate_job(flow, until="caught-up"), audit_job(flow, AuditOptions())]
remote = replicate_job(flow, until="caught-up", master="yarn").conf["spark.executorEnv.PYTHONPATH"]
print(json.dumps([remote, *(str(job.application) for job in jobs)]))
"""
_FLOW = """
flow: f
source: {alias: east, client: {bootstrap.servers: "127.0.0.1:1"}}
target: {alias: west, client: {bootstrap.servers: "127.0.0.1:2"}}
topics: {include: [x]}
"""


def test_a_wheel_holds_all_of_the_packages_and_starts_jobs_of_its_own(tmp_path: Path) -> None:
    """From a folder that knows nothing of the checkout; executors find the same package."""
    library = unpacked(build_wheel(tmp_path), tmp_path / "library")
    for package in ("onceover", "onceover_airflow", "onceover_lab"):
        sources = PROJECT / "include" / package
        there = {path.relative_to(sources) for path in sources.rglob("*") if path.suffix not in ("", ".pyc")}
        assert {path for path in there if not (library / package / path).exists()} == set(), package
    (tmp_path / "f.yaml").write_text(_FLOW)
    asked = subprocess.run(
        [sys.executable, "-c", _ASK, str(tmp_path / "f.yaml")],
        cwd=tmp_path,
        env={"PYTHONPATH": str(library), "ONCEOVER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    remote, *jobs = json.loads(asked.stdout)
    assert remote == str(library)
    assert [Path(job).is_file() and Path(job).is_relative_to(library) for job in jobs] == [True, True]
