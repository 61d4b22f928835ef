"""Calls of foreign code: whatever it raises becomes words of ours.

Invariant: what a handler raises takes down what it was given, and nothing else; also what is no
``Exception``: the panic of an extension in another language, the exit of a library, a cancelled task. Its
text may quote a record and goes nowhere (G10).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final, TypeVar

from onceover.handlers.within import LONGEST_S, TookTooLong, check_process, within
from onceover.model import TopicPartition

T = TypeVar("T")

Listener = Callable[[Sequence[TopicPartition]], None]

# Raised in the middle of foreign code and not by it: a process that is told to end, and its own alarm.
NOT_ITS_OWN: Final = (KeyboardInterrupt, TookTooLong)


class CallFailed(Exception):
    """Foreign code fails on what it was given; the text is ours and quotes nothing."""


class NotBack(CallFailed):
    """It had to be interrupted."""


def attempt(work: Callable[[], T]) -> T:
    """Return what foreign code gives, and what we make of it.

    Raises:
        CallFailed: whatever it raised, or what we object to.
        KeyboardInterrupt, TookTooLong: the process is to end, or the time is over.
        Fatal: as ``check_process``.
    """
    try:
        return work()
    except (CallFailed, *NOT_ITS_OWN):
        raise
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything
        check_process(error)
        raise CallFailed(described(error)) from None


def limited(work: Callable[[], T]) -> T:
    """Return what ``work`` gives, which calls foreign code, within the time that a transaction may stay open.

    Raises:
        NotBack: it took longer, and was interrupted, as by ``within``.
    """
    try:
        return within(LONGEST_S, work)
    except TookTooLong:
        raise NotBack(f"it did not come back within {LONGEST_S:g} s") from None


def told(listener: Listener, partitions: Sequence[TopicPartition]) -> str | None:
    """Call a handler's listener, for no longer than a call may take; return what went wrong."""
    try:
        limited(lambda: attempt(lambda: listener(partitions)))
    except CallFailed as error:
        return str(error)
    return None


def described(error: BaseException) -> str:
    """Return an exception's type and the line it comes from, never its text: that may quote a record."""
    frames = traceback.extract_tb(error.__traceback__)
    kind = type(error).__name__
    return f"{kind} at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else kind
