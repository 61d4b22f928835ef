"""What a lane does with records that do not just pass: the flow's handler and its dead-letter topic.

Invariant: without either, nothing here costs anything. The handler itself is made by the composition root
and called only through the factory, so that a lane loads no Arrow without need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from onceover.handling.deadletter import DeadLetter
from onceover.handling.handling import Handling
from onceover.kafka.ports import TopicCatalog
from onceover.model import TopicPartition
from onceover.stops.contents import listener_failed
from onceover.stops.record import Stop

log = logging.getLogger(__name__)

# Returns the type and place of what a listener raised; its text may quote a record and is not shown.
Tell = Callable[[Sequence[TopicPartition]], str | None]


@dataclass(frozen=True)
class HandlerUse:
    """How a lane uses a handler.

    Args:
        name: as the flow file says.
        form: makes one partition's way through it, for so many target partitions.
        gained: tells it which partitions came; returns what went wrong. ``lost`` likewise.
    """

    name: str
    form: Callable[[TopicPartition, int], Handling]
    gained: Tell
    lost: Tell


@dataclass
class LaneHandler:
    """One lane task's handler and dead letter.

    Args:
        flow: name of the flow.
        source_alias: name of the source cluster.
        use: the handler, None when the flow has none.
        dead_letter: topic for bad records, None to stop at them.
    """

    flow: str = ""
    source_alias: str = ""
    use: HandlerUse | None = None
    dead_letter: str | None = None
    _dead_partitions: int = 1
    _held: dict[TopicPartition, None] = field(default_factory=dict)

    def open(self, target: TopicCatalog) -> None:
        """Look at the dead-letter topic; to be called before each session.

        Where it is gone, or may not be seen, nobody is told yet: it is the trouble of whoever has a record
        for it, to whom sending that record says so.

        Raises:
            Retriable: the target is away.
        """
        if self.dead_letter is not None:
            found = target.each_topic([self.dead_letter]).found.get(self.dead_letter)
            self._dead_partitions = len(found.partitions) if found else 1

    def handling(self, source: TopicPartition, target_partitions: int) -> Handling | None:
        """Return a partition's way through the handler."""
        return None if self.use is None else self.use.form(source, target_partitions)

    def dead_letter_of(self, source: TopicPartition, source_id: UUID) -> DeadLetter | None:
        """Return where the bad records go of a partition of the topic with this id."""
        if self.dead_letter is None:
            return None
        target = TopicPartition(self.dead_letter, source.partition % self._dead_partitions)
        return DeadLetter(self.flow, self.source_alias, source, source_id, target)

    def assigned(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Stop]:
        """Tell the handler what the lane has lost and gained since the last call.

        Returns:
            A stop for every gained partition when the handler fails on them.
        """
        gained = [tp for tp in positions if tp not in self._held]
        self._tell_lost([tp for tp in self._held if tp not in positions])
        self._held = dict.fromkeys(positions)
        if self.use is None or not gained:
            return {}
        seen = self.use.gained(gained)
        if seen is None:
            return {}
        for tp in gained:
            del self._held[tp]
        return {tp: listener_failed(self.flow, tp, positions[tp], self.use.name, seen) for tp in gained}

    def released(self) -> None:
        """Tell the handler that the lane's task is over."""
        self._tell_lost(self._held)
        self._held = {}

    def _tell_lost(self, lost: Iterable[TopicPartition]) -> None:
        partitions = list(lost)
        if self.use is None or not partitions:
            return
        seen = self.use.lost(partitions)
        if seen is not None:
            # There is nothing left to stop: the partitions are not this lane's any more.
            log.error("partitions_lost of handler %s fails: %s", self.use.name, seen)
