"""Lead a flow and run its lanes in one process that may be killed or paused at a named step.

Run as ``python flow_process.py FLOW.yaml --seconds 20 --at COMMIT --signal KILL --count 3``. Ends with the
exit code of the driver when everything that is on the source is copied, when it was asked to stop, or when
the time is over.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from onceover.copy.loop import Until
from onceover.errors import OnceoverError, Retriable
from onceover.lead import leader
from onceover.lead.ends import EndCheck
from onceover.lead.supervisor import Supervisor
from onceover.logs import configure
from onceover.model import TopicPartition
from onceover.state import steps
from onceover.state.records.layout import Layout
from onceover.wiring.flows import open_clusters
from tests.support.flows.flows import InlineFlow
from tests.support.session.ownsignal import signal_here

_TICK_S = 0.2
# Longer than a lane takes to notice that it is fenced.
_LANES_END_S = 20.0


def signal_at(name: str, count: int, number: signal.Signals) -> None:
    """Send this very process ``number`` the ``count``-th time that step ``name`` is reached."""
    lock = threading.Lock()
    left = [count]
    wanted = steps.Step[name]

    def listen(step: steps.Step) -> None:
        with lock:
            if step is not wanted:
                return
            left[0] -= 1
            if left[0] == 0:
                signal_here(number)

    steps.listen(listen)


def follow_clock(path: Path) -> None:
    """Let the wall clock be wrong by as many seconds as ``path`` says now; the monotonic one stays right."""
    right_ns = time.time_ns

    def wrong_ns() -> int:
        return right_ns() + int(float(path.read_text() or 0) * 1e9)

    time.time_ns = wrong_ns
    time.time = lambda: wrong_ns() / 1e9


class Lanes(threading.Thread):
    """Rounds of lanes, as Spark would run them, beside the driver."""

    def __init__(self, flow: InlineFlow, layout: Layout, over_s: float, *, forever: bool) -> None:
        super().__init__(name="lanes", daemon=True)
        self._flow = flow
        self._layout = layout
        self._over_s = over_s
        self._forever = forever
        self.problem: BaseException | None = None

    def run(self) -> None:
        planner = EndCheck(self._flow.name, self._layout.run)
        planner.open(*open_clusters(self._flow.watch.flow))
        try:
            self._rounds(planner)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self.problem = error
        finally:
            planner.close()

    def _rounds(self, planner: EndCheck) -> None:
        ends: dict[TopicPartition, int] | None = None if self._forever else planner.ends()
        token = 0
        while time.monotonic() < self._over_s and not planner.stop_requested():
            if ends is not None and planner.reached(ends):
                return
            token += 1
            until = Until(min(self._over_s, time.monotonic() + 10.0), ends)
            self._flow.lanes(self._layout, until, token=token)


def lead(lead: Supervisor, lanes: Lanes) -> None:
    """Be the driver until the lanes have ended."""
    lanes.start()
    try:
        while lanes.is_alive():
            with suppress(Retriable):
                lead.tick()
            lanes.join(_TICK_S)
    finally:
        lanes.join(_LANES_END_S)
    if lanes.problem is not None:
        raise lanes.problem
    lead.end()


def main() -> int:
    """Copy until done, stopped, killed or paused."""
    parser = argparse.ArgumentParser()
    parser.add_argument("flow", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--at", default="")
    parser.add_argument("--signal", choices=("KILL", "STOP"), default="KILL")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--forever", action="store_true")
    parser.add_argument("--clock", type=Path)
    args = parser.parse_args()
    configure()
    # Spark's workers have it loaded as well: its 30 MB are not the lanes'.
    importlib.import_module("pyarrow")
    if args.at:
        signal_at(args.at, args.count, signal.Signals[f"SIG{args.signal}"])
    if args.signal == "STOP":
        # Who has taken over meanwhile is there by the time that it wakes: nobody has to be given time for it.
        leader._RECOVERY_PAUSE_S = (0.05, 0.2)
    if args.clock is not None:
        follow_clock(args.clock)
    flow = InlineFlow(args.flow)
    try:
        with flow.running() as (supervisor, layout):
            over_s = time.monotonic() + args.seconds
            lead(supervisor, Lanes(flow, layout, over_s, forever=args.forever))
    except OnceoverError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
