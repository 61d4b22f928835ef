"""What a lane has found out, kept over its resets and from one of its tasks to the next in the same process.

Invariant: hints only (G4). Losing them costs time, such as a patience that begins anew; a new run begins with
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onceover.engine.aside import Troubles
from onceover.engine.names import RESUME_PREFIX
from onceover.engine.reading import Throttle


@dataclass
class Known:
    """What one lane of one run knows. Not thread-safe.

    Args:
        troubles: what keeps partitions from being copied.
        throttle: the bandwidth that was used.
    """

    troubles: Troubles = field(default_factory=Troubles)
    throttle: Throttle = field(default_factory=Throttle)
    # With the time: a person who was too early asks again, under the same key.
    _requests: frozenset[tuple[str, int]] = frozenset()

    def asked(self, requests: Mapping[str, Any]) -> set[str]:
        """Return the keys of requests to look again that were not there the last time.

        Args:
            requests: what stands in the state now.
        """
        now = frozenset(
            (key, value["at_ms"]) for key, value in requests.items() if key.startswith(RESUME_PREFIX)
        )
        fresh, self._requests = now - self._requests, now
        return {key for key, _ in fresh}


class Knowledge:
    """What the lanes know whose tasks this process has seen. Not thread-safe."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str, int], Known] = {}

    def of(self, flow: str, run: str, lane: int) -> Known:
        """Return what earlier tasks of the lane found out here; of the flow's older runs nothing is kept."""
        self._lanes = {key: known for key, known in self._lanes.items() if key[0] != flow or key[1] == run}
        return self._lanes.setdefault((flow, run, lane), Known())
