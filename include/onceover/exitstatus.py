"""What a process says by the number that it ends with: ours, and spark-submit's. Pure.

One meaning each, for the command line, the driver of a run, and what ``status`` says somebody has to do
(docs/commands.md): errors have theirs by their kind (``errors``), plans by what they refuse (``planning``).

How spark-submit reports a killed job in client mode (PySpark 4.2.0, tried): Python driver killed
with SIGKILL 137, with SIGTERM 143; JVM killed with SIGKILL -9 (a signal, as subprocess tells it), with
SIGTERM 143; a job that never came up (bad option, no Java) 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OK: Final = 0
# What was promised does not hold, or Onceover itself has failed.
VIOLATED: Final = 1
# Arguments, a file or an environment to be corrected; nothing was changed.
USAGE: Final = 2
# A person has to decide.
PERSON: Final = 3
# A newer one has taken over.
FENCED: Final = 4
# It may pass: running it again may be all that it takes.
TEMPORARY: Final = 5
# As a shell says of a process that SIGINT, or SIGPIPE, has ended.
INTERRUPTED: Final = 130
UNREAD: Final = 141

# Wrong data first, then what waits for a person, then what is to be corrected, then what somebody else goes
# on with, then what may pass.
_WORST_FIRST: Final = (VIOLATED, PERSON, USAGE, FENCED, TEMPORARY, OK)

# A shell, and the JVM for its child, reports "ended by signal N" as 128 + N.
SIGNAL_BASE: Final = 128


def severity(code: int) -> int:
    """Return a key by which exit codes are sorted, the worst first."""
    return _WORST_FIRST.index(code)


def worst(codes: Iterable[int]) -> int:
    """Return the exit code that counts, of several; OK of none."""
    return min(codes, key=severity, default=OK)


def killed_by(returncode: int) -> int | None:
    """Return the signal that ended spark-submit, its JVM or the Python driver; None when none did."""
    if returncode < 0:
        return -returncode
    return returncode - SIGNAL_BASE if returncode > SIGNAL_BASE else None
