"""What is still to be done where this process is killed while it ends.

Who asks a process to end and kills it seconds later (Airflow does so after five) leaves undone what it was
about to take back. Another process waits beside this one and does that then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from onceover.process.children import ChildProcess

_ASKED: Final = b"?"
_DONE: Final = b"."
# Waits until nobody can write any more, and becomes the other program where the last word is that this one
# was asked to end. Without the standard library, and so for 10 ms of CPU.
_WAIT: Final = (
    "import os,sys\n"
    "pipe,last=int(sys.argv[1]),b''\n"
    "while word:=os.read(pipe,1): last=word\n"
    "os.close(pipe)\n"
    "if last==sys.argv[2].encode(): os.execv(sys.argv[3],sys.argv[3:])\n"
)


@contextmanager
def done_if_killed(argv: Sequence[str], log_path: Path) -> Iterator[Callable[[], None]]:
    """Have ``argv`` run where this process is killed behind being asked to end, before the context ends.

    Yields what says that this process was asked to end; it may be called by a handler of signals. Killed
    unasked it leaves nothing to be done: whoever starts it anew goes on.

    Args:
        argv: a program by its whole path, with its arguments; it finds the environment of this moment.
        log_path: what it says is appended there.

    Raises:
        OSError: no process can be started, or the log not be written.
    """
    pipe, told = os.pipe()
    wait = [sys.executable, "-I", "-S", "-c", _WAIT, str(pipe), _ASKED.decode(), *argv]
    try:
        beside = ChildProcess.start(wait, name=argv[0], log_path=log_path, detached=True, inherited=(pipe,))
    except BaseException:
        os.close(told)
        raise
    finally:
        os.close(pipe)

    def tell(word: bytes) -> None:
        # It may have been killed itself; this process goes on all the same.
        with suppress(BrokenPipeError):
            os.write(told, word)

    try:
        yield lambda: tell(_ASKED)
    finally:
        tell(_DONE)
        # It only waits as long as we live; what was forked from us may hold its pipe open for longer.
        beside.kill()
        os.close(told)
