"""``onceover replicate`` as a user runs it: a child process with Spark below it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from onceover.process.children import ChildProcess
from tests.support.session.wait import wait_until

# Spark needs 10 s to start on two quiet cores, several times that beside other work.
START_S = 120.0


class Replicate:
    """One run of the command; ``home`` holds its files, ``secret`` is a standalone master's."""

    def __init__(self, flow: Path, home: Path, *arguments: str, secret: str = "") -> None:
        self.home = home
        self.flow = flow.stem
        self._before = self.driver_note()
        self.log = home / f"replicate-{len(list(home.glob('replicate-*')))}.log"
        command = [sys.executable, "-m", "onceover.cli.main", "replicate", str(flow), "--json", *arguments]
        env = {**os.environ, "ONCEOVER_HOME": str(home), "ONCEOVER_SPARK_SECRET": secret}
        self.child = ChildProcess.start(command, name="replicate", log_path=self.log, env=env)

    def driver_note(self) -> dict[str, Any]:
        """Return driver.json, empty before the first start."""
        try:
            note: dict[str, Any] = json.loads((self.home / self.flow / "driver.json").read_text())
        except (OSError, ValueError):
            return {}
        return note

    def started(self) -> dict[str, Any]:
        """Wait until this run's driver leads the flow; return its note."""

        def begun() -> dict[str, Any] | None:
            note = self.driver_note()
            if not self.child.alive:
                raise AssertionError(f"replicate ended with {self.child.returncode}: {self.text()}")
            return note if note and note != self._before else None

        return wait_until(begun, START_S, "the driver leads the flow")

    def copying(self) -> list[psutil.Process]:
        """Wait until Spark's Python workers run; return them."""
        jvm = psutil.Process(self.started()["jvm_pid"])

        def workers() -> list[psutil.Process]:
            found = []
            for process in jvm.children(recursive=True):
                try:
                    line, parent = process.cmdline(), process.parent()
                    # The daemon has the same command line; workers are its children.
                    if "pyspark.worker" in line and parent is not None and parent.cmdline() == line:
                        found.append(process)
                except psutil.NoSuchProcess:
                    continue
            return found

        return wait_until(workers, START_S, "Spark's workers run")

    def wait(self, timeout_s: float = START_S) -> int:
        """Wait for the end; return the exit code."""
        return self.child.wait(timeout_s)

    def document(self) -> dict[str, Any]:
        """Return the JSON document that the command printed, the last line of its output."""
        lines = [line for line in self.text().splitlines() if line.startswith("{")]
        document: dict[str, Any] = json.loads(lines[-1])
        return document

    def text(self) -> str:
        """Return everything it printed."""
        return self.log.read_text()

    def printed(self) -> str:
        """Return what the drivers of all runs of the flow have printed."""
        logs = (self.home / self.flow / "log").glob("replicate-*.log")
        return "".join(path.read_text() for path in sorted(logs))


def run_cli(
    home: Path, *arguments: str, env: Sequence[tuple[str, str]] = (), timeout_s: float = 60.0
) -> tuple[int, dict[str, Any]]:
    """Run another command to its end; return exit code and JSON document."""
    log = home / f"cli-{len(list(home.glob('cli-*')))}.log"
    command = [sys.executable, "-m", "onceover.cli.main", *arguments, "--json"]
    child = ChildProcess.start(
        command, name="cli", log_path=log, env={**os.environ, "ONCEOVER_HOME": str(home), **dict(env)}
    )
    code = child.wait(timeout_s)
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return code, json.loads(lines[-1])
