"""A person at this machine, who types what a page says."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from onceover_lab.demo import machine as machine_module
from onceover_lab.demo.machine import MachineStatus
from tests.support.session.leftovers import SESSION_VARIABLE

PROJECT: Final = Path(__file__).parents[3]
PROGRAM: Final = PROJECT / ".venv" / "bin" / "onceover"
TIMEOUT_S: Final = 200.0


@dataclass(frozen=True)
class Machine:
    """A person at this machine, in a shell that has just been opened."""

    home: Path

    @property
    def environ(self) -> dict[str, str]:
        """PATH and HOME, and what keeps the test from the developer's own clusters."""
        bin_directory = str(PROGRAM.parent)
        path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if p != bin_directory)
        return {
            "PATH": path,
            "HOME": os.environ["HOME"],
            "ONCEOVER_HOME": str(self.home),
            SESSION_VARIABLE: os.environ[SESSION_VARIABLE],
        }

    def type(self, line: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
        """Type a line; output and errors come together, as on a screen."""
        return subprocess.run(
            ["bash", "-c", line],
            cwd=cwd,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def ask(self, arguments: str) -> dict[str, Any]:
        """Return the JSON document of a command that succeeds."""
        done = self.type(f"{PROGRAM} {arguments} --json")
        assert done.returncode == 0, done.stdout
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def up(self, *options: str) -> MachineStatus:
        """Start what is missing; fail when a person is told that a port is another one."""
        assert self.ask(f"clusters up {' '.join(options)}")["notes"] == []
        return self.status()

    def status(self) -> MachineStatus:
        """Return what runs."""
        return machine_module.status(self.home)

    def fed(self) -> int:
        """Return how many flights are fed."""
        feed = self.status().feed
        return feed.fed if feed else 0

    @property
    def east(self) -> AdminClient:
        """A client of the source."""
        return AdminClient({"bootstrap.servers": str(self.status().clusters["east"]["bootstrap"])})
