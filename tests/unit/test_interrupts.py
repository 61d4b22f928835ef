"""A command that is interrupted says so in one line, or one document: while it is loaded, too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from onceover.cli.commands import replicate
from onceover.cli.sparkjob import JobEnd
from onceover.config.flow.load import load_flow
from onceover.spark.launch.again import Restarts
from onceover.spark.launch.submit import replicate_job
from tests.support.session.signals import default_signals
from tests.support.session.wait import wait_until

_PROJECT = Path(__file__).parents[2]
_ENTRY = (sys.executable, "-m", "onceover.cli.entry")
# Takes the place of a library that the commands load.
_SLOW = """
import os, pathlib, time
pathlib.Path(os.environ["LOADING"]).touch()
time.sleep(60)
"""
Loading = subprocess.Popen[str]


def loading(folder: Path, *arguments: str) -> Loading:
    """Start a command and return it while its modules are being loaded."""
    (folder / "croniter.py").write_text(_SLOW)
    flag = folder / "loading"
    environment = {**os.environ, "PYTHONPATH": str(folder), "LOADING": str(flag)}
    process = subprocess.Popen(
        [*_ENTRY, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    wait_until(flag.exists, 60.0, "the command being loaded")
    return process


@pytest.fixture
def started(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Loading]:
    """The command that the test names, while it is loaded."""
    process = loading(tmp_path, *request.param)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("started", [("status", "--json")], indirect=True)
def test_interrupted_while_it_is_loaded_a_command_prints_its_document(started: Loading, number: int) -> None:
    """Ctrl-C, `kill`, and a closed terminal."""
    started.send_signal(number)
    out, err = started.communicate(timeout=20)
    document = json.loads(out)
    assert (started.returncode, document["exit"], document["ok"], document["command"]) == (
        130,
        130,
        False,
        "status",
    )
    assert document["error"]["code"] == "INTERRUPTED"
    assert err == "error: interrupted\n"


@pytest.mark.parametrize("started", [("status",)], indirect=True)
def test_interrupted_while_it_is_loaded_a_command_says_one_line(started: Loading) -> None:
    """No traceback of whatever was being loaded."""
    started.send_signal(signal.SIGINT)
    assert (*started.communicate(timeout=20), started.returncode) == ("", "error: interrupted\n", 130)


_EARLY = """
import importlib.abc, os, pathlib, sys, time
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("onceover.") and name not in ("onceover.cli", "onceover.cli.entry"):
            pathlib.Path(os.environ["LOADING"]).touch()
            time.sleep(60)
sys.meta_path.insert(0, Slow())
from onceover.cli import entry
sys.exit(entry.run())
"""


def test_interrupted_in_its_first_moment_a_command_says_one_line(tmp_path: Path) -> None:
    """Before anything of ours is loaded, what says so among it: no traceback of that, either."""
    flag = tmp_path / "loading"
    process = subprocess.Popen(
        [sys.executable, "-c", _EARLY, "status", "--json"],
        env={**os.environ, "LOADING": str(flag)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    try:
        wait_until(flag.exists, 60.0, "the first import")
        process.send_signal(signal.SIGINT)
        assert (*process.communicate(timeout=20), process.returncode) == ("", "error: interrupted\n", 130)
    finally:
        process.kill()
        process.wait()


_ENDING = """
import atexit, os, pathlib, sys, time
def end():
    pathlib.Path(os.environ["LOADING"]).touch()
    time.sleep(60)
atexit.register(end)
from onceover.cli import entry
sys.exit(entry.run())
"""


def test_interrupted_when_all_is_said_a_command_says_nothing_more(tmp_path: Path) -> None:
    """What Python still has to do at its end is nobody's concern, and no traceback's."""
    flag = tmp_path / "ending"
    process = subprocess.Popen(
        [sys.executable, "-c", _ENDING, "--version"],
        env={**os.environ, "LOADING": str(flag)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    try:
        wait_until(flag.exists, 60.0, "the end of the process")
        process.send_signal(signal.SIGINT)
        assert (process.communicate(timeout=20)[1], process.returncode) == ("", -signal.SIGINT)
    finally:
        process.kill()
        process.wait()


class Child:
    """A driver that ends when it is asked to; the command line gets a signal as soon as it looks at it.

    Args:
        number: the signal.
        looks: how often it is looked at before it ends by itself.
    """

    pid, returncode = 1, 0

    def __init__(self, number: int, looks: int) -> None:
        self._number = number
        self._looks = looks
        self.got: list[int] = []

    @property
    def alive(self) -> bool:
        os.kill(os.getpid(), self._number)
        self._looks -= 1
        return self._looks > 0 and not self.got

    def send_signal(self, number: int) -> None:
        self.got.append(number)

    def wait(self, timeout_s: float) -> None:
        pass

    def stop(self) -> None:
        pass


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal that is not ignored, whoever runs the tests."""
    previous = signal.signal(request.param, lambda *_: None)
    yield request.param
    signal.signal(request.param, previous)


def copied(monkeypatch: pytest.MonkeyPatch, child: Child) -> bool:
    """Copy with ``child`` for the driver; return whether somebody has stopped it."""
    answers: list[bool] = []

    def job_end(*_: object, stopped: bool) -> JobEnd:
        answers.append(stopped)
        return JobEnd({"generation": 1}, None, killed=False)

    monkeypatch.setenv("ONCEOVER_EAST", "127.0.0.1:1")
    monkeypatch.setenv("ONCEOVER_WEST", "127.0.0.1:2")
    flow = load_flow("flights-dr")
    job = replicate_job(flow, until="forever")
    monkeypatch.setattr(replicate, "running_job", lambda *_: nullcontext(child))
    monkeypatch.setattr(replicate, "job_end", job_end)
    replicate._execute(flow, job, replicate._Progress(flow, show=False, ends=False), Restarts("forever"))
    return answers[0]


def test_every_end_of_a_terminal_ends_a_copy_in_order(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The driver is asked to end, and nobody is killed."""
    child = Child(number, 100)
    assert copied(monkeypatch, child)
    assert child.got == [signal.SIGTERM]


def test_what_is_ignored_ends_no_copy(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """As under nohup: whoever closes the terminal means something else."""
    signal.signal(number, signal.SIG_IGN)
    child = Child(number, 3)
    assert not copied(monkeypatch, child)
    assert child.got == []


def test_the_program_begins_there() -> None:
    """Nothing else is loaded before."""
    scripts = tomllib.loads((_PROJECT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"onceover": "onceover.cli.entry:run"}
