"""Finds what a test session left running."""

from __future__ import annotations

import os

import psutil

SESSION_VARIABLE = "ONCEOVER_TEST_SESSION"
# Python's own helper lives until the interpreter exits, and holds nothing of ours.
_HARMLESS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def leftover_processes(session: str) -> list[str]:
    """Return a line for each live process that this session started, also detached and orphaned ones."""
    own = psutil.Process()
    children = {child.pid for child in own.children(recursive=True)}
    found = []
    for process in psutil.process_iter():
        if process.pid != own.pid and (process.pid in children or carries_mark(process, session)):
            line = _describe(process)
            if line and not any(word in line for word in _HARMLESS):
                found.append(line)
    return found


def own_listening_ports() -> list[int]:
    """Return the ports on which this very process still listens."""
    return sorted(
        connection.laddr.port
        for connection in psutil.Process().net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    )


def carries_mark(process: psutil.Process, session: str) -> bool:
    """Tell whether this session started the process, directly or not."""
    try:
        return process.environ().get(SESSION_VARIABLE) == session
    except (psutil.AccessDenied, psutil.NoSuchProcess, OSError):
        # Somebody else's process, or one that ended while we looked.
        return False


def _describe(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE and process.ppid() != os.getpid():
            return ""
        return f"{process.pid} ({process.status()}): {' '.join(process.cmdline())[:300]}"
    except psutil.NoSuchProcess:
        return ""
