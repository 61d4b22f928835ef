"""What a refusal of the target is to those whose batches it was about: noted, before all begin anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from onceover.copy.partition import PartitionCopy
from onceover.handling.obstacles import TryOtherwise, obstacle_after
from onceover.kafka.ports import Refused
from onceover.kafka.produce.refusals import TOO_LARGE, own_refused
from onceover.kafka.produce.rounds import made_bytes
from onceover.model import TopicPartition


class _Limit(NamedTuple):
    """A topic does not take batches of this size; ``apart``: of records that stay as they are compressed."""

    topic: str
    size_bytes: int
    apart: bool


def try_otherwise(
    refused: Refused, partitions: Mapping[TopicPartition, PartitionCopy], flow: str
) -> NoReturn:
    """Note what the target did not take, so that the next attempt deals with it; then reset.

    Everything that was refused in the same answer is dealt with at once: each attempt costs a transaction of
    all, and a topic may hold such a record in each of its partitions.

    Args:
        partitions: what the lane copies, by source partition.
        flow: its name.

    Raises:
        TryOtherwise: it does.
        NeedsOperator: it is a record of our own, and will be refused again.
        MustReset: it is one, and may not be.
    """
    each: dict[TopicPartition, Refused] = {}
    for one in (refused, *refused.others):
        if one.outgoing.source is None:
            raise own_refused(one) from refused
        each.setdefault(one.outgoing.source, one)
    for limit in [found for tp, one in each.items() if (found := _narrow(one, partitions[tp], flow))]:
        # Or each of its neighbours would find out for itself, for a transaction of all.
        for other in partitions.values():
            if other.target.topic == limit.topic:
                other.obstacle.takes_less_than(limit.size_bytes, apart=limit.apart)
    more = f", and batches of {len(each) - 1} more partitions" if len(each) > 1 else ""
    raise TryOtherwise(f"{next(iter(each))}: {refused}{more}") from refused


def _narrow(refused: Refused, partition: PartitionCopy, flow: str) -> _Limit | None:
    """Decide what the next attempt does about a batch; return what its neighbours may learn from it."""
    outgoing, apart = refused.outgoing, partition.obstacle.packing.apart
    dead_letter = partition.dead_letter.target.topic if partition.dead_letter else None
    obstacle_after(refused, outgoing, partition.obstacle, flow, partition.source, dead_letter)
    if refused.code in TOO_LARGE and outgoing.header.count > 1 and made_bytes(outgoing):
        return _Limit(outgoing.target.topic, outgoing.header.size_bytes, apart)
    return None
