"""A call that does not come back is interrupted, and nothing else is."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import pytest

from onceover.engine import within as within_module
from onceover.engine.within import TookTooLong, within

_SHORT_S = 0.05
_LONG_S = 60.0


def waits() -> None:
    """Wait for something that never comes, in the operating system."""
    threading.Event().wait(_LONG_S)


def test_what_comes_back_in_time_is_returned() -> None:
    """And its own exceptions pass."""
    assert within(_LONG_S, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(_LONG_S, lambda: 1 // 0)


def test_a_call_that_waits_for_ever_is_interrupted() -> None:
    """It does not compute, so nothing but a signal reaches it."""
    with pytest.raises(TookTooLong):
        within(_SHORT_S, waits)


def test_code_that_catches_exceptions_does_not_catch_this_one() -> None:
    """Foreign code retries around everything that it calls."""

    def stubborn() -> None:
        while True:
            with suppress(Exception):
                waits()

    with pytest.raises(TookTooLong):
        within(_SHORT_S, stubborn)


def test_what_is_made_of_an_interrupted_call_is_worth_nothing() -> None:
    """A look-up that was cut off answers with its default, or with an error of its own."""

    def default() -> str:
        try:
            waits()
        except BaseException:  # noqa: BLE001 - as foreign code does
            return "unknown"
        return "found"

    def translated() -> None:
        try:
            waits()
        except BaseException as error:
            raise ValueError("not found") from error

    for work in (default, translated):
        with pytest.raises(TookTooLong):
            within(_SHORT_S, work)


def test_code_that_catches_everything_is_interrupted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as it takes."""
    monkeypatch.setattr(within_module, "_AGAIN_S", _SHORT_S)
    caught: list[int] = []

    def swallowing() -> None:
        while True:
            try:
                waits()
            except TookTooLong:
                caught.append(1)
                if len(caught) == 3:
                    raise

    with pytest.raises(TookTooLong):
        within(_SHORT_S, swallowing)
    assert len(caught) == 3


@pytest.mark.parametrize("interrupted", [True, False])
def test_who_used_the_alarm_before_has_it_back(interrupted: bool) -> None:
    """With what was left of it."""
    rung: list[int] = []
    old = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    timer = signal.setitimer(signal.ITIMER_REAL, _LONG_S, 7.0)
    try:
        with suppress(TookTooLong):
            within(_SHORT_S, waits if interrupted else int)
        left_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left_s <= _LONG_S and interval_s == 7.0
        signal.raise_signal(signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.signal(signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_nothing_rings_behind_the_call() -> None:
    """The alarm is off when it has returned."""
    timer = signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
        within(_LONG_S, int)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_other_threads_are_not_interrupted() -> None:
    """Python gives signals to its main thread: that one is doing something else."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(within(0.0, lambda: 7)))
    thread.start()
    thread.join()
    assert found == [7]
