"""Run ``onceover`` in a process that kills itself with -9 at a named step.

Run as ``python topics_process.py STEP COUNT topics apply FLOW``. Ends with the command's exit code when the
step is not reached.
"""

from __future__ import annotations

import signal
import sys

from onceover.cli import main as command_line
from tests.support.flow_process import signal_at

if __name__ == "__main__":
    signal_at(sys.argv[1], int(sys.argv[2]), signal.SIGKILL)
    sys.exit(command_line.main(sys.argv[3:]))
