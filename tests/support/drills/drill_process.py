"""Run a drill in a process that kills, pauses or holds itself before a named step, or right behind it.

Arguments are ``FLOW.yaml --step copy --when before --signal KILL``; without a step it
goes to its end and returns the command's exit code.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from onceover.cli import main as command_line
from onceover.drills import journal
from onceover.drills.journal import DrillJournal
from onceover.drills.leaving import commits
from onceover.drills.orphans import exporttopic
from onceover.drills.orphans.exporttopic import OrphanWriter
from onceover.drills.orphans.rebuild import TopicRebuild
from onceover.drills.rehearsing.steps import RehearsalSteps
from onceover.drills.switching.steps import PlannedSteps
from onceover.kafka.admin.acls import AclAdmin
from onceover.kafka.admin.topics import Admin
from onceover.lead.leader import Leader
from tests.support.session.wait import wait_until

_HELD_S = 120.0


# Places inside of steps, where what was checked a moment ago is done.
PLACES: Final[dict[str, tuple[Any, str]]] = {
    "begin": (DrillJournal, "begin"),
    "create-acls": (AclAdmin, "create"),
    "enrol": (Leader, "enrol"),
    "commit-orphans": (OrphanWriter, "commit"),
    "rename": (os, "replace"),
    "delete-topics": (Admin, "delete_topics"),
    "delete-topic": (Admin, "delete_topic"),
    "create-topic": (TopicRebuild, "create"),
}


def meet_at(kind: Any, step: str, when: str, meet: Callable[[], None]) -> None:
    """Have ``meet`` called at a step, or at one of ``PLACES``."""
    kind, step = PLACES.get(step, (kind, step))
    real = getattr(kind, step)

    def act(*arguments: object) -> Any:
        if when == "before":
            meet()
        found = real(*arguments)
        if when == "behind":
            meet()
        return found

    setattr(kind, step, act)


def meet_once(kind: type, step: str, meet: Callable[[], None]) -> None:
    """Have ``meet`` called before a step when it is done for the first time."""
    left = [meet]
    meet_at(kind, step, "before", lambda: left.pop()() if left else None)


def main() -> int:
    """Run it until done, killed or paused."""
    parser = argparse.ArgumentParser()
    parser.add_argument("flow", type=Path)
    parser.add_argument("--mode", choices=("rehearsal", "planned", "orphans"), default="rehearsal")
    parser.add_argument("--step", default="")
    parser.add_argument("--when", choices=("before", "behind"), default="before")
    parser.add_argument("--signal", choices=("KILL", "STOP", "INT"), default="KILL")
    parser.add_argument("--again", help="a later step, before which it happens once more")
    parser.add_argument("--count", type=int, default=1, help="at which occurrence of the step")
    parser.add_argument("--silent", type=float, help="seconds after which another drill is taken for dead")
    parser.add_argument("--hold", type=Path, help="wait until this file is there, alive")
    args = parser.parse_args()

    left = [None] * (args.count - 1)

    def meet() -> None:
        if left:
            left.pop()
        elif args.hold is None:
            os.kill(os.getpid(), signal.Signals[f"SIG{args.signal}"])
        else:
            wait_until(args.hold.exists, _HELD_S, "it is let go")

    # Nobody here commits without being a member; who waits for a sign of life waits for nothing else.
    patience = [(commits, "COMMITS_S", 0.5), (journal, "_BEAT_S", 0.3)]
    if args.silent is not None:
        patience.append((journal, "SILENT_S", args.silent))
    for module, name, seconds in patience:
        setattr(module, name, seconds)
    kind: type = RehearsalSteps if args.mode == "rehearsal" else PlannedSteps
    if args.step:
        meet_at(kind, args.step, args.when, meet)
    if args.again:
        meet_once(kind, args.again, meet)
    if args.mode == "orphans":
        # A transaction for every few records.
        for limit in ("_COMMIT_BYTES", "OWN_BATCH_BYTES"):
            setattr(exporttopic, limit, 2_000)
        return command_line.main(
            ["drill", "orphans", "apply", str(args.flow), "--rebuild", "--approve", "--json"]
        )
    approved = ["--approve"] if args.mode == "planned" else []
    return command_line.main(["drill", "run", str(args.flow), "--mode", args.mode, *approved, "--json"])
