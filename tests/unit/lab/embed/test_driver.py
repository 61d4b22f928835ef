"""Only the recorded driver of this flow is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from onceover.errors import Retriable
from onceover_lab.embed.driver import Driver, kill_driver, read_driver
from tests.support.session.wait import wait_until

FLOW = "flights-dr"


@pytest.fixture
def pair() -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Two harmless processes with the flow's name on their command lines."""
    command = [sys.executable, "-c", "import signal; signal.pause()", "replicate", FLOW]
    processes = (subprocess.Popen(command), subprocess.Popen(command))
    # Just begun, a process has no command line for a moment.
    wait_until(
        lambda: all(psutil.Process(process.pid).cmdline() for process in processes),
        10,
        "they have their command lines",
    )
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def driver(python: int, jvm: int, started_at_ms: int | None = None) -> Driver:
    started = int(time.time() * 1000) + 1000 if started_at_ms is None else started_at_ms
    return Driver(pid=python, jvm_pid=jvm, run="r1", generation=3, started_at_ms=started)


def test_both_processes_of_the_driver_get_sigkill(
    pair: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]],
) -> None:
    """A real kill -9 of the Python driver and of its JVM."""
    python, jvm = pair
    kill_driver(driver(python.pid, jvm.pid), FLOW)
    assert (python.wait(10), jvm.wait(10)) == (-signal.SIGKILL, -signal.SIGKILL)


@pytest.mark.parametrize(
    ("flow", "started_at_ms", "seen"),
    [
        pytest.param("orders-dr", None, "left alone", id="another flow"),
        pytest.param(FLOW, 1_000, "left alone", id="process id used again"),
    ],
)
def test_foreign_process_is_left_alone(
    pair: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]],
    flow: str,
    started_at_ms: int | None,
    seen: str,
) -> None:
    """Neither process is killed when one of them is not this flow's driver."""
    python, jvm = pair
    with pytest.raises(Retriable, match=seen):
        kill_driver(driver(python.pid, jvm.pid, started_at_ms), flow)
    assert (python.poll(), jvm.poll()) == (None, None)


def test_driver_that_has_ended_is_an_error(
    pair: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]],
) -> None:
    """The demo must not claim a kill that did not happen."""
    python, jvm = pair
    jvm.kill()
    jvm.wait()
    with pytest.raises(Retriable, match="has ended before it was killed"):
        kill_driver(driver(python.pid, jvm.pid), FLOW)
    assert python.poll() is None


def test_record_is_read_once_it_is_whole(tmp_path: Path) -> None:
    """No record and half a record are both 'not yet'."""
    assert read_driver(tmp_path, FLOW) is None
    record = tmp_path / FLOW / "driver.json"
    record.parent.mkdir()
    text = json.dumps({"pid": 1, "jvm_pid": 2, "run": "r", "generation": 4, "started_at_ms": 5})
    record.write_text(text[:20])
    assert read_driver(tmp_path, FLOW) is None
    record.write_text(text)
    assert read_driver(tmp_path, FLOW) == Driver(1, 2, "r", 4, 5)
