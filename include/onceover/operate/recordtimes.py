"""When records were written, for a status: the oldest one that is missing, and the newest commit.

Whoever asks does without what is not answered, in time, of one partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onceover.backoff import Deadline
from onceover.errors import OnceoverError
from onceover.kafka import calls
from onceover.kafka.logs.between import Interval, IntervalReader
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names

# A partition may begin with any number of records that were aborted; a status does not wait for their end.
_LOOK_S: Final = 3.0
_LOOK_BYTES: Final = 1 << 20
# Only the first batch is wanted of one.
_SHARE_BYTES: Final = 1 << 15
# The last offsets are markers of our transactions; a record lies a few offsets before them.
_BEFORE_END: Final = 50


def oldest_timestamps(
    source: Cluster,
    topics: Mapping[str, TopicInfo],
    intervals: Mapping[TopicPartition, Interval],
    isolation: int = calls.READ_COMMITTED,
) -> dict[TopicPartition, int]:
    """Return the timestamp of the first record in each interval, where there is one.

    One with only markers and aborted records has none.

    Args:
        topics: the source's metadata.
        isolation: ``READ_UNCOMMITTED`` for records of transactions that are open, too.

    Raises:
        Retriable: a leader is away.
    """
    found: dict[TopicPartition, int] = {}
    reader = _reader(source, topics, intervals, isolation)
    for part in reader.parts():
        met = (each.header.base_timestamp for each in part.batches if each.batch is not None)
        first_ms = next(met, None)
        if first_ms is not None:
            found[part.tp] = first_ms
            reader.leave(part.tp)
    return found


def last_commit_ms(target: Cluster, flow: str) -> int | None:
    """Return the time of the newest record of the offset map, None where there is none.

    Raises:
        Retriable: a leader is away.
    """
    topic = names.map_topic(flow)
    topics = target.topics([topic])
    if topic not in topics:
        return None
    partitions = [TopicPartition(topic, number) for number in topics[topic].partitions]
    ends = target.list_offsets(partitions, calls.LATEST)
    intervals = {tp: Interval(max(0, end - _BEFORE_END), end) for tp, end in ends.items()}
    newest = [
        each.header.max_timestamp
        for part in _reader(target, topics, intervals, compacted=True).parts()
        for each in part.batches
        if each.batch is not None
    ]
    return max(newest, default=None)


def _reader(
    cluster: Cluster,
    topics: Mapping[str, TopicInfo],
    intervals: Mapping[TopicPartition, Interval],
    isolation: int = calls.READ_COMMITTED,
    *,
    compacted: bool = False,
) -> IntervalReader:
    return IntervalReader(
        cluster,
        topics,
        intervals,
        Deadline(_LOOK_S),
        isolation=isolation,
        max_bytes=_LOOK_BYTES,
        share_bytes=_SHARE_BYTES,
        tolerates=(OnceoverError,),
        compacted=compacted,
    )
