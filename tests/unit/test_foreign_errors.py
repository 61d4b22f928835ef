"""What nobody foresaw leaves the command line like anything else: one message, one document, an exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onceover.cli import numbers
from onceover.errors import UsageError
from tests.support.session.signals import default_signals
from tests.support.session.wait import wait_until

_COMMAND = (sys.executable, "-m", "onceover.cli.entry")
_PROJECT = Path(__file__).parents[2]
_LONG = "9" * 5000


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment in which nothing listens, with ``home``."""
    flows = str(_PROJECT / "include" / "flows")
    clusters = {"ONCEOVER_EAST": "127.0.0.1:1", "ONCEOVER_WEST": "127.0.0.1:2", "ONCEOVER_FLOWS": flows}
    return {**os.environ, **clusters, "ONCEOVER_HOME": str(home), **more}


def run(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as people do."""
    return subprocess.run(
        [*_COMMAND, *arguments],
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def failure(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the one document; fail where there is anything else on stdout, or a traceback."""
    assert "Traceback" not in ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    assert (document["ok"], document["exit"]) == (False, ended.returncode)
    error: dict[str, Any] = document["error"]
    return error


@pytest.mark.parametrize(
    "arguments",
    [
        ("replicate", "flights-dr"),
        ("clusters", "status"),
        ("receipts", "rebuild", "flights-dr"),
    ],
)
def test_a_home_that_is_a_file_is_named_and_is_no_violation(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Exit code 1 would say that a check has found something."""
    home = tmp_path / "home"
    home.write_text("")
    ended = run(home, *arguments, "--json")
    error = failure(ended)
    assert ended.returncode == 2
    assert str(home) in f"{error['message']} {error['where']}"
    assert "ONCEOVER_HOME" in f"{error['message']} {error['resolve']}"


def test_a_home_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    """Nobody, root neither, makes a directory there."""
    ended = run(Path("/proc/onceover"), "audit", "flights-dr", "--json")
    error = failure(ended)
    assert (ended.returncode, error["code"]) == (2, "PATH_UNUSABLE")
    assert "/proc/onceover" in error["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("translate", "flights-dr", "flights.jfk:0", _LONG),
        ("partition", "skip-to", "flights-dr", "flights.jfk:0", _LONG),
        ("status", "--nonsense"),
    ],
)
def test_a_number_that_nothing_can_hold_is_refused_where_it_is_read(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """And so is any other fault of the command line."""
    ended = run(tmp_path, *arguments, "--json")
    failure(ended)
    assert ended.returncode == 2
    assert len(ended.stderr) < 500


@pytest.mark.parametrize("text", [_LONG, str(2**63), "-1", "1e3", "", "x"])
def test_an_offset_fits_into_64_bits(text: str) -> None:
    """Thousands of digits included, which Python itself refuses with another error."""
    with pytest.raises(UsageError, match="is no offset"):
        numbers.offset(text)
    assert numbers.offset(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("text", ["inf", "nan", "1e300", "-1", "soon"])
def test_seconds_are_finite(text: str) -> None:
    """What waits for them cannot hold more."""
    with pytest.raises(UsageError, match="is no patience"):
        numbers.seconds("patience", 0.1, 3600)(text)
    assert numbers.seconds("patience", 0.1, 3600)("0.5") == 0.5


def breaking(tmp_path: Path, line: str) -> dict[str, str]:
    """Return variables with which a Python process meets something that nobody foresaw in ``load_flow``."""
    (tmp_path / "sitecustomize.py").write_text(
        f"from onceover.config.flow import load\ndef load_flow(*_):\n    {line}\nload.load_flow = load_flow\n"
    )
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(_PROJECT / "include")])}


def test_the_unexpected_is_one_document_and_a_traceback_only_where_asked_for(tmp_path: Path) -> None:
    """It says what and where, and how to see more; the exit code is the drivers' for the same."""
    broken = breaking(tmp_path, "raise ZeroDivisionError('a bug')")
    ended = run(tmp_path, "stop", "flights-dr", "--json", **broken)
    error = failure(ended)
    assert (ended.returncode, error["code"]) == (1, "UNEXPECTED")
    assert error["message"] == "unexpected ZeroDivisionError: a bug"
    assert "sitecustomize.py" in error["where"]
    assert "ONCEOVER_LOG=DEBUG" in error["resolve"]
    asked = run(tmp_path, "stop", "flights-dr", ONCEOVER_LOG="DEBUG", **broken)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert "Traceback" in asked.stderr


def test_an_interrupt_is_one_document(tmp_path: Path) -> None:
    """Ctrl-C, for a machine that reads the document."""
    waiting = tmp_path / "waiting"
    line = f"import time, pathlib; pathlib.Path({str(waiting)!r}).touch(); time.sleep(600)"
    process = subprocess.Popen(
        [*_COMMAND, "stop", "flights-dr", "--json"],
        env=environment(tmp_path, **breaking(tmp_path, line)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    with process:
        wait_until(waiting.exists, 120, "the command waits")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    error = failure(subprocess.CompletedProcess([], process.returncode, out, err))
    assert (process.returncode, error["message"]) == (130, "interrupted")


@pytest.mark.parametrize("arguments", [("flow", "check", "flights-dr"), ("flow", "check", "x", "--json")])
def test_nobody_reading_is_no_traceback(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """As in ``| head -1``; the command's own outcome stands."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        ended = subprocess.run(
            [*_COMMAND, *arguments],
            env=environment(tmp_path),
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
            check=False,
        )
    assert "Traceback" not in ended.stderr
    assert "BrokenPipe" not in ended.stderr
    assert ended.returncode == (2 if "x" in arguments else 0)
