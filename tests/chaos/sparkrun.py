"""A flow as a user runs it, with Spark below: its processes, killed and frozen one by one or all at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.commands.replicate import Replicate


class SparkRun:
    """One ``onceover replicate``; used like a ``FlowProcess``, and is its own ``child``: the whole family."""

    # It stands still when somebody freezes it, and not by itself.
    paused = False

    def __init__(self, flow: Path, home: Path) -> None:
        self._child = Replicate(flow, home, "--until", "forever", "--restarts", "0").child

    @property
    def child(self) -> SparkRun:
        """The run."""
        return self

    @property
    def alive(self) -> bool:
        """True while the command runs."""
        return self._child.alive

    def pause(self) -> None:
        """Freeze every process of it."""
        self._each(psutil.Process.suspend)

    def resume(self) -> None:
        """Let every process of it go on."""
        self._each(psutil.Process.resume)

    def kill(self) -> None:
        """Kill every process of it with -9, at once."""
        family = self._family()
        self._child.kill()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; return the exit code, negative for a signal."""
        return self._child.wait(timeout_s)

    def tail(self, lines: int = 20) -> str:
        """Return the end of what it printed."""
        return self._child.tail(lines)

    def jvms(self) -> list[psutil.Process]:
        """Return Spark's JVM, once there is one."""
        return self._find(lambda process: process.name() == "java")

    def drivers(self) -> list[psutil.Process]:
        """Return the Python driver, once there is one."""
        return self._find(lambda process: _called(process, "replicate.py") and not _called(process, "java"))

    def workers(self) -> list[psutil.Process]:
        """Return the Python workers of now."""

        # Their parent, which makes them, has the same command line.
        def works(process: psutil.Process) -> bool:
            parent = process.parent()
            return _called(process, "pyspark.worker") and parent is not None and parent.name() != "java"

        return self._find(works)

    def _family(self) -> list[psutil.Process]:
        # Once it has ended, its id may be anybody's.
        if self.alive:
            with suppress(psutil.NoSuchProcess):
                return list(psutil.Process(self._child.pid).children(recursive=True))
        return []

    def _find(self, wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
        found = []
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                if wanted(process):
                    found.append(process)
        return found

    def _each(self, action: Callable[[psutil.Process], None]) -> None:
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                action(process)


def _called(process: psutil.Process, part: str) -> bool:
    return any(part in argument for argument in process.cmdline())
