"""Runs Airflow's scheduler so that a stop of its container ends the tasks that it runs, and waits for them.

An engine sends SIGTERM to one process. Airflow's scheduler (3.3.2, LocalExecutor) tells its tasks nothing of
it and waits for them without end, until all are killed: copies in the middle of their transactions, too. Sent
to the scheduler's whole process group the signal reaches each task's supervisor, which passes it on: a copy
asks its driver to finish and is tried again later, as when a person ends it.

Two more of its habits are in the way of copies that have no end, and Airflow's API server is asked about
both:

- Where its loop ends, as by an error of its database, it waits for its tasks, too: it looks alive, and
  schedules nothing.
- What an earlier scheduler ran that was killed, it looks for at its start, and only if that was silent for
  half a minute by then. An engine has started the next one long before.

Guarantee: after a SIGTERM or SIGINT, and where the API server has said all through the time of SILENCE that
the database is well and the scheduler is not, it ends behind the last process that it has started, directly
or not, and kills what still runs after the time of PATIENCE. A scheduler that ends by itself takes its tasks
with it at once: the next one tries them again, and nobody would watch them until then. While database or API
server are away nothing is concluded: copies need neither.

Usage: tasks_first.py PATIENCE SILENCE HEALTH COMMAND [ARGUMENT ...]; seconds, and where Airflow says how it
is.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.request import urlopen

import psutil

# So that drivers, which outlive their task by a moment, come to us and not to the container's first process.
_PR_SET_CHILD_SUBREAPER: Final = 36
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
# Between two looks at what was killed.
_PAUSE_S: Final = 0.1
# Between two looks at the scheduler's health, at most; and how long an answer may take.
_LOOK_S: Final = 30.0
_ANSWER_S: Final = 10.0
_WELL: Final = "healthy"
# Airflow takes a scheduler for alive that was heard of within 30 s.
_FORGOTTEN_S: Final = 40.0
_SHORT_LOOK_S: Final = 2.0


def main(patience_s: float, silence_s: float, health: str, command: Sequence[str]) -> int:
    """Run the command; return its exit code, or 128 and the number of the signal that ended it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_ENDS, signal.SIGCHLD))
    if not _await_forgotten(health):
        return 0
    scheduler = os.posix_spawnp(command[0], list(command), os.environ, setpgroup=0, setsigmask=())
    threading.Thread(target=_watch, args=(health, silence_s), daemon=True).start()
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


def _await_forgotten(health: str) -> bool:
    """Wait until Airflow takes no earlier scheduler for alive; return False when told to end instead."""
    deadline_s = time.monotonic() + _FORGOTTEN_S
    while _health(health) != "silent" and time.monotonic() < deadline_s:
        if signal.sigtimedwait(_ENDS, _SHORT_LOOK_S) is not None:
            return False
    return True


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


def _watch(health: str, silence_s: float) -> None:
    """Have this process told to end, as an engine does, once the scheduler has been silent for so long."""
    heard_s = time.monotonic()
    while time.monotonic() - heard_s < silence_s:
        time.sleep(min(_LOOK_S, silence_s / 4))
        if _health(health) != "silent":
            heard_s = time.monotonic()
    sys.stderr.write(f"the scheduler has scheduled nothing for {silence_s:g} s: it is ended\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGTERM)


def _health(address: str) -> str:
    """Return ``alive`` or ``silent`` for the scheduler; ``unknown`` where server or database are away."""
    try:
        with urlopen(address, timeout=_ANSWER_S) as answer:  # noqa: S310 - of the container's own command
            said = json.load(answer)
        if said["metadatabase"]["status"] != _WELL:
            return "unknown"
        return "alive" if said["scheduler"]["status"] == _WELL else "silent"
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


def _kill_all() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _exit_code(status: int | None) -> int:
    code = os.waitstatus_to_exitcode(status or 0)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
