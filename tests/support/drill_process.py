"""Run a drill in a process that kills, pauses or holds itself before a named step, or right behind it.

Run as ``python drill_process.py FLOW.yaml --step copy --when before --signal KILL``; without a step it
goes to its end and returns the command's exit code.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from onceover.backoff import Deadline
from onceover.cli import main as command_line
from onceover.drills.rehearsing.steps import RehearsalSteps
from onceover.drills.switching.steps import PlannedSteps
from tests.support.wait import wait_until

_HELD_S = 120.0


Steps = type[RehearsalSteps] | type[PlannedSteps]


def meet_at(kind: Steps, step: str, when: str, meet: Callable[[], None]) -> None:
    """Have ``meet`` called at a step."""
    real = getattr(kind, step)

    def act(steps: object, deadline: Deadline) -> Mapping[str, Any]:
        if when == "before":
            meet()
        found: Mapping[str, Any] = real(steps, deadline)
        if when == "behind":
            meet()
        return found

    setattr(kind, step, act)


def meet_once(kind: Steps, step: str, meet: Callable[[], None]) -> None:
    """Have ``meet`` called before a step when it is done for the first time."""
    left = [meet]
    meet_at(kind, step, "before", lambda: left.pop()() if left else None)


def main() -> int:
    """Run it until done, killed or paused."""
    parser = argparse.ArgumentParser()
    parser.add_argument("flow", type=Path)
    parser.add_argument("--mode", choices=("rehearsal", "planned"), default="rehearsal")
    parser.add_argument("--step", default="")
    parser.add_argument("--when", choices=("before", "behind"), default="before")
    parser.add_argument("--signal", choices=("KILL", "STOP", "INT"), default="KILL")
    parser.add_argument("--again", help="a later step, before which it happens once more")
    parser.add_argument("--hold", type=Path, help="wait until this file is there, alive")
    args = parser.parse_args()

    def meet() -> None:
        if args.hold is None:
            os.kill(os.getpid(), signal.Signals[f"SIG{args.signal}"])
        else:
            wait_until(args.hold.exists, _HELD_S, "it is let go")

    kind: Steps = RehearsalSteps if args.mode == "rehearsal" else PlannedSteps
    if args.step:
        meet_at(kind, args.step, args.when, meet)
    if args.again:
        meet_once(kind, args.again, meet)
    approved = ["--approve"] if args.mode == "planned" else []
    return command_line.main(["drill", "run", str(args.flow), "--mode", args.mode, *approved, "--json"])


if __name__ == "__main__":
    sys.exit(main())
