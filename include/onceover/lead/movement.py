"""Partitions that do not move though there is something to copy, as the driver sees them from beside.

Invariant: it costs no record anything, since only positions and ends of logs are asked for, in no more than a
fixed share of the driver's time; what cannot be asked is left out, and holds up nothing else.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from onceover.clock import now_ms
from onceover.errors import OnceoverError
from onceover.kafka import calls
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition, lane_of
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.standstill import Standstill

log = logging.getLogger(__name__)

# Above everything that a lane does in one go: an open transaction (15 s), the minute in which leaders move.
STILL_AFTER_S: Final = 120.0
# A lane gives each of its partitions a turn. A handler may take two seconds for one.
TURN_S: Final = 2.0
# What a turn may fetch, whatever the flow's own limit: Kafka gives a batch at least. Twice what it takes by
# default for the largest; the limit has to let it through before the lane fetches again.
BATCH_BYTES: Final = 2 << 20
_LOOK_S: Final = 15.0
# A look at 1,000 partitions takes a tenth of a second, 11 ms of it ours (measured): no more than this share
# of the time goes into looks.
_SHARE: Final = 0.02


class _Stand(NamedTuple):
    position: int
    since_s: float


class Movement:
    """Where partitions stand, look after look. Pure; not thread-safe.

    Args:
        lanes: how many lanes share the partitions.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._stands: dict[TopicPartition, _Stand] = {}
        self._limit: int | None = None

    def seen(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_s: float,
        bytes_per_second: int | None = None,
    ) -> dict[TopicPartition, float]:
        """Take in a look; return since when partitions stand still that should have moved by now.

        Args:
            positions: next source offset, by source partition.
            ends: up to where the source's readers may read; partitions of which it is not known begin anew.
            now_s: time of the look, by the monotonic clock; what is returned likewise.
            bytes_per_second: the flow's own limit, for all lanes; with another one all begin anew.
        """
        if bytes_per_second != self._limit:
            self._stands, self._limit = {}, bytes_per_second
        stands = {}
        for tp, position in positions.items():
            if position < ends.get(tp, 0):
                before = self._stands.get(tp)
                moved = before is None or before.position != position
                stands[tp] = _Stand(position, now_s) if moved or before is None else before
        self._stands = stands
        waiting = Counter(lane_of(tp, self._lanes) for tp in stands)
        return {
            tp: stand.since_s
            for tp, stand in stands.items()
            if now_s - stand.since_s >= self._patience_s(waiting[lane_of(tp, self._lanes)])
        }

    def _patience_s(self, waiting: int) -> float:
        """Return how long a partition may stand still in a lane of which so many have something to copy."""
        per_lane = None if self._limit is None else self._limit / self._lanes
        turn_s = TURN_S if per_lane is None else max(TURN_S, BATCH_BYTES / per_lane)
        return STILL_AFTER_S - TURN_S + turn_s * waiting


class MovementWatch:
    """Looks at both clusters now and then. Not thread-safe; the caller closes the clusters.

    Args:
        flow: name of the flow; ``lanes`` likewise of this run.
        source: source cluster; ``target`` likewise.
        enrolled: what is copied now.
        limit: the flow's own limit in bytes per second, as it is now; None without one.
        clock: the monotonic clock.

    Attributes:
        heard_ms: when the source has answered last, in ms since 1970; 0 while it has not.
    """

    def __init__(
        self,
        flow: str,
        lanes: int,
        source: Cluster,
        target: Cluster,
        enrolled: Callable[[], Iterable[Enrolment]],
        limit: Callable[[], int | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = names.progress_group(flow)
        self._source = source
        self._target = target
        self._enrolled = enrolled
        self._limit = limit
        self._movement = Movement(lanes)
        self._clock = clock
        self.heard_ms = 0
        self._next_s = 0.0
        self._known: dict[TopicPartition, Standstill] = {}

    def tick(self) -> Mapping[TopicPartition, Standstill]:
        """Return what stands still, as it was seen last; look again where that is due."""
        begun_s = self._clock()
        if begun_s >= self._next_s:
            try:
                self._known = self._look()
            except OnceoverError as error:
                # Nobody's work waits for this, and who is away is told elsewhere.
                log.debug("whether partitions move cannot be seen now: %s", error)
            ended_s = self._clock()
            self._next_s = ended_s + max(_LOOK_S, (ended_s - begun_s) / _SHARE)
        return self._known

    def _look(self) -> dict[TopicPartition, Standstill]:
        sources = {e.target_of(tp): tp for e in self._enrolled() for tp in e.sources()}
        if not sources:
            return {}
        committed = self._target.each_committed(self._group, sources, stable=False).found
        positions = {sources[target]: told.offset for target, told in committed.items()}
        # The positions first: what is in front of them then has been there before.
        ends = self._source.each_offset(positions, calls.LATEST).found
        now_s, at_ms = self._clock(), now_ms()
        if ends:
            self.heard_ms = at_ms
        still = self._movement.seen(positions, ends, now_s, self._limit())
        since = {tp: at_ms - int((now_s - since_s) * 1000) for tp, since_s in still.items()}
        # As it was told first: a time that jitters would be another value at each look.
        return {
            tp: known
            if (known := self._known.get(tp)) is not None and known.position == positions[tp]
            else Standstill(positions[tp], at)
            for tp, at in since.items()
        }
