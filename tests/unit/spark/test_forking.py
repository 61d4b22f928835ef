"""What the workers that Spark forks inherit, and what a handler forks from them."""

from __future__ import annotations

import subprocess
import sys

# Spark's own worker around a handler that forks; the daemon that it comes from answers SIGTERM itself.
_DAEMON = """
import os, signal, socket, sys
import pyspark.worker
from pyspark.daemon import worker
from onceover.spark import forking

def is_default():
    return signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

def handler(*_):
    print("worker", is_default(), flush=True)
    if os.fork() == 0:
        print("child", is_default(), flush=True)
        os._exit(0)
    os.wait()

def manager():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if os.fork() == 0:
        pyspark.worker.main = handler
        os._exit(worker(socket.socket(), True))
    os.wait()

forking.manager = manager
forking.fork_workers("json")
"""


def test_sigterm_ends_a_worker_and_what_its_handler_forks() -> None:
    """Whatever they compute: no call takes it for an exception of its own, or holds it up."""
    found = subprocess.run([sys.executable, "-c", _DAEMON], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["worker True", "child True"]
