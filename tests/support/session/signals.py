"""Signals of processes that tests start."""

from __future__ import annotations

import signal


def default_signals() -> None:
    """Undo what the process that runs the tests ignores: in the background of a shell it is Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
