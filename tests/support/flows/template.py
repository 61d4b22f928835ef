"""Flows and commands in processes of their own that begin at once, forked from one that has loaded all.

A new Python takes a second of CPU to load the modules of a flow, and a test run starts a hundred flows only
to kill them. What is forked is a process like any other: a session, a group, a log and an environment of its
own; it is killed, paused and waited for as any ``ChildProcess``, and ends with this process.

Run as ``python -m tests.support.flows.template``: a request a line on standard input, an answer a line on
standard output, until the input ends.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from onceover.process.children import ChildProcess

_PROJECT: Final = Path(__file__).parents[3]
_PR_SET_PDEATHSIG: Final = 1
_END_TIMEOUT_S: Final = 30.0
# Beside this file; each has a ``main`` that goes by its arguments.
SCRIPTS: Final = {
    "flow_process": "tests.support.flows.flow_process",
    "drill_process": "tests.support.drills.drill_process",
    "topics_process": "tests.support.flows.topics_process",
}


class _Forked:
    """What ``ChildProcess`` needs to know of a child of the template."""

    def __init__(self, template: Template, pid: int) -> None:
        self._template = template
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait for its end; return the exit code, negative for a signal."""
        if self.returncode is None:
            self.returncode = self._template.ask({"reap": self.pid})
        return self.returncode


class Template:
    """The process that is forked. Safe for use from several threads."""

    def __init__(self) -> None:
        # The very code that this test runs, also when that is a copy of the project.
        paths = [str(_PROJECT), str(_PROJECT / "include")]
        self._lock = threading.Lock()
        # Whenever this process ends, so does the template's input, and what it forked ends with it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.flows.template"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, arguments: Sequence[str], log_path: Path, script: str = "flow_process") -> ChildProcess:
        """Start one of ``SCRIPTS`` with these arguments, and this process's environment of now."""
        log_path.parent.mkdir(parents=True, exist_ok=True)
        request = {"arguments": list(arguments), "environ": dict(os.environ), "log": str(log_path)}
        forked = _Forked(self, self.ask({**request, "script": script}))
        return ChildProcess(script, cast("subprocess.Popen[bytes]", forked), log_path)

    def ask(self, request: dict[str, Any]) -> int:
        """Send one request and return its answer."""
        with self._lock:
            _pipe(self._process.stdin).write(f"{json.dumps(request)}\n")
            _pipe(self._process.stdin).flush()
            return int(_pipe(self._process.stdout).readline())

    def close(self) -> None:
        """End it; whatever it started has ended."""
        self._process.communicate(timeout=_END_TIMEOUT_S)


_shared: list[Template] = []


def shared() -> Template:
    """Return the session's template, started with its first flow."""
    if not _shared:
        _shared.append(Template())
    return _shared[0]


@contextmanager
def closed_at_the_end() -> Iterator[None]:
    """End the session's template, if there is one."""
    try:
        yield
    finally:
        while _shared:
            _shared.pop().close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def serve() -> int:
    """Fork and reap as asked. Returns at the end of the input, and in every forked process at its own end."""
    # Loaded here: who starts the template needs none of it. No thread may run yet, as none would be forked.
    importlib.import_module("pyarrow")  # as in flow_process.py
    scripts = {name: importlib.import_module(module) for name, module in SCRIPTS.items()}
    for line in sys.stdin:
        request = json.loads(line)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            _answer(os.waitstatus_to_exitcode(status))
        elif os.fork() == 0:
            _become(request)
            return int(scripts[request["script"]].main())
    return 0


def _answer(number: int) -> None:
    os.write(1, f"{number}\n".encode())


def _become(request: dict[str, Any]) -> None:
    """Be a process of its own, as ``ChildProcess.start`` makes them, and then answer with its id."""
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    _answer(os.getpid())
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    for descriptor in (nothing, log):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv[1:] = request["arguments"]


if __name__ == "__main__":
    sys.exit(serve())
