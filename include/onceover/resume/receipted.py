"""What the offset map knows of copies behind a position, where the target's log does not tell any more.

The map is committed together with the position. A record of it that goes on behind a position, of the same
generation or a later one, shows that the position is an older one that somebody has put back; generations
before it do not count: whoever moves a position on purpose begins a new one. The map is read to its end,
behind transactions that are open: what shows it may be its last record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from onceover.errors import OnceoverError, Retriable
from onceover.kafka.each import Each
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition, lane_of
from onceover.positions.reader import MapChanged, MapTopic, Point
from onceover.state import names

# Of a lane's time: other lanes' transactions end sooner, and what hangs is looked at again later.
_SETTLE_S: Final = 2.0


class GenerationPosition(NamedTuple):
    """A committed position and the generation that stands beside it."""

    position: int
    generation: int


def copied_further(
    target: Cluster, flow: str, positions: Mapping[TopicPartition, GenerationPosition]
) -> Each[TopicPartition, int]:
    """Return where copies from behind positions came to lie on the target, for those that have any.

    A partition of the map that cannot be read, or not to its end because a transaction is open there, is a
    failure of those whose records it holds.

    Args:
        target: open.
        positions: by source partition.

    Raises:
        Retriable: the target is away.
    """
    topic = MapTopic.find(target, flow) if positions else None
    if topic is None:
        return Each()
    mine: dict[int, dict[TopicPartition, GenerationPosition]] = {}
    for tp, known in positions.items():
        mine.setdefault(lane_of(tp, names.MAP_PARTITIONS), {})[tp] = known
    bounds = topic.each_bounds(sorted(mine.keys() & topic.info.partitions.keys()), settled=True)
    each: Each[TopicPartition, int] = Each()
    failed = dict(bounds.failed)
    for number, (start, end) in bounds.found.items():
        try:
            each.found.update(_further(topic, number, start, end, mine[number]))
        except MapChanged as changed:
            failed[number] = Retriable(str(changed))
        except OnceoverError as error:
            failed[number] = error
    for number, problem in failed.items():
        each.failed.update(dict.fromkeys(mine[number], problem))
    return each


def _further(
    topic: MapTopic, number: int, start: int, end: int, positions: Mapping[TopicPartition, GenerationPosition]
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for chunk in topic.read({number: Point(start)}, {number: end}, settle_s=_SETTLE_S):
        for _, _, record in chunk.entries:
            known = None if record is None else positions.get(record.source)
            if record is None or known is None or record.generation < known.generation:
                continue
            if record.source_end > known.position:
                found[record.source] = record.target_start
    return found
