"""The three streams of a command: closed, full, or read by nobody any more.

Invariant: whatever happens to them, Python has nothing to say about it when the process ends, and a result
that could not be written is told, unless it is nobody who reads.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Final, TextIO

_MODES: Final = ("r", "w", "w")


def complete() -> None:
    """Put something in the place of streams that the process was started without; have them take any text.

    What is opened next would get their numbers, and with them whatever a child process writes there.
    """
    for number, mode in enumerate(_MODES):
        try:
            os.fstat(number)
        except OSError:
            # stdout is one that cannot be written to: nobody will have seen the result.
            opened = os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        _set(number, mode)
    for stream in (sys.stdout, sys.stderr):
        # A name of somebody else's may have letters that the terminal's locale has not.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _set(number: int, mode: str) -> None:
    name = ("stdin", "stdout", "stderr")[number]
    if getattr(sys, name) is None:
        fresh = os.fdopen(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)
        setattr(sys, name, fresh)


def write(text: str) -> bool:
    """Write a result to stdout; return False where that is not possible. Nobody reading is no failure."""
    try:
        if text:
            sys.stdout.write(f"{text}\n")
        # Here and not when Python ends, where its failure would be told by Python.
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            complain(f"error: the result cannot be written to stdout: {error.strerror}")
            return False
    return True


def complain(text: str) -> None:
    """Write a text to stderr; the terminal may be closed."""
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def settle() -> None:
    """Write what is left, as logs; nothing is left that Python could fail at when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _drop(stream)


def _drop(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    with suppress(OSError):
        stream.flush()
