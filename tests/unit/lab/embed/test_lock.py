"""Two commands that start or stop the same things do so one after the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import psutil
import pytest

from onceover.errors import Retriable
from onceover.process.children import ChildProcess
from onceover_lab.demo import machine
from onceover_lab.demo.machine import MachineStatus
from onceover_lab.embed import airflow
from onceover_lab.embed.airflow import MARK, AirflowStandalone, State
from onceover_lab.embed.ports import PortReservation
from onceover_lab.embed.up.clusters import ClusterStatus
from onceover_lab.embed.up.connect import ConnectStatus
from onceover_lab.embed.up.lock import alone
from tests.support.session.wait import wait_until

TIMEOUT_S: Final = 30.0
PROGRAM: Final = Path(sys.executable).with_name("onceover")
SLEEP: Final = "import threading; threading.Event().wait()"
HOLDER: Final = f"""
import sys
from pathlib import Path
from onceover_lab.embed.up.lock import alone
from onceover.process.children import ChildProcess
home = Path(sys.argv[1])
with alone(home, "make up"):
    child = ChildProcess.start(
        [sys.executable, "-c", {SLEEP!r}], name="left", log_path=home / "left.log", detached=True
    )
    print(child.pid, flush=True)
    {SLEEP}
"""


@contextmanager
def waiting(home: Path, action: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Type `clusters up` or `down`, and yield it with the line it says at once."""
    process = subprocess.Popen(
        [str(PROGRAM), "clusters", action],
        env={**os.environ, "ONCEOVER_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process, line_of(process.stderr)
        finally:
            process.kill()


def line_of(stream: IO[str] | None) -> str:
    """Return the next line."""
    assert stream is not None
    return stream.readline()


@pytest.mark.parametrize("action", ["up", "down"])
def test_second_command_waits_says_for_whom_and_can_be_interrupted(tmp_path: Path, action: str) -> None:
    """Ctrl-C leaves the first one's work as it is."""
    with alone(tmp_path, "make up"), waiting(tmp_path, action) as (process, said):
        assert f"another make up is at work (pid {os.getpid()})" in said
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
    assert [path.name for path in (tmp_path / "clusters").iterdir()] == [".lock"]


def test_lock_ends_with_its_process_and_not_with_what_that_started(tmp_path: Path) -> None:
    """kill -9 of `make up`: the next command goes on at once, beside the detached children."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        left = psutil.Process(int(line_of(holder.stdout)))
        try:
            with waiting(tmp_path, "down") as (process, said):
                assert f"another make up is at work (pid {holder.pid})" in said
                assert process.poll() is None
                holder.kill()
                assert process.wait(TIMEOUT_S) == 0
            assert left.is_running()
        finally:
            left.kill()


def start_marked(home: Path, mark: str) -> ChildProcess:
    """Start a process with the mark of an Airflow; it has come to its own program when this returns."""
    program = [sys.executable, "-c", SLEEP]
    env = {**os.environ, MARK: mark}
    child = ChildProcess.start(program, name=mark, log_path=home / f"{mark}.log", env=env)
    wait_until(lambda: psutil.Process(child.pid).cmdline() == program, TIMEOUT_S, f"{mark} runs")
    return child


def test_what_bore_no_mark_at_the_first_look_has_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is just starting another program has no environment for a moment."""
    child = start_marked(tmp_path, "own")
    looks = iter([[], [psutil.Process(child.pid)]])
    monkeypatch.setattr(airflow, "marked", lambda _: next(looks))
    try:
        airflow.sweep("own")
        assert not child.alive
    finally:
        child.kill()


def test_failed_start_ends_its_own_processes_only(tmp_path: Path) -> None:
    """The home may have another Airflow on record by then."""
    children = {mark: start_marked(tmp_path, mark) for mark in ("own", "other")}
    try:
        State("other").write(tmp_path)
        AirflowStandalone(tmp_path, 1, "", "own", [], PortReservation()).stop()
        assert {mark: child.alive for mark, child in children.items()} == {"own": False, "other": True}
    finally:
        for child in children.values():
            child.kill()


def test_what_ended_meanwhile_is_not_called_up(tmp_path: Path) -> None:
    """The parts are named."""
    up = ClusterStatus(alive=True, frozen=False, bootstrap="h:1", cluster_id="id", pids=[1], log="log")
    connect = ConnectStatus(alive=False, frozen=False, url="http://h:2", pid=None, log="log")
    found = MachineStatus({"east": up, "west": {**up, "alive": False}}, connect, None, None)
    with pytest.raises(Retriable, match="west and connect started, and ended again"):
        machine.check_runs(found, airflow=False)
    with pytest.raises(Retriable, match="west and connect and airflow"):
        machine.check_runs(found, airflow=True)
    machine.check_runs(MachineStatus({"east": up}, {**connect, "alive": True}, None, None), airflow=False)
