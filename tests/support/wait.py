"""Waiting for a condition under a deadline: the only way tests wait for anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Short against everything tests wait for (brokers, Spark, Airflow), long enough to leave the CPU to them.
_POLL_S = 0.02


def wait_until(
    condition: Callable[[], T | None], timeout_s: float, what: str, *, poll_s: float = _POLL_S
) -> T:
    """Return the first truthy answer of ``condition``, asked every ``poll_s`` seconds.

    Raises:
        TimeoutError: it stayed falsy for ``timeout_s`` seconds; the text says ``what`` was awaited.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what} (last answer: {answer!r})")
        pause.wait(poll_s)
