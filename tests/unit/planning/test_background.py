"""Work beside each other."""

from __future__ import annotations

import threading

import pytest

from onceover.errors import Retriable
from onceover.planning.background import in_background, side_by_side

_TIMEOUT_S = 10.0


def test_works_run_at_the_same_time_and_answer_in_their_order() -> None:
    """Each waits for the other one: one after the other they would wait for ever."""
    both = threading.Barrier(2, timeout=_TIMEOUT_S)

    def work(number: int) -> int:
        both.wait()
        return number

    assert side_by_side([lambda: work(1), lambda: work(2)], at_once=2) == [1, 2]


def test_more_works_than_threads_are_all_done() -> None:
    """A limit on how many at once is none on how many."""
    assert side_by_side([lambda n=n: n for n in range(20)], at_once=3) == list(range(20))
    assert side_by_side([], at_once=3) == []


def test_what_one_raises_is_raised_when_all_have_ended() -> None:
    """A bug is no answer, and takes nothing from the others."""
    done = threading.Event()

    def fail() -> None:
        raise LookupError("boom")

    with pytest.raises(LookupError, match=r"^boom$"):
        side_by_side([fail, done.set], at_once=1)
    assert done.is_set()


def test_background_work_hands_over_its_result() -> None:
    """In a thread that does not keep the process alive."""
    assert in_background(lambda: threading.current_thread().daemon).result(_TIMEOUT_S) is True


def _leave(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Leave so many threads to be had."""
    left, start = [None] * threads, threading.Thread.start

    def begin(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)


def test_where_no_thread_is_to_be_had_the_work_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who only wants to tell, or to look, beside a copy goes on with it. It may pass."""
    _leave(monkeypatch, 0)
    error = in_background(pytest.fail).exception(_TIMEOUT_S)
    assert isinstance(error, Retriable) and error.code == "NO_THREAD" and error.resolve


@pytest.mark.parametrize("threads", [0, 1])
def test_works_are_done_by_the_threads_that_are_to_be_had(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """One after the other where there are none: all of them want an answer."""
    _leave(monkeypatch, threads)
    assert side_by_side([lambda n=n: n for n in range(20)], at_once=3) == list(range(20))
