"""Foreign code under a deadline: a call that does not come back is interrupted, where Python can.

Invariant: outside ``within`` nothing is interrupted, and who used the process's alarm before has it back.

An alarm is the only thing that also ends a call that waits: for a socket, a lock, a process. Python hears it
in its main thread only, which is where a Spark worker runs its task, and between two steps of the
interpreter: not while a C extension computes without looking up.

An import that is cut off leaves a module half-made, and every later import of it fails for as long as the
process lives. So it is waited for, a while; and a process in which one was cut off in spite of that is ended
when it shows.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

from onceover.errors import Fatal
from onceover.handlers.codes import HandlerCode

T = TypeVar("T")

# As long as the target lets a transaction stay open: what a call gives later cannot be committed any more.
LONGEST_S: Final = 15.0
# For code that swallows the first one.
_AGAIN_S: Final = 5.0
# Imports take long where the network or a loaded machine serves the files; one that hangs is cut off, too.
_IMPORT_S: Final = 60.0
# 0 would switch an alarm off that was due meanwhile.
_AT_ONCE_S: Final = 0.001


class TookTooLong(BaseException):
    """Raised inside the foreign code. No ``Exception``: that is what foreign code catches."""


# Whether an import was cut off in this process.
_cut_off: Final[list[bool]] = []


def check_process(error: BaseException) -> None:
    """Look at what foreign code raised: it may not be its own fault.

    Raises:
        Fatal: an import fails in a process in which one was cut off. It has to be replaced.
    """
    if _cut_off and isinstance(error, ImportError):
        raise Fatal(
            "the handler cannot import in this process any more: an import took too long and was interrupted",
            code=HandlerCode.IMPORT_INTERRUPTED,
            where=f"process {os.getpid()}",
            resolve="a fresh process begins where this one was; see to what its imports wait for",
        ) from error


def _is_importing(frame: FrameType | None) -> bool:
    """Tell whether a frame runs below an import that ``within`` has begun."""
    while frame is not None and frame.f_code is not within.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib."):
            return True
        frame = frame.f_back
    return False


class _Bell:
    """What rings when the time is over, and rings again until somebody listens."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.began_s = time.monotonic()
        self.armed = True
        self.has_rung = False

    def ring(self, _number: int, frame: FrameType | None) -> None:
        if not self.armed:
            return
        if _is_importing(frame):
            if time.monotonic() - self.began_s < self._limit_s + _IMPORT_S:
                return
            _cut_off.append(True)
        self.has_rung = True
        raise TookTooLong


def within(limit_s: float, work: Callable[[], T]) -> T:
    """Return what ``work`` does; in any other thread than the main one, however long it takes.

    Raises:
        TookTooLong: it was interrupted after ``limit_s``. Also where it went on in spite of that: what it
            returns or raises then is made of an interrupted call, and is worth nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    bell = _Bell(limit_s)
    before = signal.signal(signal.SIGALRM, bell.ring)
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    try:
        try:
            result = work()
        finally:
            bell.armed = False
    except (KeyboardInterrupt, TookTooLong):
        raise
    except BaseException as error:
        if bell.has_rung:
            raise TookTooLong from error
        raise
    else:
        if bell.has_rung:
            raise TookTooLong
        return result
    finally:
        # Twice: the alarm may ring within the first one, before it is disarmed.
        bell.armed = False
        rest_s = max(_AT_ONCE_S, left_s - (time.monotonic() - bell.began_s)) if left_s else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        # None: set by somebody in C, which Python cannot set again.
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, rest_s, interval_s)
