"""What is counted of flows while the exporter runs: by flow, from whichever file, and whoever looks at it.

Invariant: a counter of a flow never falls as long as the exporter runs. A file that goes and comes back, is
renamed or changed, begins none anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from onceover.errors import OnceoverError, Retriable
from onceover.kafka.ports import Cluster
from onceover.metrics import catalogue as m
from onceover.metrics.canary.track import CanaryCounts
from onceover.metrics.counting import ReceiptCounts
from onceover.metrics.figures import Figures
from onceover.metrics.heldback import HeldBack
from onceover.model import TopicPartition
from onceover.positions.tail import MapTail

log = logging.getLogger(__name__)

# A second of work: more than a busy flow commits between two looks.
_MOST_RECEIPTS: Final = 50_000


class FlowTally:
    """One flow's. May be used by any thread: where a file is renamed, its look ends beside the new one's.

    Attributes:
        canary: of its numbered records; to be used with ``canary_lock`` held.
    """

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self.canary, self.canary_lock = CanaryCounts(), threading.Lock()
        self._receipts, self._held_back = ReceiptCounts(), HeldBack()
        self._tail = MapTail(flow, _MOST_RECEIPTS)
        self._lock = threading.Lock()
        self._said = ""

    def count(self, entry: Mapping[str, Any], target: Cluster) -> None:
        """Count what was committed since the last call; while it cannot be read, at a later one.

        Args:
            entry: what ``status`` says of the flow now.
            target: where it is copied to.
        """
        if entry["target"]["error"] is not None:
            return
        known = (p for p in entry["partitions"] if p["position"] is not None)
        with self._lock:
            counts = self._receipts
            counts.stand_at({TopicPartition(p["topic"], p["partition"]): p["position"] for p in known})
            try:
                read = self._tail.read(target)
            except OnceoverError as error:
                self._say(error)
                return
            counts.count(read.records)
            counts.passed_over += read.passed_over + read.unread
            counts.looked()

    def _say(self, error: OnceoverError) -> None:
        # What passes by itself the next look makes good. Anything else is for a person, once.
        is_new = not isinstance(error, Retriable) and str(error) != self._said
        level = logging.WARNING if is_new else logging.DEBUG
        log.log(level, "the receipts of %s cannot be read, and are not counted: %s", self._flow, error)
        if is_new:
            self._said = str(error)

    def add_to(self, figures: Figures, entry: Mapping[str, Any], now_s: float, most_topics: int) -> None:
        """Take down a look, and add what is counted.

        Args:
            figures: the flow's samples.
            entry: what the look has seen.
            now_s: seconds, of no particular beginning, the same for all looks.
            most_topics: with counters of their own.
        """
        with self._lock:
            self._held_back.saw(entry["partitions"], now_s)
            figures.put(m.OPEN_AGE, self._held_back.oldest_s(now_s), self._flow)
            self._receipts.add_to(figures, self._flow, most_topics)


class Tallies:
    """Those of all flows, by their names; none is ever given up. May be used by any thread."""

    def __init__(self) -> None:
        self._found: dict[str, FlowTally] = {}
        self._lock = threading.Lock()

    def of(self, flow: str) -> FlowTally:
        """Return a flow's."""
        with self._lock:
            return self._found.setdefault(flow, FlowTally(flow))
