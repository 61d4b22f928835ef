"""What a page remembers of each look at the flows, so that it can draw how they went. Pure.

Invariant: what nobody could know at a look is a gap in the picture, never a zero. What is remembered does not
grow with a flow's partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

# A look every ten seconds while somebody watches: six hours.
KEPT: Final = 2_160


class LagSample(NamedTuple):
    """One look at one flow.

    Args:
        at_ms: when, in ms since 1970.
        lag_offsets: what the target lacked.
        oldest_missing_s: the age of the oldest of that.
        copied_per_s: offsets that were copied a second since the look before.
    """

    at_ms: int
    lag_offsets: int | None
    oldest_missing_s: float | None
    copied_per_s: float | None = None


class Samples:
    """The newest looks at each flow. Not thread-safe."""

    def __init__(self) -> None:
        self._by_flow: dict[str, deque[LagSample]] = {}
        self._positions: dict[str, Mapping[str, int]] = {}

    def add(self, entries: Iterable[Mapping[str, Any]], at_ms: int) -> None:
        """Remember a look; flows whose file is gone are forgotten."""
        seen = {entry["flow"]: entry for entry in entries}
        for flow in self._by_flow.keys() - seen.keys():
            del self._by_flow[flow], self._positions[flow]
        for flow, entry in seen.items():
            kept = self._by_flow.setdefault(flow, deque(maxlen=KEPT))
            before, now = self._positions.get(flow, {}), _positions(entry)
            speed = speed_of(before, now, at_ms - kept[-1].at_ms) if kept else None
            kept.append(LagSample(at_ms, entry["lag_offsets"], entry["oldest_missing_s"], speed))
            self._positions[flow] = now

    def of(self, flow: str) -> Sequence[LagSample]:
        """Return what is remembered of a flow, the oldest first."""
        return tuple(self._by_flow.get(flow, ()))


def speed_of(before: Mapping[str, int], after: Mapping[str, int], took_ms: int) -> float | None:
    """Return the offsets that were copied a second between two looks.

    Only partitions that both have seen count; None without any, or where one stands further back than before.

    Args:
        before: positions by partition; ``after`` likewise.
    """
    moved = [after[name] - at for name, at in before.items() if name in after]
    if not moved or min(moved) < 0 or took_ms <= 0:
        return None
    return 1000 * sum(moved) / took_ms


def _positions(entry: Mapping[str, Any]) -> Mapping[str, int]:
    known = (p for p in entry["partitions"] if p["position"] is not None)
    return {f"{p['topic']}:{p['partition']}": p["position"] for p in known}
