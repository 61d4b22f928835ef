"""How a worker that Spark forks hears that it is to end."""

from __future__ import annotations

import subprocess
import sys

# Spark's daemon answers SIGTERM with a SystemExit, and what it forks inherits that.
_DAEMON = """
import os, signal, sys, time
from onceover.spark import forking

def manager():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if os.fork() == 0:
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException as error:
            print(type(error).__name__, flush=True)
        os._exit(0)
    os.wait()

forking.manager = manager
forking.fork_workers("json")
"""


def test_a_worker_that_is_told_to_end_does_not_look_like_a_library_that_exits() -> None:
    """A handler's own ``sys.exit`` is its record's fault: a signal in the middle of its call is not."""
    found = subprocess.run([sys.executable, "-c", _DAEMON], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["KeyboardInterrupt"]
