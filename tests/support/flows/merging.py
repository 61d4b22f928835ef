"""Merging a flow's offset map beside it, in this process or in one that kills itself.

Run as ``python merging.py FLOW.yaml --at MERGE_SENT``. Merges everything, in small records and transactions.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onceover.config.flow.load import load_flow
from onceover.positions.merge import MapMerger, MergeRules
from onceover.process.children import ChildProcess
from onceover.state import names, steps
from onceover.state.log import StateLog
from onceover.state.records.enrolment import read_enrolments
from onceover.state.records.layout import Layout, check_mine
from onceover.wiring.flows import open_clusters
from onceover.wiring.watch import FlowWatch

SMALL = MergeRules(max_segments=9, min_age_ms=-60_000, transaction_bytes=1)


@contextmanager
def merger(path: Path, *, home: Path | None = None, rules: MergeRules = SMALL) -> Iterator[MapMerger]:
    """A merger of the generation that the flow has now, as its driver would have it."""
    flow = load_flow(path)
    source, target = open_clusters(flow)
    state = StateLog(target, names.state_topic(flow.flow), names.STATE_LEADER)
    mine = Layout.from_json(state.catch_up()[names.LAYOUT])

    def check() -> None:
        check_mine(Layout.from_json(state.catch_up()[names.LAYOUT]), mine.generation, mine.run)

    made = MapMerger(target, flow.flow, home, check, lambda: read_enrolments(state.values), rules)
    try:
        yield made
    finally:
        made.close()
        state.close()
        source.close()
        target.close()


def merge(path: Path, rules: MergeRules = SMALL) -> int:
    """Do one pass; return how many records it did away with."""
    with merger(path, rules=rules) as made:
        return sum(made.steps())


def merge_killed_at(path: Path, log: Path, step: steps.Step) -> None:
    """Merge in a process that kills itself with -9 at the second ``step``; wait for its end."""
    roots = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "include")]
    child = ChildProcess.start(
        [sys.executable, __file__, str(path), "--at", step.name],
        name="merge",
        log_path=log,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
    )
    try:
        code = child.wait(60)
        if code != -signal.SIGKILL:
            raise AssertionError(f"it ended with {code} instead of being killed: {child.tail()}")
    finally:
        child.kill()


def main() -> int:
    """Merge until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("flow", type=Path)
    parser.add_argument("--at", required=True)
    args = parser.parse_args()
    left = [2]

    def listen(step: steps.Step) -> None:
        if step.name == args.at:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    steps.listen(listen)
    merge(FlowWatch(args.flow).flow.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
