"""Numbers of the command line, bounded where they are parsed: none reaches a protocol that cannot hold it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from onceover.errors import UsageError

MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_SHOWN: Final = 40


def whole(what: str, low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``low`` to ``high``, for argparse.

    Args:
        what: is read, for the message of its ``UsageError``.
    """

    def parse(text: str) -> int:
        # Before int(): it refuses thousands of digits with an error of its own.
        number = int(text) if _WHOLE.fullmatch(text) else None
        if number is None or not low <= number <= high:
            raise UsageError(
                f"{short(text)} is no {what}", expected=f"a whole number, {low} or more, at most {high}"
            )
        return number

    return parse


def seconds(what: str, low: float, high: float) -> Callable[[str], float]:
    """Return a parser of seconds from ``low`` to ``high``; infinity and NaN are in no range."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise UsageError(f"{short(text)} is no {what}", expected=f"{low:g} to {high:g} seconds")
        return number

    return parse


def short(text: str) -> str:
    """Return what was typed for a message, however long it is."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


offset: Final = whole("offset", 0, MAX_OFFSET)
partition: Final = whole("partition", 0, MAX_PARTITION)
