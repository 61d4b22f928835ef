"""A call that does not come back is interrupted, and nothing else is."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onceover.errors import Fatal
from onceover.handlers import within as within_module
from onceover.handlers.within import TookTooLong, check_process, within

_SHORT_S = 0.05
_LONG_S = 60.0


def waits() -> None:
    """Wait for something that never comes, in the operating system."""
    threading.Event().wait(_LONG_S)


def test_what_comes_back_in_time_is_returned() -> None:
    """And its own exceptions pass."""
    assert within(_LONG_S, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(_LONG_S, lambda: divmod(1, 0))


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

    def ends() -> None:
        try:
            waits()
        except BaseException:  # noqa: BLE001 - as foreign code does
            sys.exit("not found")

    for work in (default, translated, ends):
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


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that takes a while to import; alarms ring again soon."""
    name = f"slow_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("import threading\nthreading.Event().wait(0.3)\nvalue = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(within_module, "_AGAIN_S", _SHORT_S)
    monkeypatch.setattr(within_module, "_cut_off", [])
    yield name
    sys.modules.pop(name, None)


def test_an_import_is_waited_for_and_what_comes_after_it_interrupted(slow_module: str) -> None:
    """Cut off, some modules can never be imported again in this process; numpy is one."""
    imported: list[int] = []

    def work() -> None:
        imported.append(importlib.import_module(slow_module).value)
        waits()

    with pytest.raises(TookTooLong):
        within(_SHORT_S, work)
    assert imported == [7]
    check_process(ImportError("a module that is not there"))


def test_an_import_that_hangs_is_cut_off_and_import_errors_then_end_the_process(
    slow_module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would look like the records' own; other errors still are."""
    monkeypatch.setattr(within_module, "_IMPORT_S", 0.0)
    with pytest.raises(TookTooLong):
        within(_SHORT_S, lambda: importlib.import_module(slow_module))
    check_process(ValueError("of a record"))
    with pytest.raises(Fatal, match="import"):
        check_process(ImportError("cannot load module more than once per process"))


def test_an_import_around_the_call_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever copies may have been started by one."""
    name = f"caller_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "from tests.unit.handlers.test_within import waits\n"
        "from onceover.handlers.within import TookTooLong, within\n"
        "try:\n    within(0.05, waits)\nexcept TookTooLong:\n    interrupted = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert importlib.import_module(name).interrupted
    finally:
        sys.modules.pop(name, None)


def test_an_alarm_that_was_set_in_c_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python tells nothing of it, and cannot set it again."""
    real = signal.signal

    def from_c(number: int, handler: Any) -> None:
        real(number, handler)

    monkeypatch.setattr(signal, "signal", from_c)
    assert within(_LONG_S, lambda: 7) == 7
