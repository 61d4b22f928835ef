"""What a command returns: one document for ``--json``, one text for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from onceover import logs
from onceover.cli.codes import CommandCode
from onceover.cli.terminal.colours import painted
from onceover.errors import OnceoverError
from onceover.exitstatus import INTERRUPTED
from onceover.shown import screen, visible

# Puts the commands that a text names as they can be typed, while one is carried out.
_WORDING: Final[ContextVar[Callable[[str], str]]] = ContextVar("wording", default=str)


class Interrupted(OnceoverError):
    """Somebody pressed Ctrl-C, or closed the terminal, and nothing is left to be done about it."""

    exit_code = INTERRUPTED


def interrupted() -> Interrupted:
    """Return what a command ends with that was interrupted."""
    return Interrupted("interrupted", code=CommandCode.INTERRUPTED)


def envelope(command: str, exit_code: int, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the fields that every one has."""
    return {**document, "onceover": 1, "command": command, "ok": exit_code == 0, "exit": exit_code}


def interrupted_document(command: Sequence[str]) -> str:
    """Return what ``--json`` prints of a command that was interrupted before it was understood.

    Args:
        command: its first word, where there is one.
    """
    error = interrupted()
    return json.dumps(envelope(" ".join(command), error.exit_code, {"error": error.as_dict()}))


@dataclass(frozen=True)
class CommandResult:
    """The outcome of a command. The caller adds the fields that every document has, and prints."""

    document: dict[str, Any]
    text: str
    exit_code: int = 0


@contextmanager
def worded(wording: Callable[[str], str]) -> Iterator[None]:
    """Have ``say``, in this thread, and the log put texts so meanwhile."""
    before = _WORDING.set(wording)
    try:
        with logs.worded(wording):
            yield
    finally:
        _WORDING.reset(before)


def say(text: str, *, aside: bool = False) -> None:
    """Show a text before the command is done, with nothing in it that commands a terminal.

    What it names can be typed, as of a text at the end (``worded``).

    Args:
        aside: on stderr, where stdout is for the one document.
    """
    stream = sys.stderr if aside else sys.stdout
    print(painted(screen(_WORDING.get()(text)), stream), file=stream, flush=True)


def overwritten(line: str, before: str) -> str:
    """Return what shows one line in the place of ``before``."""
    return f"\r{visible(line).ljust(len(visible(before)))}"
