"""What ends a task that is at work: as Ctrl-C ends the command, with everything taken back that can be.

Airflow only asks a task to end: it sends SIGTERM, calls ``on_kill``, and kills the process some seconds later
(Airflow 3.3: its task runner's own handler raises nothing). Whatever the task was at would go on until then.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from onceover_airflow.errors import JobInterrupted


@contextmanager
def ends_as_a_command(what: str) -> Iterator[None]:
    """Have SIGTERM interrupt what is done meanwhile, as it does on the command line.

    Args:
        what: is done, for the error.

    Raises:
        JobInterrupted: it was told to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = os.getpid()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # A process that was forked meanwhile has this handler, too, and nothing to take back.
        if os.getpid() == own:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
    except KeyboardInterrupt:
        raise JobInterrupted(f"{what}: the task was told to end while it was at work") from None
