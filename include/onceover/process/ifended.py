"""What is to be looked after once this process was asked to end, whether it ends by itself or is killed.

Who asks a process to end and kills it seconds later (Airflow does so after five) leaves undone what it was
about to take back; and what could not be taken back just then, nobody tries again. Another process waits
beside this one and looks after it.
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
_NOW: Final = b"!"
# Waits until nobody can write any more, or is told to begin, and becomes the other program where this one was
# asked to end. Without the standard library, and so for 10 ms of CPU.
_WAIT: Final = (
    "import os,sys\n"
    "pipe,asked,now,heard=int(sys.argv[1]),sys.argv[2].encode(),sys.argv[3].encode(),set()\n"
    "while now not in heard and (word:=os.read(pipe,1)): heard.add(word)\n"
    "os.close(pipe)\n"
    "if asked in heard: os.execv(sys.argv[4],sys.argv[4:])\n"
)


@contextmanager
def done_if_asked_to_end(argv: Sequence[str], log_path: Path) -> Iterator[Callable[[], None]]:
    """Have ``argv`` run once this process was asked to end, behind the context's end or its own.

    Yields what says that this process was asked to end; it may be called by a handler of signals. Killed
    unasked it leaves nothing to be done: whoever starts it anew goes on.

    Args:
        argv: a program by its whole path, with its arguments; it finds the environment of this moment.
        log_path: what it says is appended there.

    Raises:
        OSError: no process can be started, or the log not be written.
    """
    pipe, told = os.pipe()
    words = (_ASKED.decode(), _NOW.decode())
    wait = [sys.executable, "-I", "-S", "-c", _WAIT, str(pipe), *words, *argv]
    try:
        beside = ChildProcess.start(wait, name=argv[0], log_path=log_path, detached=True, inherited=(pipe,))
    except BaseException:
        os.close(told)
        raise
    finally:
        os.close(pipe)
    asked = False

    def tell(word: bytes) -> None:
        # It may have been killed itself; this process goes on all the same.
        with suppress(BrokenPipeError):
            os.write(told, word)

    def ask() -> None:
        nonlocal asked
        asked = True
        tell(_ASKED)

    try:
        yield ask
    finally:
        # Not by the pipe's end: what was forked from us may hold it open for longer.
        if asked:
            tell(_NOW)
        else:
            beside.kill()
        os.close(told)
