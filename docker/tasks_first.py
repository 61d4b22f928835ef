"""Runs Airflow's scheduler so that a stop of its container ends the tasks that it runs, and waits for them.

An engine sends SIGTERM to one process. Airflow's scheduler (3.3.2, LocalExecutor) tells its tasks nothing of
it and waits for them without end, until all are killed: copies in the middle of their transactions, too. Sent
to the scheduler's whole process group the signal reaches each task's supervisor, which passes it on: a copy
asks its driver to finish and is tried again later, as when a person ends it.

Guarantee: after a SIGTERM or SIGINT it ends behind the last process that it has started, directly or not, and
kills what still runs after the given time. A scheduler that ends by itself takes its tasks with it at once:
the next one tries them again, and nobody would watch them until then.

Usage: tasks_first.py SECONDS COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import psutil

# So that drivers, which outlive their task by a moment, come to us and not to the container's first process.
_PR_SET_CHILD_SUBREAPER: Final = 36
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
# Between two looks at what was killed.
_PAUSE_S: Final = 0.1


def main(patience_s: float, command: Sequence[str]) -> int:
    """Run the command; return its exit code, or 128 and the number of the signal that ended it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_ENDS, signal.SIGCHLD))
    scheduler = os.posix_spawnp(command[0], list(command), os.environ, setpgroup=0, setsigmask=())
    status: int | None = None
    deadline_s: float | None = None
    while True:
        ended, some_left = _reap()
        status = ended.get(scheduler, status)
        if not some_left:
            return _exit_code(status)
        if status is not None and deadline_s is None:
            deadline_s = time.monotonic()
        heard = _next_signal(deadline_s)
        if heard in _ENDS and deadline_s is None:
            deadline_s = time.monotonic() + patience_s
            with suppress(ProcessLookupError):
                os.killpg(scheduler, signal.SIGTERM)
        elif deadline_s is not None and time.monotonic() >= deadline_s:
            _kill_all()


def _reap() -> tuple[dict[int, int], bool]:
    """Return how children have ended since the last time, and whether there are others."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def _next_signal(deadline_s: float | None) -> int | None:
    """Wait for the end of a child or an order to end; return which, None at the deadline."""
    wanted = (*_ENDS, signal.SIGCHLD)
    if deadline_s is None:
        return signal.sigwaitinfo(wanted).si_signo
    heard = signal.sigtimedwait(wanted, max(deadline_s - time.monotonic(), _PAUSE_S))
    return None if heard is None else heard.si_signo


def _kill_all() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _exit_code(status: int | None) -> int:
    code = os.waitstatus_to_exitcode(status or 0)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
