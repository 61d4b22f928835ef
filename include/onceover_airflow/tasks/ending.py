"""What ends a task that is at work: as Ctrl-C ends the command, with everything taken back that can be.

Airflow only asks a task to end: it sends SIGTERM, calls ``on_kill``, and kills the process five seconds later
(Airflow 3.3: its task runner's own handler raises nothing). Whatever the task was at would go on until then;
and what takes longer to be taken back, such as a fence that a person's program lifts, is left to a process
that Airflow does not know.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from onceover.planning import commands
from onceover.process.ifkilled import done_if_killed
from onceover_airflow.errors import JobInterrupted

if TYPE_CHECKING:
    from onceover.config.flow.flowfile import Flow

log = logging.getLogger(__name__)

_COMMAND: Final = (sys.executable, "-P", "-m", "onceover.cli.main")
_ABORT_LOG: Final = "abort.log"


@dataclass(frozen=True)
class Undoing:
    """The command that takes back what a task could not before it was killed.

    Args:
        arguments: of ``onceover``.
        log_path: where it says what it did.
    """

    arguments: tuple[str, ...]
    log_path: Path


def drill_left(flow: Flow) -> Undoing:
    """Return what lets writers in again, and takes away the rest of a drill; another try may follow."""
    from onceover.wiring.failovers.drills import drills_dir

    words = ("drill", "abort", str(flow.path.absolute()), "--if-dead")
    return Undoing(words, drills_dir(flow).absolute() / _ABORT_LOG)


@contextmanager
def ends_as_a_command(what: str, undoing: Undoing | None = None) -> Iterator[None]:
    """Have SIGTERM interrupt what is done meanwhile, as it does on the command line.

    Args:
        what: is done, for the error.
        undoing: is run where Airflow loses patience with what takes back what was done.

    Raises:
        JobInterrupted: it was told to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _if_killed(undoing) as asked, _interruptible(what, asked):
        yield


def _if_killed(undoing: Undoing | None) -> AbstractContextManager[Callable[[], None]]:
    if undoing is None:
        return nullcontext(lambda: None)
    how = commands.command(*undoing.arguments)
    log.info("killed while it takes back what it did, %s goes on with that: %s", how, undoing.log_path)
    return done_if_killed([*_COMMAND, *undoing.arguments], undoing.log_path)


@contextmanager
def _interruptible(what: str, asked: Callable[[], None]) -> Iterator[None]:
    own = os.getpid()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # A process that was forked meanwhile has this handler, too, and nothing to take back.
        if os.getpid() == own:
            asked()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
    except KeyboardInterrupt:
        raise JobInterrupted(f"{what}: the task was told to end while it was at work") from None
