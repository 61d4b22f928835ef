"""Foreign code under a deadline: a call that does not come back is interrupted, where Python can.

Invariant: outside ``within`` nothing is interrupted, and who used the process's alarm before has it back.

An alarm is the only thing that also ends a call that waits: for a socket, a lock, a process. Python hears it
in its main thread only, which is where a Spark worker runs its task, and between two steps of the
interpreter: not while a C extension computes without looking up.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

T = TypeVar("T")

# For code that swallows the first one.
_AGAIN_S: Final = 5.0
# 0 would switch an alarm off that was due meanwhile.
_AT_ONCE_S: Final = 0.001


class TookTooLong(BaseException):
    """Raised inside the foreign code. No ``Exception``: that is what foreign code catches."""


def within(limit_s: float, work: Callable[[], T]) -> T:
    """Return what ``work`` does; in any other thread than the main one, however long it takes.

    Raises:
        TookTooLong: it was interrupted after ``limit_s``. Also where it went on in spite of that: what it
            returns or raises then is made of an interrupted call, and is worth nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    armed, rung = [True], list[bool]()

    def ring(_number: int, _frame: FrameType | None) -> None:
        if armed:
            rung.append(True)
            raise TookTooLong

    before, began_s = signal.signal(signal.SIGALRM, ring), time.monotonic()
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    try:
        try:
            result = work()
        finally:
            armed.clear()
    except (KeyboardInterrupt, SystemExit, TookTooLong):
        raise
    except BaseException as error:
        if rung:
            raise TookTooLong from error
        raise
    else:
        if rung:
            raise TookTooLong
        return result
    finally:
        # Twice: the alarm may ring within the first one, before it is disarmed.
        armed.clear()
        rest_s = max(_AT_ONCE_S, left_s - (time.monotonic() - began_s)) if left_s else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, rest_s, interval_s)
