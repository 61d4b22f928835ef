"""What ends a task that is at work: as Ctrl-C ends the command, with everything taken back that can be.

Airflow only asks a task to end: it sends SIGTERM, calls ``on_kill``, and kills the process five seconds later
(Airflow 3.3: its task runner's own handler raises nothing). Whatever the task was at would go on until then;
and what takes longer to be taken back, such as a fence that a person's program lifts, or could not be, is
left to a process that Airflow does not know.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from onceover.planning import commands
from onceover.process.ifended import done_if_asked_to_end
from onceover_airflow.errors import JobInterrupted

if TYPE_CHECKING:
    from onceover.config.flow.flowfile import Flow

log = logging.getLogger(__name__)

_COMMAND: Final = (sys.executable, "-P", "-m", "onceover.cli.entry")
_ABORT_LOG: Final = "abort.log"


@dataclass(frozen=True)
class Undoing:
    """The command that takes back what a task that was told to end could not.

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


@dataclass(frozen=True)
class Ending:
    """Hears of SIGTERM, as long as the context is open that has yielded it.

    Args:
        hears: whether it does; a thread beside the main one does not.
    """

    hears: bool
    _told: list[Callable[[], None]] = field(default_factory=list)

    @contextmanager
    def looked_after(self, undoing: Undoing | None) -> Iterator[None]:
        """Have a command look behind a task that is told to end meanwhile for what it has left.

        Args:
            undoing: the command; None where nothing can be left that the next run does not go on with.
        """
        if undoing is None or not self.hears:
            yield
            return
        how = commands.command(*undoing.arguments)
        log.info("behind a task that is told to end %s looks for what is left: %s", how, undoing.log_path)
        with done_if_asked_to_end([*_COMMAND, *undoing.arguments], undoing.log_path) as asked:
            self._told.append(asked)
            try:
                yield
            finally:
                self._told.remove(asked)

    def ask(self) -> None:
        """Say that the task was told to end."""
        for tell in self._told:
            tell()


@contextmanager
def ends_as_a_command(what: str) -> Iterator[Ending]:
    """Have SIGTERM interrupt what is done meanwhile, as it does on the command line.

    Around everything that a task does: what Airflow's own handler hears of is lost.

    Args:
        what: is done, for the error.

    Raises:
        JobInterrupted: it was told to end.
    """
    ending, own = Ending(threading.current_thread() is threading.main_thread()), os.getpid()
    if not ending.hears:
        yield ending
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # A process that was forked meanwhile has this handler, too, and nothing to take back.
        if os.getpid() == own:
            ending.ask()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        try:
            yield ending
        finally:
            signal.signal(signal.SIGTERM, before)
    except KeyboardInterrupt:
        raise JobInterrupted(f"{what}: the task was told to end while it was at work") from None
