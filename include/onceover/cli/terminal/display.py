"""How far long work is, in one line of a terminal that is written over, and goes in the end.

Invariant: it is in nobody's way. Where nobody looks nothing is written, and a terminal that was closed takes
nothing but the display.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from onceover.ages import age_text
from onceover.cli.terminal.output import overwritten
from onceover.shown import visible

_USUAL: Final = (80, 24)


class ProgressRate:
    """How much of something is done, how fast it goes and how long the rest takes at that.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[str, float, int] | None = None

    def words(self, done: int, total: int, what: str) -> str:
        """Return it in words; of what was begun anew, the pace is that of this time."""
        now_s = self._clock()
        if self._first is None or self._first[0] != what or done < self._first[2]:
            self._first = (what, now_s, done)
        _, since_s, before = self._first
        percent = 100 * done // total if total else 100
        words = f"{percent} % of {total:,} {what}"
        if done > before and now_s > since_s:
            rate = (done - before) / (now_s - since_s)
            words += f", {rate:,.0f}/s" if rate >= 1 else f", {60 * rate:,.0f}/min"
            if done < total:
                words += f", about {age_text((total - done) / rate)} left"
        return words


class Display:
    """One line on stderr.

    Args:
        wanted: False shows nothing; so does a stderr that is no terminal.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted and sys.stderr.isatty()
        self._shown = ""

    def show(self, line: str) -> None:
        """Show a line in the place of the one before, cut where the terminal ends."""
        cut = visible(line)[: _columns() - 1]
        if self.wanted and cut != self._shown:
            self._put(overwritten(cut, self._shown))
            self._shown = cut

    def clear(self) -> None:
        """Leave an empty line."""
        if self._shown:
            self.show("")
            self._put("\r")

    def keep(self) -> None:
        """Leave the line as it is, and begin another one."""
        if self._shown:
            self._put("\n")
            self._shown = ""

    def _put(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _columns() -> int:
    known: tuple[int, int] = _USUAL
    with suppress(OSError):
        known = os.get_terminal_size(sys.stderr.fileno())
    # COLUMNS first, then stdout, which may be a pipe where stderr is a terminal.
    return shutil.get_terminal_size(fallback=known if known[0] else _USUAL).columns


class Counter:
    """Shows how many of several things are done, while they are done one after the other. A context manager.

    Args:
        what: they are.
        wanted: False shows nothing.
    """

    def __init__(self, what: str, *, wanted: bool) -> None:
        self._what = what
        self._pace = ProgressRate()
        self._display = Display(wanted=wanted)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave an empty line, whatever comes next."""
        self._display.clear()

    def __call__(self, done: int, total: int) -> None:
        """Show it."""
        self._display.show(self._pace.words(done, total, self._what))
