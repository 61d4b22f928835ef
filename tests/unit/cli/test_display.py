"""How far long work is: true numbers, one line, and nothing where nobody looks."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from onceover.cli.commands import replicate
from onceover.cli.terminal import statustext
from onceover.cli.terminal.display import Counter, Display, ProgressRate
from onceover.cli.terminal.goal import Goal
from onceover.wiring import status
from tests.support.session.wait import wait_until


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let somebody look at stderr, at a terminal of 40 columns."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")


def test_pace_says_how_much_how_fast_and_how_long() -> None:
    """From what was seen since it was looked at first."""
    clock = Clock()
    pace = ProgressRate(clock)
    assert pace.words(1_000, 5_000, "offsets") == "20 % of 5,000 offsets"
    clock.now_s += 10
    assert pace.words(2_000, 5_000, "offsets") == "40 % of 5,000 offsets, 100/s, about 30 s left"
    clock.now_s += 30
    assert pace.words(5_000, 5_000, "offsets") == "100 % of 5,000 offsets, 100/s"
    assert pace.words(0, 5_000, "offsets") == "0 % of 5,000 offsets"


def test_pace_of_something_slow_is_told_by_the_minute() -> None:
    """0/s would say that it stands still."""
    clock = Clock()
    pace = ProgressRate(clock)
    pace.words(0, 10, "ranges")
    clock.now_s += 60
    assert pace.words(3, 10, "ranges") == "30 % of 10 ranges, 3/min, about 2 min 20 s left"


def test_pace_of_nothing_at_all_is_all_of_it() -> None:
    """No division by what there is not, and nobody waits for it."""
    assert ProgressRate(Clock()).words(0, 0, "groups") == "100 % of 0 groups"


def partition(number: int, position: int | None, lso: int | None, *, stop: bool = False) -> dict[str, Any]:
    return {
        "topic": "t",
        "partition": number,
        "position": position,
        "lso": lso,
        "stop": {"code": "X"} if stop else None,
    }


def test_a_goal_is_what_was_there_at_the_start() -> None:
    """Records that come meanwhile move nothing, nor do partitions that are stopped or not known."""
    goal = Goal()
    assert goal.seen({"partitions": [partition(0, None, 10), partition(1, 3, None)]}) is None
    first = [partition(0, 0, 10), partition(1, 20, 50), partition(2, 0, 99, stop=True)]
    assert goal.seen({"partitions": first}) == (0, 40)
    assert goal.seen({"partitions": [partition(0, 5, 70), partition(1, 60, 90)]}) == (35, 40)
    assert goal.seen({"partitions": [partition(0, 10, 70), partition(1, 60, 90)]}) == (40, 40)


def test_a_goal_of_nothing_is_none() -> None:
    """Everything was there already, or progress was put back: no percentage of nothing, none below 0."""
    goal = Goal()
    assert goal.seen({"partitions": [partition(0, 10, 10)]}) is None
    goal = Goal()
    goal.seen({"partitions": [partition(0, 5, 10)]})
    assert goal.seen({"partitions": [partition(0, 2, 10)]}) == (0, 5)


def test_a_line_is_written_over_and_ends_with_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer one would go on in the next line, and stay there."""
    at_terminal(monkeypatch)
    display = Display()
    display.show("x" * 60)
    display.show("short\x1b[2J")
    display.clear()
    display.clear()
    shown = capsys.readouterr().err
    assert shown.split("\r") == ["", "x" * 39, "short\\x1b[2J".ljust(39), " " * 12, ""]


def test_a_terminal_that_is_closed_takes_the_display_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work goes on."""
    at_terminal(monkeypatch)

    def gone(_: str) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys.stderr, "write", gone)
    with Counter("groups", wanted=True) as counted:
        counted(1, 2)


def test_without_a_terminal_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Not one byte in a pipe."""
    with Counter("groups", wanted=True) as counted:
        counted(1, 2)
    display = Display()
    display.show("line")
    display.keep()
    assert capsys.readouterr() == ("", "")


def test_what_was_counted_leaves_an_empty_line_whatever_happens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message about it begins where the line did."""
    at_terminal(monkeypatch)

    def work() -> None:
        with Counter("groups", wanted=True) as counted:
            counted(1, 4)
            raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        work()
    assert capsys.readouterr().err == f"\r25 % of 4 groups\r{' ' * 16}\r"


@pytest.mark.parametrize(
    ("ends", "shown"), [(True, "dr: copying; 50 % of 8 offsets"), (False, "dr: copying")]
)
def test_a_copy_that_ends_says_how_much_of_it_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ends: bool, shown: str
) -> None:
    """One that goes on for ever has nothing to be a part of."""
    at_terminal(monkeypatch)
    looks = [{"partitions": [partition(0, position, 8)]} for position in (0, 4)]
    monkeypatch.setattr(status, "read_status", lambda _: looks.pop(0))
    monkeypatch.setattr(statustext, "progress_line", lambda _: "dr: copying")
    monkeypatch.setattr(replicate, "_PROGRESS_S", 0.0)
    progress = replicate._Progress(cast(Any, None), show=True, ends=ends)

    def looked() -> bool:
        progress.tick()
        return not looks and progress._looking is None

    wait_until(looked, 20.0, "two looks")
    progress.end()
    assert capsys.readouterr().err.split("\r")[-1].startswith(shown)
