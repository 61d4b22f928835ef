"""What the end of spark-submit says when the driver has not said anything itself. Pure.

How spark-submit reports a killed job in client mode (PySpark 4.2.0, tried): Python driver killed
with SIGKILL 137, with SIGTERM 143; JVM killed with SIGKILL -9 (a signal, as subprocess tells it), with
SIGTERM 143; a job that never came up (bad option, no Java) 1.
"""

from __future__ import annotations

from typing import Final

# A shell, and the JVM for its child, reports "ended by signal N" as 128 + N.
SIGNAL_BASE: Final = 128


def killed_by(returncode: int) -> int | None:
    """Return the signal that ended spark-submit, its JVM or the Python driver; None when none did."""
    if returncode < 0:
        return -returncode
    return returncode - SIGNAL_BASE if returncode > SIGNAL_BASE else None
