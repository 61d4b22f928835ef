"""What failed in Spark, as the error that it was, and whether running it again can help.

Spark hands a worker's exception over as text, between stack traces of two languages. So a worker puts all
that the driver has to know into one line of JSON, and the driver finds it there. Whatever else Spark says
counts as temporary only where it is known to pass; the unknown fails at once, in its own words.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

import onceover.errors
from onceover.codes import GeneralCode
from onceover.errors import (
    FULL_DISK,
    Fatal,
    NeedsOperator,
    OnceoverError,
    Retriable,
    is_of_a_path,
    unexpected,
    unusable_amid,
)
from onceover.spark.codes import SparkCode

log = logging.getLogger(__name__)

_MARK: Final = "onceover-error "
_CARRIED: Final = re.compile(re.escape(_MARK) + r"(\{.*\})")
_RUN_AGAIN: Final = "run it again: it resumes where it was"
_NO_MASTER: Final = "check that it is up, and that address and secret are right, then run again"
# What Spark says when a process was taken from it, and not by what we ran in it.
_KNOWN_TO_PASS: Final = (
    (
        SparkCode.WORKER_KILLED,
        re.compile(
            r"Python worker exited unexpectedly|ExecutorLostFailure|worker lost|Executor heartbeat timed"
        ),
        "Spark lost the processes that copied, several times in a row",
        "look for what kills them (memory?), then run it again: it resumes where it was",
    ),
    (
        # Spark gives a Python process ten seconds to start, which no setting changes (4.2.0, seen).
        SparkCode.WORKER_LATE,
        re.compile(r"Python worker (failed to connect back|did not connect back in time)"),
        "a Python process of Spark's did not start in time: the machine is overloaded",
        _RUN_AGAIN,
    ),
    (
        # A hint, no more: the next run has folders of its own (`driver.py` names them).
        SparkCode.RUN_FILES_GONE,
        re.compile(r"/(receipts|checkpoint)/[0-9]{8}-[0-9a-f]+/\S* does not exist"),
        "somebody has removed what the run writes below ONCEOVER_HOME: receipts, or its checkpoint",
        _RUN_AGAIN,
    ),
    (
        SparkCode.SPARK_MASTER_GONE,
        re.compile(
            r"All masters are unresponsive|Master removed our application|context stopped while waiting"
        ),
        "the Spark master does not answer",
        _NO_MASTER,
    ),
    (
        SparkCode.JVM_GONE,
        re.compile(r"SparkContext was shut down|stopped SparkContext|SparkContext has been shut down"),
        "the Spark JVM was told to end",
        _RUN_AGAIN,
    ),
)
# A JVM that was told to end is deaf some time before it is gone: seconds, on a busy machine many.
_GONE_WAIT_S: Final = 30.0
# One that was killed is gone at once.
_GONE_BY_S: Final = 2.0
_LONGEST_TEXT: Final = 500
_CALL_ALONE: Final = re.compile(r"An error occurred while calling \S+|\S+ does not exist in the JVM")
_MISSING: Final = re.compile(r"java\.lang\.NullPointerException")


class WorkerError(Exception):
    """A worker's error, whole, in the one form that reaches the driver."""


@contextmanager
def carrying(what: str) -> Iterator[None]:
    """Let errors of a process that Spark started reach the driver as what they are.

    Args:
        what: failed, for the log of that process.
    """
    try:
        yield
    except OnceoverError as error:
        raise carried(error) from None
    except (GeneratorExit, KeyboardInterrupt):
        # Spark wants no more of its rows, or the process is to end: nothing has failed.
        raise
    except BaseException as error:
        # Also what is no `Exception`: of a task that ends with it Spark says no more than that it has failed.
        log.exception("%s failed", what)
        raise carried(error) from None


def carried(error: BaseException) -> WorkerError:
    """Return what a worker raises so that its driver raises ``error`` again."""
    ours = error if isinstance(error, OnceoverError) else foreign_error(error)
    return WorkerError(_MARK + json.dumps({"kind": _kind(ours), **ours.as_dict()}))


def error_of(failure: Exception) -> OnceoverError:
    """Return what a failed query or job of Spark's means."""
    text = _told_by(failure)
    if text is None:
        return jvm_gone()
    for match in reversed(list(_CARRIED.finditer(text))):
        error = _uncarried(match.group(1))
        if error is not None:
            return error
    for code, pattern, message, resolve in _KNOWN_TO_PASS:
        found = pattern.search(text)
        if found:
            return Retriable(message, code=code, seen=_line_around(text, found), resolve=resolve)
    if (found := FULL_DISK.search(text)) is not None:
        return NeedsOperator(
            "a disk that Spark writes to is full",
            code=GeneralCode.PATH_UNUSABLE,
            seen=_line_around(text, found),
            resolve="make room below ONCEOVER_HOME (or SPARK_LOCAL_DIRS), then start it again: it goes on "
            "where it was",
        )
    return Fatal(
        f"Spark failed: {_short(_reason_line(text))}",
        code=SparkCode.SPARK_FAILED,
        seen=type(failure).__name__,
        resolve="see the log; a failure that nobody foresaw is not tried again",
    )


