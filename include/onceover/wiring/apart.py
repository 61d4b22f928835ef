"""A handler in a process of its own, for whoever plans, checks and shows.

Invariant: outside the flow's own driver and workers no foreign code is loaded but here: in a child that finds
nothing of Airflow's in its environment, no secret of Spark's, no Connection that the flow does not name, and
none of its parent's descriptors. A task's own standard input is its line to Airflow, which gives every
Connection to whoever asks there. What the child answers is JSON: it is read, never run.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

from onceover import errors
from onceover.config.clients.connection import variable_of
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.runsettings import RunSettings
from onceover.errors import OnceoverError, UsageError
from onceover.handlers.codes import HandlerCode
from onceover.process.children import guarded_argv
from onceover.process.guard import stripped
from onceover.shown import screen

log = logging.getLogger(__name__)

# As a handler's own words are worth in the log of a plan.
_MOST_SAID: Final = 64 << 10
_END_S: Final = 5.0
_MAIN: Final = "onceover.wiring.apartmain"


@contextmanager
def partitions_apart(flow: Flow) -> Iterator[Callable[[int], int]]:
    """Yield how many partitions a target topic has for so many of the source, as the flow's handler says.

    Raises:
        UsageError: the handler cannot be loaded; also when it is asked.
    """
    if flow.handler is None:
        yield lambda count: count
        return
    run = RunSettings.of(flow)
    made = {"path": str(flow.path), "handler": run.handler, "handler_args": dict(run.handler_args)}
    with apart(flow, "onceover.wiring.handlers:counts_of", made) as counts:
        known: dict[int, int] = {}

        def count(source: int) -> int:
            if source not in known:
                answer = counts(source)
                if type(answer) is not int or answer < source:
                    raise _no_answer(repr(answer))
                known[source] = answer
            return known[source]

        yield count


@contextmanager
def apart(flow: Flow, make: str, told: Mapping[str, Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function of ours that lives, with the flow's handler, in a child process.

    Args:
        make: ``module:function``, which is called there with ``told`` and returns the function.
        told: values of JSON.

    Raises:
        UsageError: HANDLER, the process ended before it answered; or another error of ours, as raised there.
    """
    with tempfile.TemporaryFile() as said:
        child = _start(flow, said)
        try:
            _answer(child, said, {"make": make, "told": dict(told)})
            yield lambda *arguments: _answer(child, said, {"arguments": arguments})
        finally:
            _end(child)
            _repeat(said)


def _start(flow: Flow, said: IO[bytes]) -> subprocess.Popen[str]:
    sides = (flow.source, flow.target)
    own = [variable_of(side.connection) for side in sides if side.connection]
    # What this process imports from: a handler is found where it always was.
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    found = {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
    # Not the directory at hand, which a script has first in its path.
    command = [sys.executable, "-P", "-m", _MAIN]
    return subprocess.Popen(
        guarded_argv(command, signal.SIGKILL),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        env=stripped(os.environ, own) | found,
        text=True,
        encoding="utf-8",
        # Ctrl-C is for its parent, which ends it.
        start_new_session=True,
    )


def _answer(child: subprocess.Popen[str], said: IO[bytes], question: Mapping[str, Any]) -> Any:
    """Ask, and return the answer."""
    if child.stdin is None or child.stdout is None:
        raise ValueError("a child without pipes")
    with suppress(BrokenPipeError):
        child.stdin.write(json.dumps(question) + "\n")
        child.stdin.flush()
    line = child.stdout.readline()
    if not line:
        raise _ended(child, said)
    try:
        answer = json.loads(line)
        error = _error(answer["error"]) if "error" in answer else None
        value = answer.get("value")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise _no_answer(type(problem).__name__) from problem
    if error is not None:
        raise error
    return value


def _error(found: Mapping[str, Any]) -> OnceoverError:
    """Return the error that was raised there, of a kind of ours and no other."""
    kind = getattr(errors, str(found["kind"]), None)
    known = kind if isinstance(kind, type) and issubclass(kind, OnceoverError) else UsageError
    return known(**found["fields"])


def _no_answer(seen: str) -> UsageError:
    return UsageError(
        "the process that loads the handler answers nonsense",
        code=HandlerCode.HANDLER,
        seen=seen,
        resolve="have the handler leave alone the descriptors that it has not opened",
    )


def _ended(child: subprocess.Popen[str], said: IO[bytes]) -> UsageError:
    child.wait(_END_S)
    said.seek(0)
    words = said.read().decode("utf-8", "replace").strip().splitlines()
    return UsageError(
        "the process that loads the handler has ended",
        code=HandlerCode.HANDLER,
        seen=f"exit code {child.returncode}{f': {screen(words[-1])}' if words else ''}",
        resolve="import the handler's module with Python, and correct what ends it there",
    )


def _end(child: subprocess.Popen[str]) -> None:
    # It has answered, or never will: nothing of ours is open in it.
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _repeat(said: IO[bytes]) -> None:
    """Log what the handler has printed."""
    said.seek(0)
    for line in said.read(_MOST_SAID).decode("utf-8", "replace").splitlines():
        log.info("handler: %s", screen(line))
