"""Run ``onceover`` in a process that sends itself a signal at a named step of moving a connector's offsets.

Run as ``python connect_process.py SIGNAL STEP COUNT connectors apply ...``. Ends with the command's exit code
when the step is not reached, or the signal lets it.
"""

from __future__ import annotations

import signal
import sys

from onceover.cli import entry
from onceover.connectors import steps
from tests.support.session.ownsignal import signal_here


def signal_at(number: signal.Signals, name: str, count: int) -> None:
    """Send this very process a signal the ``count``-th time that step ``name`` is reached."""
    wanted = steps.StepName[name]
    left = [count]

    def listen(step: steps.StepName) -> None:
        left[0] -= step is wanted
        if step is wanted and left[0] == 0:
            signal_here(number)

    steps.listen(listen)


if __name__ == "__main__":
    signal_at(signal.Signals[sys.argv[1]], sys.argv[2], int(sys.argv[3]))
    sys.argv[1:] = sys.argv[4:]
    sys.exit(entry.run())