def query_error(failure: Exception, is_ending: Callable[[], bool]) -> OnceoverError:
    """Return what a failed query means, also when Spark is taken down around it.

    A JVM that was told to end lets go of its parts in some order; whatever misses one of them then fails in
    words of its own ("the return value of dagScheduler() is null").

    Args:
        is_ending: tells whether the JVM is on its way out; asked where nobody knows the failure.
    """
    error = error_of(failure)
    return jvm_gone() if error.code == SparkCode.SPARK_FAILED and is_ending() else error


def session_error(
    failure: Exception,
    parent: int,
    wait_s: float = _GONE_WAIT_S,
    is_ending: Callable[[], bool] = lambda: False,
) -> OnceoverError:
    """Return what an exception of py4j means: a JVM that is gone, or one that objects.

    Args:
        failure: of a call into the JVM.
        parent: process id of the JVM, which starts the driver as its child.
        wait_s: how long its process may take to be gone after its sockets.
        is_ending: as for ``query_error``.
    """
    text = _told_by(failure)
    is_broken = text is None or isinstance(failure, Py4JNetworkError | ConnectionError)
    is_broken = is_broken or _was_cut_off(failure)
    error = error_of(failure) if is_broken else query_error(failure, is_ending)
    if not is_broken and error.code != SparkCode.SPARK_FAILED:
        return error
    # Whatever nobody knows may be the words of something that missed its JVM.
    deadline = time.monotonic() + (wait_s if is_broken else min(wait_s, _GONE_BY_S))
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.05)
    if os.getppid() != parent:
        return jvm_gone()
    if not is_broken:
        return error
    return Fatal(
        f"the driver cannot talk to its JVM any more: {_short(text or '') or type(failure).__name__}",
        code=SparkCode.JVM_UNREACHABLE,
        resolve="see the log",
    )


def _told_by(failure: Exception) -> str | None:
    """Return the text of an exception; None where its JVM would have to be asked for it, and is gone.

    Those of py4j and of PySpark fetch the stack trace when somebody wants to read them.
    """
    try:
        return str(failure)
    except (Py4JError, ConnectionError):
        return None


def _was_cut_off(failure: Exception) -> bool:
    """Tell whether a call's connection broke before its answer: py4j then says which call it was, no more.

    A JVM that objects says why (``java_gateway.send_command`` and ``get_return_value``, py4j 0.10.9.9); of a
    class that it has nobody asks in vain.
    """
    return type(failure) is Py4JError and _CALL_ALONE.fullmatch(str(failure)) is not None


def opening_error(failure: Exception) -> OnceoverError:
    """Return what it means that a session of a standalone master was not opened, by a JVM that is well.

    Spark gives up after a minute and stops the context by itself, which may be before or after it is handed
    out: whatever was about to be done with it then misses a part.
    """
    text = _told_by(failure) or ""
    error = error_of(failure)
    missing = _MISSING.search(text)
    if error.code != SparkCode.JVM_GONE and missing is None:
        return error
    return Retriable(
        "the Spark master has not taken the job, or has removed it",
        code=SparkCode.SPARK_MASTER_GONE,
        seen=error.seen if missing is None else _line_around(text, missing),
        resolve=f"{_NO_MASTER}; its log says more",
    )


def cause_of(
    failure: BaseException, parent: int, is_ending: Callable[[], bool] = lambda: False
) -> OnceoverError:
    """Return what a run has failed with, in words.

    Args:
        failure: whatever was raised.
        parent: process id of the JVM.
        is_ending: as for ``query_error``.
    """
    if isinstance(failure, OnceoverError):
        return failure
    if isinstance(failure, Py4JError | PySparkException | ConnectionError):
        return session_error(failure, parent, is_ending=is_ending)
    return foreign_error(failure)


def foreign_error(failure: BaseException) -> OnceoverError:
    """Return what neither Spark nor anything of ours has raised: a file that cannot be used, or a bug."""
    return unusable_amid(failure) if is_of_a_path(failure) else unexpected(failure)


def jvm_gone() -> Retriable:
    """Return the error for a JVM that was killed."""
    return Retriable("the Spark JVM is gone: it was killed", code=SparkCode.JVM_GONE, resolve=_RUN_AGAIN)


def _kind(error: OnceoverError) -> str:
    """Return the nearest kind of ``onceover.errors``: what decides about the exit code."""
    return next(kind.__name__ for kind in type(error).__mro__ if hasattr(onceover.errors, kind.__name__))


def _uncarried(text: str) -> OnceoverError | None:
    try:
        document: dict[str, Any] = json.loads(text)
        kind = getattr(onceover.errors, document.pop("kind"))
        error: OnceoverError = kind(document.pop("message"), **document)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return error


def _reason_line(text: str) -> str:
    """Return the first line that says why: where a call into Java failed, the one behind its name."""
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    if len(lines) > 1 and _CALL_ALONE.match(lines[0]):
        return lines[1].removeprefix(": ")
    return lines[0] if lines else "without a text"


def _line_around(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    return _short(text[start:].splitlines()[0].strip())


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + " ..."
