"""What codes are: the names by which errors, refusals and stops are known outside. Pure.

Every room lists its own in ``codes.py``. A code is its name; messages, documents and the state hold it as
plain text, so an old one is never renamed. docs/codes.md says where each is explained.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Any


class Code(StrEnum):
    """Base of all lists of codes: a member's value is its name."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[Any]) -> str:
        return name


class GeneralCode(Code):
    """What no room is the cause of."""

    UNEXPECTED = auto()
    PATH_UNUSABLE = auto()
    NO_THREAD = auto()
