"""Lead a flow and run its lanes in one process that may be killed at a named step.

Run as ``python flow_process.py FLOW.yaml --seconds 20 --kill-at COMMIT --kill-count 3``. Ends with the exit
code of DESIGN 14 when everything that is on the source is copied, or when the time is over.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

from onceover.app import open_clusters
from onceover.engine import steps
from onceover.engine.copyloop import Until
from onceover.engine.planner import Planner
from onceover.errors import OnceoverError, Retriable
from onceover.logs import configure
from tests.support.flows import InlineFlow


def kill_at(name: str, count: int) -> None:
    """Kill this very process with -9 the ``count``-th time that step ``name`` is reached."""
    lock = threading.Lock()
    left = [count]

    def listen(step: steps.Step) -> None:
        with lock:
            if step.name != name:
                return
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    steps.listen(listen)


def main() -> int:
    """Copy until caught up or killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("flow", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kill-at", default="")
    parser.add_argument("--kill-count", type=int, default=1)
    args = parser.parse_args()
    configure()
    if args.kill_at:
        kill_at(args.kill_at, args.kill_count)
    try:
        run(InlineFlow(args.flow), args.seconds)
    except OnceoverError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    return 0


def run(flow: InlineFlow, seconds: float) -> None:
    """Rounds of lanes, as Spark would run them, until the source's end of the first round is reached."""
    over_s = time.monotonic() + seconds
    with flow.running() as (lead, layout):
        planner = Planner(flow.name, layout.run, lambda: 1.0)
        planner.open(*open_clusters(flow.watch.flow))
        try:
            ends = planner.ends()
            token = 0
            while not planner.reached(ends) and time.monotonic() < over_s:
                token += 1
                flow.lanes(layout, Until(min(over_s, time.monotonic() + 10.0), ends), token=token)
                try:
                    lead.tick()
                except Retriable:
                    continue
        finally:
            planner.close()
        lead.end()


if __name__ == "__main__":
    sys.exit(main())
