"""CPU time of a process tree whose members come and go: the accounting, without I/O."""

from __future__ import annotations

from typing import NamedTuple


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


def tree_cpu_s(seen: dict[ProcessId, ProcessCpu]) -> float:
    """Return the CPU seconds of every process ever seen, and of those that lived between two looks.

    A child that ended appears twice: in its own last figure, and in what its parent reaped. The parent's
    reaped time therefore counts only as far as it exceeds what the known ended children account for; that
    excess is their last moments and the children nobody saw. Orphans keep their own last figure.
    """
    known_ended: dict[int, float] = {}
    for process in seen.values():
        if not process.alive:
            ended_s = known_ended.get(process.parent_pid, 0.0)
            known_ended[process.parent_pid] = ended_s + process.own_s + process.reaped_s
    return sum(
        process.own_s + max(0.0, process.reaped_s - known_ended.get(identity.pid, 0.0))
        for identity, process in seen.items()
    )
