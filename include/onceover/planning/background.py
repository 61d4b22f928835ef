"""Work beside each other: asking several clusters at once. A thread that hangs holds nobody up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from onceover.codes import GeneralCode
from onceover.errors import Retriable

T = TypeVar("T")

_NAME = "onceover-background"


def begin(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        Retriable: NO_THREAD, none is to be had.
    """
    with starting():
        thread.start()


@contextmanager
def starting() -> Iterator[None]:
    """Have what only starts threads fail as ours do where none is to be had: a library's, for instance.

    Raises:
        Retriable: NO_THREAD.
    """
    try:
        yield
    except RuntimeError as error:
        raise Retriable(
            f"no thread is to be had on this machine: {error}",
            code=GeneralCode.NO_THREAD,
            resolve="end what holds them, or raise the limit (`ulimit -u`, pids.max of a container), then "
            "run again",
        ) from error


def in_background(work: Callable[[], T]) -> Future[T]:
    """Begin ``work`` in a thread of its own, which does not keep the process from ending.

    Unlike those of an executor: Python waits for theirs at the end, also for one that a dead resolver holds.
    Where no thread is to be had the work has failed, with ``NO_THREAD``.
    """
    future: Future[T] = Future()
    try:
        begin(threading.Thread(target=_run, args=(work, future), name=_NAME, daemon=True))
    except Retriable as error:
        future.set_exception(error)
    return future


def side_by_side(works: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """Return what each of ``works`` returns, in their order; at most ``at_once`` of them run at a time.

    Fewer threads do as well, and where none is to be had this one does it all.

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

    for number in range(min(at_once, len(works))):
        try:
            begin(threading.Thread(target=work_off, name=_NAME, daemon=True))
        except Retriable:
            if number == 0:
                work_off()
            break
    problems = [problem for future in futures if (problem := future.exception()) is not None]
    if problems:
        raise problems[0]
    return [future.result() for future in futures]


def _run(work: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for the result
        future.set_exception(error)
