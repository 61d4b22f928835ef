"""How far something is that is done one after the other, told to whoever may look at it. Pure."""

from __future__ import annotations

from collections.abc import Callable

Counted = Callable[[int, int], None]


def uncounted(done: int, total: int) -> None:
    """Take no notice: nobody looks."""
