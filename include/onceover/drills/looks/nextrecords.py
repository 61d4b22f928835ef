"""Which record comes next at many places of a cluster's logs: where groups would go on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from onceover.backoff import Deadline
from onceover.kafka.logs.between import Interval, IntervalPart, IntervalReader, led_topics
from onceover.kafka.logs.reading import OffsetGone
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.wire.batches.records import DecodedRecord, decode

_MAX_BYTES: Final = 1 << 20
# Of one partition among many, of which little is wanted.
_SHARE_BYTES: Final = 1 << 16

# An offset of a partition.
Place = tuple[TopicPartition, int]


def next_records(
    cluster: Cluster, wanted: Collection[Place], ends: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[Place, DecodedRecord | None]:
    """Return the first committed record from each place on, read together; None without one before the end.

    A place that is not in the log is left out.

    Args:
        ends: of the partitions; not behind their last stable offsets, or what is there later is waited for.

    Raises:
        Retriable: they cannot be read before ``deadline``.
    """
    found: dict[Place, DecodedRecord | None] = {at: None for at in wanted if at[1] >= ends.get(at[0], 0)}
    waiting: dict[TopicPartition, list[int]] = {}
    # The lowest offset of a partition is its last one here, and met first.
    for tp, offset in sorted(set(wanted) - found.keys(), reverse=True):
        waiting.setdefault(tp, []).append(offset)
    reader = IntervalReader(
        cluster,
        led_topics(cluster, waiting, deadline),
        {tp: Interval(offsets[-1], ends[tp]) for tp, offsets in waiting.items()},
        deadline,
        max_bytes=_MAX_BYTES,
        share_bytes=_SHARE_BYTES,
        tolerates=(OffsetGone,),
    )
    for part in reader.parts():
        left = waiting[part.tp]
        if part.error is None:
            found |= _met(part, left, ends[part.tp])
        else:
            # So is everything before it.
            while left and left[-1] <= part.next_offset:
                left.pop()
        if not left:
            reader.leave(part.tp)
        elif part.next_offset < left[-1]:
            reader.go_on(part.tp, left[-1])
    return found


def _met(part: IntervalPart, left: list[int], end: int) -> dict[Place, DecodedRecord | None]:
    """Return the next record of those offsets for which a part holds it; take them from ``left``."""
    found: dict[Place, DecodedRecord | None] = {}
    for each in part.batches:
        for record in decode(each.header, each.batch) if each.batch is not None else ():
            while left and left[-1] <= record.offset < end:
                found[part.tp, left.pop()] = record
    if part.next_offset >= end:
        found |= {(part.tp, offset): None for offset in left}
        left.clear()
    return found
