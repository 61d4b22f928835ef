"""What a page remembers of each look at the flows, so that it can draw how the lag went. Pure.

Invariant: what nobody could know at a look is a gap in the picture, never a zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

# A look every ten seconds while somebody watches: six hours.
KEPT: Final = 2_160


class LagSample(NamedTuple):
    """One look at one flow: when, in ms since 1970; offsets that the target lacks; age of the oldest one."""

    at_ms: int
    lag_offsets: int | None
    oldest_missing_s: float | None


class Samples:
    """The newest looks at each flow. Not thread-safe."""

    def __init__(self) -> None:
        self._by_flow: dict[str, deque[LagSample]] = {}

    def add(self, entries: Iterable[Mapping[str, Any]], at_ms: int) -> None:
        """Remember a look; flows whose file is gone are forgotten."""
        seen = {entry["flow"]: entry for entry in entries}
        for flow in self._by_flow.keys() - seen.keys():
            del self._by_flow[flow]
        for flow, entry in seen.items():
            kept = self._by_flow.setdefault(flow, deque(maxlen=KEPT))
            kept.append(LagSample(at_ms, entry["lag_offsets"], entry["oldest_missing_s"]))

    def of(self, flow: str) -> Sequence[LagSample]:
        """Return what is remembered of a flow, the oldest first."""
        return tuple(self._by_flow.get(flow, ()))
