"""Who copies: one lane of one run of a flow. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onceover.clock import now_ms
from onceover.stops.record import Stop


@dataclass(frozen=True)
class LaneIdentity:
    """Who is copying: flow, generation, run, lane of how many, and the instance within them."""

    flow: str
    generation: int
    run: str
    lane: int
    lanes: int
    instance: tuple[int, int]

    def stamped(self, stop: Stop) -> Stop:
        """Return ``stop`` with the time and generation that it is written with."""
        fields = {k: v for k, v in stop.to_json().items() if k != "v"}
        stamped: dict[str, Any] = {**fields, "at_ms": now_ms(), "generation": self.generation}
        return Stop(**stamped)
