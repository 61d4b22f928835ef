"""Run ``onceover`` in a process that kills itself with -9 at a named step.

Arguments are ``STEP COUNT topics apply FLOW``. Ends with the code of the command that does not reach it.
"""

from __future__ import annotations

import signal
import sys

from onceover.cli import main as command_line
from onceover.lead import leader
from tests.support.flows.flow_process import signal_at


def main() -> int:
    """Run it until done or killed."""
    # What it leaves open is waited for: that it ends is the broker's part, and not how long that takes.
    vars(leader)["LEADER_TIMEOUT_MS"] = 3_000
    signal_at(sys.argv[1], int(sys.argv[2]), signal.SIGKILL)
    return command_line.main(sys.argv[3:])
