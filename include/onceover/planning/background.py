"""Work beside each other: asking several clusters at once. A thread that hangs holds nobody up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_NAME = "onceover-background"


def in_background(work: Callable[[], T]) -> Future[T]:
    """Begin ``work`` in a thread of its own, which does not keep the process from ending.

    Unlike those of an executor: Python waits for theirs at the end, also for one that a dead resolver holds.
    Where no thread is to be had the work has failed.
    """
    future: Future[T] = Future()
    try:
        threading.Thread(target=_run, args=(work, future), name=_NAME, daemon=True).start()
    except RuntimeError as error:
        future.set_exception(error)
    return future


def side_by_side(works: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """Return what each of ``works`` returns, in their order; at most ``at_once`` of them run at a time.

    Raises:
        Whatever the first of them raised, when all have ended.
    """
    waiting: queue.SimpleQueue[tuple[Callable[[], T], Future[T]]] = queue.SimpleQueue()
    futures: list[Future[T]] = [Future() for _ in works]
    for pair in zip(works, futures, strict=True):
        waiting.put(pair)

    def work_off() -> None:
        while True:
            try:
                work, future = waiting.get_nowait()
            except queue.Empty:
                return
            _run(work, future)

    for _ in range(min(at_once, len(works))):
        threading.Thread(target=work_off, name=_NAME, daemon=True).start()
    problems = [problem for future in futures if (problem := future.exception()) is not None]
    if problems:
        raise problems[0]
    return [future.result() for future in futures]


def _run(work: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for the result
        future.set_exception(error)
