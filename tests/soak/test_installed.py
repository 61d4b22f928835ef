"""The wheel in an environment of its own copies and audits, far from any checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.clusters import SharedCluster
from tests.support.commands.wheel import PROJECT, build_wheel
from tests.support.flows.flows import assert_same, write_flow
from tests.support.raw.adversary import Adversary

# Each of both commands starts Spark.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """The installed command; what the package depends on comes from the environment of the tests."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    install = [str(PROJECT / "scripts" / "uv"), "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*install, "--python", str(python), str(build_wheel(tmp_path))], check=True)
    (library,) = environment.glob("lib/python*/site-packages")
    # Its own .pth files are not read: the checkout is not among what is found.
    (library / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return environment / "bin" / "onceover"


def run(command: Path, folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return exit code and document of the command, typed in ``folder``."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["ONCEOVER_HOME"] = str(folder / "home")
    ended = subprocess.run(
        [command, *arguments, "--json"], cwd=folder, env=env, stdout=subprocess.PIPE, check=False
    )
    return ended.returncode, json.loads(ended.stdout)


def test_an_installed_wheel_copies_and_audits(
    command: Path,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    unique_name: str,
    tmp_path: Path,
) -> None:
    """Nothing is looked for beside the package: no jobs, no settings, nothing that the report is made of."""
    with Adversary(source_cluster.bootstrap) as adversary:
        adversary.create_topic(unique_name, 2)
        adversary.plain(unique_name, 0, adversary.records(20))
    flow = write_flow(tmp_path, "f", source_cluster.client, target_cluster.client, [unique_name])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code, copied = run(command, elsewhere, "replicate", str(flow), "--until", "caught-up")
    assert (code, copied["records"], copied["caught_up"]) == (0, 20, True), copied
    assert_same(source_cluster.client, target_cluster.client, [unique_name])
    code, audit = run(command, elsewhere, "audit", str(flow), "--full")
    assert (code, audit["verdict"]) == (0, "PASS"), audit
    assert "<html" in Path(audit["report"]).read_text()
