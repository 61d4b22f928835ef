"""The Python driver among the processes of a job that this one has started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil


def ask_to_end(launched: int, application: Path) -> bool:
    """Ask the driver to finish its open transactions and end; the JVM is left for it to close.

    Args:
        launched: process id of spark-submit, which replaces itself with the JVM, whose child the driver is.
        application: of the job.

    Returns:
        Whether there is one. What it was asked before it listens ends it: it leads nothing yet.
    """
    found = False
    for child in children_of(launched):
        # A child that ended meanwhile has no command line; the driver may be the next one.
        with suppress(psutil.NoSuchProcess):
            if str(application) in child.cmdline():
                child.terminate()
                found = True
    return found


def children_of(pid: int, *, recursive: bool = False) -> list[psutil.Process]:
    """Return the processes that one has started and that live; none where it is gone itself."""
    try:
        return list(psutil.Process(pid).children(recursive=recursive))
    except psutil.NoSuchProcess:
        return []
