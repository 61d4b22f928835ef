"""Which records a flow has diverted, by its dead-letter topic's own word.

Invariant: a record that is missing on the target counts as diverted only when the dead-letter topic names
its partition and offset; that it was diverted is told as unverifiable, never as right.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from onceover.audit.records.batches import Unreadable
from onceover.audit.records.reader import ReadBatch, Stretch, read_batches
from onceover.audit.records.recordhash import Headers
from onceover.kafka import calls
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition

log = logging.getLogger(__name__)

_FLOW: Final = b"onceover.flow"
_TOPIC: Final = b"onceover.source.topic"
_PARTITION: Final = b"onceover.source.partition"
_OFFSET: Final = b"onceover.source.offset"


def diverted(target: Cluster, topic: str, flow: str) -> dict[TopicPartition, frozenset[int]]:
    """Return the source offsets that are in a flow's dead-letter topic, by source partition.

    Raises:
        Retriable: the target is away.
    """
    found: dict[TopicPartition, set[int]] = {}
    for headers in _headers(target, topic):
        place = _place(headers, flow)
        if place is not None:
            found.setdefault(place[0], set()).add(place[1])
    return {source: frozenset(offsets) for source, offsets in found.items()}


def _headers(target: Cluster, topic: str) -> Iterator[Headers]:
    info = target.retry(lambda: target.topics([topic])).get(topic)
    if info is None:
        return
    tps = [TopicPartition(topic, number) for number in info.partitions]
    starts = target.retry(lambda: target.list_offsets(tps, calls.EARLIEST))
    ends = target.retry(lambda: target.list_offsets(tps, calls.LATEST))
    for tp in tps:
        yield from _of_partition(target, Stretch(tp, info.topic_id, starts[tp], ends[tp]))


def _of_partition(target: Cluster, stretch: Stretch) -> Iterator[Headers]:
    with closing(read_batches(target, stretch)) as reads:
        yield from _readable(
            stretch, (h for read in reads if not read.aborted for h in _of_batch(stretch, read))
        )


def _of_batch(stretch: Stretch, read: ReadBatch) -> Iterator[Headers]:
    return _readable(stretch, (rec.headers for rec in read.batch.decode()))


def _readable(stretch: Stretch, headers: Iterator[Headers]) -> Iterator[Headers]:
    """Yield what can be read. That is not the end of the audit: records that only the rest names count as
    missing, and to readers they are."""
    try:
        yield from headers
    except Unreadable as error:
        log.warning("dead-letter topic: %s cannot be read: %s", stretch.partition, error)


def _place(headers: Sequence[tuple[bytes, bytes | None]], flow: str) -> tuple[TopicPartition, int] | None:
    """Return where a record came from; None when another flow diverted it, or nobody says.

    The flow's headers follow the record's own, so the last of each name counts.
    """
    said = dict(headers)
    topic, partition, offset = said.get(_TOPIC), said.get(_PARTITION), said.get(_OFFSET)
    if said.get(_FLOW) != flow.encode() or not topic or not partition or not offset:
        return None
    if not (partition.isdigit() and offset.isdigit()):
        return None
    return TopicPartition(topic.decode("utf-8", "replace"), int(partition)), int(offset)
