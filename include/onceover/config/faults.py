"""What is wrong in a configuration, collected until everything has been looked at.

A fault never carries a value that may be secret: whoever makes one decides what may be shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from onceover.config.codes import BY_LINE, ConfigCode
from onceover.errors import UsageError
from onceover.shown import visible

_KEY: Final = re.compile(r"[A-Za-z0-9_.>-]*")


class Invalid(ValueError):
    """One value is wrong; says why and what to write instead, never the value itself."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in one line.

    Attributes:
        where: the file (or Connection) it was found in.
        key: path of the key, ``topics.include``; empty when the file as a whole is meant.
        problem: what is wrong.
        fix: what to do about it.
        line: line of the key in the file, counted from 1.
        code: what kind of fault it is.
    """

    where: str
    key: str
    problem: str
    fix: str
    line: int | None = None
    code: ConfigCode = ConfigCode.BAD_CONFIG

    def __str__(self) -> str:
        place = self.where if self.line is None else f"{self.where}:{self.line}"
        key = f"{self.key}: " if self.key else ""
        line = f"{place}: {key}{self.problem}; {self.fix}"
        # One line whatever a file name or key contains, and nothing that commands a terminal.
        return visible(line)

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the fault for the command line's JSON."""
        return {
            "where": self.where,
            "line": self.line,
            "key": self.key,
            "problem": self.problem,
            "fix": self.fix,
        }


class BadConfig(UsageError):
    """All faults of a configuration at once; its text has one line for each. Exit code 2.

    Its code is that of its faults, where they have one in common.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        alike = len({fault.code for fault in self.faults}) == 1
        super().__init__(
            "\n".join(str(fault) for fault in self.faults),
            code=first.code if alike else ConfigCode.BAD_CONFIG,
            where=first.where,
            resolve=first.fix if len(self.faults) == 1 else "correct every line of the message",
        )

    def __str__(self) -> str:
        # The lines already say where and how to resolve; the base class would say it twice.
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (BadConfig, (self.faults,))

    def as_dict(self, subject: str | None = None) -> dict[str, Any]:
        """Return the ``error`` object of the command line's JSON, with every fault by itself."""
        return {**super().as_dict(subject), "faults": [fault.as_dict() for fault in self.faults]}


def message_lines(code: str, message: str) -> list[str]:
    """Return the lines of an error's message: only a configuration's faults are a line each.

    Elsewhere a line more is somebody's name.
    """
    return message.split("\n") if code in BY_LINE else [message]


def shown_key(key: str) -> str:
    """Return ``key`` as far as it looks like one.

    In ``{sasl.password:hunter2}`` the blank after the colon is missing, so all of it is the key.
    """
    match = _KEY.match(key)
    head = match.group() if match else ""
    return key if head == key else f"{head}…"
