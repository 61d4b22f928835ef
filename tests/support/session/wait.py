"""Waiting for a condition under a deadline: the only way tests wait for anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Short against everything tests wait for (brokers, Spark, Airflow), long enough to leave the CPU to them.
_POLL_S = 0.02
# Of the time, asking takes a third at most: a question to two clusters costs them, and this process, more CPU
# than what is waited for.
_PAUSE_PER_QUESTION = 2.0
_LONGEST_PAUSE_S = 1.0


def wait_until(
    condition: Callable[[], T | None], timeout_s: float, what: str, *, poll_s: float = _POLL_S
) -> T:
    """Return the first truthy answer of ``condition``, asked every ``poll_s`` seconds, or less often where
    asking takes long.

    Raises:
        TimeoutError: it stayed falsy for ``timeout_s`` seconds; the text says ``what`` was awaited.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        asked = time.monotonic()
        answer = condition()
        if answer:
            return answer
        now = time.monotonic()
        if now >= deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what} (last answer: {answer!r})")
        pause.wait(max(poll_s, min((now - asked) * _PAUSE_PER_QUESTION, _LONGEST_PAUSE_S)))
