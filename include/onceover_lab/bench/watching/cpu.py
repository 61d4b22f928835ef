"""CPU time of a process tree whose members come and go: the accounting, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

# In the command lines of Spark's daemon of Python workers and of what is forked from it: they bear the same.
_LANES: Final = "pyspark.worker"
_JAVA: Final = "java"


class Part(Enum):
    """What a process of a copying system does there."""

    JVM = "jvm"
    LANES = "lanes"
    DRIVER = "driver"
    """Whatever else: Onceover's command and Spark's Python driver."""


def part_of(command: list[str]) -> Part:
    """Tell a process's part by its command line."""
    if command and command[0].rsplit("/", 1)[-1] == _JAVA:
        return Part.JVM
    return Part.LANES if any(_LANES in argument for argument in command) else Part.DRIVER


class ProcessId(NamedTuple):
    """A process for ever: pids are reused, pid and start time are not."""

    pid: int
    created_s: float


class ProcessCpu(NamedTuple):
    """Last seen figures of one process; ``reaped_s`` is the CPU time of children it has waited for."""

    parent_pid: int
    own_s: float
    reaped_s: float
    alive: bool


def cpu_by_process(seen: Mapping[ProcessId, ProcessCpu]) -> dict[ProcessId, float]:
    """Return the CPU seconds of every process ever seen, with those that it started between two looks.

    A child that ended appears twice: in its own last figure, and in what its parent reaped. The parent's
    reaped time therefore counts only as far as it exceeds what the known ended children account for; that
    excess is their last moments and the children nobody saw. Orphans keep their own last figure.
    """
    known_ended: dict[int, float] = {}
    for process in seen.values():
        if not process.alive:
            ended_s = known_ended.get(process.parent_pid, 0.0)
            known_ended[process.parent_pid] = ended_s + process.own_s + process.reaped_s
    return {
        identity: process.own_s + max(0.0, process.reaped_s - known_ended.get(identity.pid, 0.0))
        for identity, process in seen.items()
    }
