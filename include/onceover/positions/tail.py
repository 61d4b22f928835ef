"""The newest records of a flow's offset map, from one look to the next.

Invariant: what is committed between two looks is given once, in the order of the log; only where there is
more than a look may read, the rest of it is passed over, and how much that was is said. A record that nobody
can read hides no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onceover.kafka.ports import Cluster
from onceover.positions.reader import MapChanged, MapTopic, Point, Unread, say_unread
from onceover.state import names
from onceover.wire.offsetmap import MapRecord


class TailRead(NamedTuple):
    """What one look has brought.

    Args:
        records: what stands behind the look before; the first look has none.
        passed_over: how many offsets of the map were left out, because there were too many.
        unread: how many records could not be read.
    """

    records: Sequence[MapRecord]
    passed_over: int = 0
    unread: int = 0


class MapTail:
    """Where the looks at one flow's map have come to. Not thread-safe.

    Args:
        flow: name of the flow.
        most: records that a look reads.
    """

    def __init__(self, flow: str, most: int) -> None:
        self._flow = flow
        self._most = most
        self._points: dict[int, Point] = {}
        self._was_absent = False

    def read(self, target: Cluster) -> TailRead:
        """Return what was committed since the last call; nothing where the map is another one by now.

        A record that cannot be read is left out, and named once as a warning.

        Raises:
            Retriable: the target is away.
            UsageError: not authorized.
        """
        topic = MapTopic.find(target, self._flow)
        if topic is None:
            self._was_absent = True
            return TailRead(())
        ends = topic.ends(list(range(names.MAP_PARTITIONS)))
        # Made since the last look, all of it is new.
        first = {number: Point(0 if self._was_absent else end) for number, end in ends.items()}
        points = {**first, **self._points}
        starts = {number: self._start(point, ends[number]) for number, point in points.items()}
        found: list[MapRecord] = []
        unread: list[tuple[int, Unread]] = []
        try:
            for chunk in topic.read(starts, ends, skip=True):
                found += [entry.record for entry in chunk.entries if entry.record is not None]
                unread += [(chunk.partition, each) for each in chunk.unread]
        except MapChanged:
            self._points = {}
            return TailRead(())
        self._points, self._was_absent = {number: Point(end) for number, end in ends.items()}, False
        for number, each in unread:
            say_unread(topic, number, each)
        passed_over = sum(starts[n].offset - point.offset for n, point in points.items())
        return TailRead(found, passed_over, len(unread))

    def _start(self, point: Point, end: int) -> Point:
        """Return where to begin: where the last call ended, unless that is too long ago."""
        return max(point, Point(max(0, end - self._most // names.MAP_PARTITIONS)))
