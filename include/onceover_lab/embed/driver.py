"""The running Spark driver of a flow, seen from outside: read its record, make sure it is ours, kill it.

Invariant: nothing is killed that is not the recorded driver of this flow; a process id that was used again by
another program is left alone.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from onceover.errors import Retriable

RECORD_NAME: Final = "driver.json"
# The driver writes its record after it started; clocks of process start have a resolution of 10 ms.
_CLOCK_SLACK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Driver:
    """What the driver of a flow says about itself."""

    pid: int
    jvm_pid: int
    run: str
    generation: int
    started_at_ms: int


def read_driver(home: Path, flow: str) -> Driver | None:
    """Return the record of the flow's driver, None while there is none (or it is being written)."""
    try:
        record: dict[str, Any] = json.loads((home / flow / RECORD_NAME).read_text(encoding="utf-8"))
        return Driver(
            pid=int(record["pid"]),
            jvm_pid=int(record["jvm_pid"]),
            run=str(record["run"]),
            generation=int(record["generation"]),
            started_at_ms=int(record["started_at_ms"]),
        )
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def kill_driver(driver: Driver, flow: str) -> None:
    """Send SIGKILL to the driver's JVM and to its Python process, in this order.

    Raises:
        Retriable: a recorded process has ended, or is not this flow's driver; then nothing is killed.
    """
    for pid in (driver.pid, driver.jvm_pid):
        _check_is_driver(pid, driver, flow)
    # The JVM first: told of its Python's end it would shut down in order, and nothing would be tested.
    for pid in (driver.jvm_pid, driver.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            # The second half of a pair may follow the first by itself, before we get to it.
            continue


def _check_is_driver(pid: int, driver: Driver, flow: str) -> None:
    try:
        process = psutil.Process(pid)
        command = process.cmdline()
        started_s = process.create_time()
    except psutil.NoSuchProcess as error:
        raise Retriable(
            "the replicating Spark driver has ended before it was killed",
            where=f"flow {flow}, process {pid}",
            expected="a running driver",
            seen="no such process",
        ) from error
    if not any(flow in argument for argument in command):
        raise _not_ours(pid, flow, f"the flow's name on the command line of {command[:1]}")
    if started_s > driver.started_at_ms / 1000 + _CLOCK_SLACK_S:
        raise _not_ours(pid, flow, "a process that started after the record was written")


def _not_ours(pid: int, flow: str, seen: str) -> Retriable:
    return Retriable(
        "the recorded process is not the driver of this flow and was left alone",
        where=f"flow {flow}, process {pid}",
        expected=f"the Spark driver that wrote {RECORD_NAME}",
        seen=seen,
    )
