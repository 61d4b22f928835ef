"""Run ``onceover`` in a process that kills itself with -9 at a named step of moving a connector's offsets.

Run as ``python connect_process.py STEP COUNT connectors apply ...``. Ends with the command's exit code when
the step is not reached.
"""

from __future__ import annotations

import os
import signal
import sys

from onceover.cli import main as command_line
from onceover.connectors import steps


def kill_at(name: str, count: int) -> None:
    """Send this very process SIGKILL the ``count``-th time that step ``name`` is reached."""
    wanted = steps.StepName[name]
    left = [count]

    def listen(step: steps.StepName) -> None:
        left[0] -= step is wanted
        if step is wanted and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.listen(listen)


if __name__ == "__main__":
    kill_at(sys.argv[1], int(sys.argv[2]))
    sys.exit(command_line.main(sys.argv[3:]))
