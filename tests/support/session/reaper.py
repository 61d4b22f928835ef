"""Ends what a test session started when the session itself cannot any more: killed, or Ctrl-C pressed twice.

Run beside the tests as ``python -m tests.support.session.reaper SESSION DIRECTORY``, in a process group of
its own. It waits on its standard input: a line means that the session ends by itself and looks for
leftovers; the end of the input without one means that the session has died.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.session.leftovers import SESSION_VARIABLE, carries_mark

_PROJECT = Path(__file__).parents[3]
_END_TIMEOUT_S = 10.0


@contextmanager
def reaper(session: str, directory: Path) -> Iterator[None]:
    """Have somebody who tidies up after this process, whatever happens to it."""
    environ = {key: value for key, value in os.environ.items() if key != SESSION_VARIABLE}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.session.reaper", session, str(directory)],
        cwd=_PROJECT,
        env=environ,
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        yield
        process.communicate(b"ended\n", timeout=_END_TIMEOUT_S)


def end_all(session: str) -> None:
    """Kill every process that carries the session's mark, also what these start meanwhile."""
    while marked := [process for process in psutil.process_iter() if carries_mark(process, session)]:
        for process in marked:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(marked, _END_TIMEOUT_S)


def main(session: str, directory: str) -> None:
    """Wait for the session's end, and tidy up if it did not say so itself."""
    if not sys.stdin.readline():
        end_all(session)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
