"""Whether a connector goes on where it was: its offsets, compared with those of the manifest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceover.connectors.keys import Moved, compare
from onceover.connectors.model import ConnectorState, Snapshot
from onceover.connectors.steps import StepName, reached
from onceover.errors import Retriable
from onceover.kafka.backoff import Deadline

_POLL_S: Final = 0.5


@dataclass(frozen=True)
class Progress:
    """How offsets stand to those of a manifest.

    Args:
        moved: by key of the manifest.
        fresh: keys that the manifest does not have.
    """

    moved: Mapping[bytes, Moved]
    fresh: frozenset[bytes]

    @classmethod
    def between(cls, values: Mapping[bytes, bytes], now: Snapshot) -> Progress:
        """Compare what was copied with what is there now."""
        offsets = now.offsets
        return cls(
            {key: compare(value, offsets.get(key)) for key, value in values.items()},
            frozenset(offsets.keys() - values.keys()),
        )

    def keys(self, *kinds: Moved) -> list[bytes]:
        """Return the keys that have moved in one of these ways."""
        return sorted(key for key, kind in self.moved.items() if kind in kinds)

    @property
    def back(self) -> list[bytes]:
        """Keys that went back."""
        return self.keys(Moved.BACK)

    @property
    def onward(self) -> list[bytes]:
        """Keys that went on, as far as that can be known."""
        return self.keys(Moved.FORWARD, Moved.CHANGED)

    @property
    def went_on(self) -> bool:
        """True when the connector has gone on from an offset, or has written its first where it had none.

        New keys beside old ones that stand still prove nothing: it may have begun anew under other keys.
        """
        return bool(self.onward if self.moved else self.fresh)

    @property
    def complete(self) -> bool:
        """True when there is nothing more to wait for: every key went on, or the first one came."""
        return self.went_on and not self.keys(Moved.SAME)

    def facts(self) -> dict[str, Any]:
        """Return what is counted in a report."""
        counts = {str(kind): len(self.keys(kind)) for kind in Moved}
        return {"offsets": len(self.moved), **counts, "new": len(self.fresh)}


def watch(
    values: Mapping[bytes, bytes],
    look: Callable[[], Snapshot],
    check: Callable[[], list[ConnectorState]],
    seconds: float,
) -> Progress:
    """Compare until a key goes back, every key has gone on, or the time is over.

    Args:
        values: of the manifest.
        look: reads the offsets as the workers do.
        check: asks the workers for the connector's state; raises when it has failed.
        seconds: how long at most.
    """
    reached(StepName.WATCH)
    deadline = Deadline(seconds)
    progress: Progress | None = None
    while True:
        try:
            progress = Progress.between(values, look())
        except Retriable:
            # A transaction of the running connector, or a broker that moves; what counts is the last look.
            if deadline.passed and progress is None:
                raise
        if progress is not None and (progress.back or progress.complete or deadline.passed):
            return progress
        check()
        time.sleep(min(_POLL_S, deadline.left_s))
