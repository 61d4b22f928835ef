"""How much of what was to be copied is copied, seen from one status to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Goal:
    """What was on the source when a copy was begun; records that come later are none of it."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], tuple[int, int]] = {}

    def seen(self, status: Mapping[str, Any]) -> tuple[int, int] | None:
        """Return how many offsets are behind us of how many; None while there is nothing to say.

        A partition counts from where it was seen first; one that is stopped does not: it gets nowhere.
        """
        done = total = 0
        for partition in status["partitions"]:
            position, lso = partition["position"], partition["lso"]
            if position is None or lso is None or partition["stop"]:
                continue
            key = (partition["topic"], partition["partition"])
            begin, end = self._begun.setdefault(key, (position, max(position, lso)))
            total += end - begin
            done += min(max(position, begin), end) - begin
        return (done, total) if total else None
