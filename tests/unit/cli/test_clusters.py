"""What `onceover clusters down` says it has stopped."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from onceover.cli.commands import clusters
from onceover_lab.demo import machine
from onceover_lab.demo.machine import MachineStatus


@pytest.mark.parametrize(
    ("ran", "stopped", "text"),
    [
        ({"feed": False, "airflow": False, "east": False}, [], "nothing was running"),
        (
            {"feed": False, "airflow": True, "east": True},
            ["airflow", "east"],
            "stopped: airflow, east; the data",
        ),
    ],
)
def test_what_ran_is_named_and_that_nothing_did(
    ran: dict[str, bool],
    stopped: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second `down`, or one on a machine that was never up, fails at nothing and claims nothing."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "down", lambda *_: ran)
    monkeypatch.setattr(machine, "status", lambda _: MachineStatus({}, None, None, None))
    told = clusters.down(argparse.Namespace(json=False))
    assert (told.document["stopped"], told.exit_code) == (stopped, 0)
    assert told.text.startswith(text)
    assert (str(tmp_path) in told.text) is bool(stopped)
