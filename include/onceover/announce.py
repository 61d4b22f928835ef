"""Steps that a crash must survive, announced just before their effect.

Kill tests are generated from lists of such steps: a process is killed with -9 at each of them, and whoever
comes next must converge. In production nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)


class Announcer(Generic[S]):
    """Tells whoever listens in this process of each step of one kind."""

    def __init__(self) -> None:
        self._listener: Callable[[S], None] | None = None

    def reached(self, step: S) -> None:
        """Announce a step."""
        if self._listener is not None:
            self._listener(step)

    def listen(self, listener: Callable[[S], None]) -> None:
        """Hear of every step from now on."""
        self._listener = listener
