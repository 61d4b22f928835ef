"""What the offset map knows of copies behind a position, where the target's log does not tell any more.

The map is committed together with the position. A record of it that goes on behind a position, of the same
generation or a later one, shows that the position is an older one that somebody has put back; generations
before it do not count: whoever moves a position on purpose begins a new one. The map is read to its end: what
shows it may be its last record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from onceover.engine import names
from onceover.engine.mapreader import MapChanged, MapTopic, Point
from onceover.errors import Retriable
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition, lane_of


class Standing(NamedTuple):
    """A committed position and the generation that stands beside it."""

    position: int
    generation: int


def copied_further(
    target: Cluster, flow: str, standings: Mapping[TopicPartition, Standing]
) -> dict[TopicPartition, int]:
    """Return where copies from behind positions came to lie on the target, for those that have any.

    Args:
        target: open.
        standings: by source partition.

    Raises:
        Retriable: the map cannot be read now.
    """
    topic = MapTopic.find(target, flow) if standings else None
    if topic is None:
        return {}
    found: dict[TopicPartition, int] = {}
    there = topic.info.partitions
    partitions = sorted({lane_of(tp, names.MAP_PARTITIONS) for tp in standings} & there.keys())
    points = {partition: Point(start) for partition, start in topic.starts(partitions).items()}
    try:
        for chunk in topic.read(points, topic.ends(partitions)):
            for _, _, record in chunk.entries:
                standing = None if record is None else standings.get(record.source)
                if record is None or standing is None or record.generation < standing.generation:
                    continue
                if record.source_end > standing.position:
                    found[record.source] = record.target_start
    except MapChanged as changed:
        raise Retriable(str(changed)) from changed
    return found
