"""When records were written, for a status: the oldest one that is missing, and the newest commit.

Whoever asks does without what is not answered, in time, of one partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onceover.backoff import Deadline
from onceover.errors import OnceoverError
from onceover.kafka import calls
from onceover.kafka.logs.between import Interval, IntervalPart, IntervalReader
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.wire.batches.batch import BatchHeader, BatchTooLarge, Buffer, CorruptBatch
from onceover.wire.batches.records import decode

# A partition may begin with any number of records that were aborted; a status does not wait for their end.
_LOOK_S: Final = 3.0
_LOOK_BYTES: Final = 1 << 20
# Only the first batch is wanted of one.
_SHARE_BYTES: Final = 1 << 15
# The last offsets are markers of our transactions; a record lies a few offsets before them, but for aborted
# attempts and what upkeep writes: a partition of which these tell nothing is read from further before.
_BEFORE_END: Final = 50
_FURTHER: Final = 8


def oldest_timestamps(
    source: Cluster,
    topics: Mapping[str, TopicInfo],
    intervals: Mapping[TopicPartition, Interval],
    isolation: int = calls.READ_COMMITTED,
) -> dict[TopicPartition, int | None]:
    """Return a timestamp of the first record in each interval, None where there is none.

    One with only markers and aborted records has none. Of what is not answered, or not in time, nothing is
    returned.

    Args:
        topics: the source's metadata.
        isolation: ``READ_UNCOMMITTED`` for records of transactions that are open, too.

    Raises:
        Retriable: a leader is away.
    """
    found: dict[TopicPartition, int | None] = {}
    reader = _reader(source, topics, intervals, Deadline(_LOOK_S), isolation)
    for part in reader.parts():
        met = (each.header.first_timestamp for each in part.batches if each.batch is not None)
        first_ms = next(met, None)
        if first_ms is not None:
            found[part.tp] = first_ms
            reader.leave(part.tp)
        elif part.error is None and part.next_offset >= intervals[part.tp].end:
            found[part.tp] = None
    return found


def last_commit_ms(target: Cluster, flow: str) -> int | None:
    """Return the time of the newest commit that the offset map tells of, None where it tells of none.

    What upkeep merges has the times of commits that are long over, and comes behind those of newer ones.

    Raises:
        Retriable: a leader is away.
    """
    topic = names.map_topic(flow)
    topics = target.topics([topic])
    if topic not in topics:
        return None
    partitions = [TopicPartition(topic, number) for number in topics[topic].partitions]
    ends = target.list_offsets(partitions, calls.LATEST)
    found = _Commits()
    intervals = {tp: Interval(max(0, end - _BEFORE_END), end) for tp, end in ends.items()}
    deadline, size = Deadline(_LOOK_S), _BEFORE_END
    while intervals and not deadline.passed:
        for part in _reader(target, topics, intervals, deadline, compacted=True).parts():
            found.take(part)
        told = found.of_lanes
        rest = {tp: each.start for tp, each in intervals.items() if tp not in told and each.start}
        starts = target.list_offsets(list(rest), calls.EARLIEST) if rest else {}
        size *= _FURTHER
        intervals = {
            tp: Interval(max(starts[tp], ends[tp] - size), end)
            for tp, end in rest.items()
            if starts.get(tp, end) < end
        }
    return found.newest_ms


class _Commits:
    """The commits that map partitions tell of: what lanes have written, apart from what upkeep has."""

    def __init__(self) -> None:
        # Partition, producer and time of each batch.
        self._batches: list[tuple[TopicPartition, int, int]] = []
        self._upkeep: set[int] = set()

    def take(self, part: IntervalPart) -> None:
        """Take in what was read, in its order or from further before."""
        for header, batch in ((each.header, each.batch) for each in part.batches):
            if batch is None:
                continue
            self._batches.append((part.tp, header.producer_id, header.max_timestamp))
            # Only upkeep takes records away: what it has merged comes before that, perhaps in another answer.
            if header.producer_id not in self._upkeep and _takes_away(header, batch):
                self._upkeep.add(header.producer_id)

    @property
    def of_lanes(self) -> dict[TopicPartition, int]:
        """The newest commit of each partition that a lane has written."""
        found: dict[TopicPartition, int] = {}
        for tp, producer_id, at_ms in self._batches:
            if producer_id not in self._upkeep:
                found[tp] = max(at_ms, found.get(tp, at_ms))
        return found

    @property
    def newest_ms(self) -> int | None:
        """The newest one; of those that were merged only where there is no other."""
        merged = (at_ms for _, producer_id, at_ms in self._batches if producer_id in self._upkeep)
        return max(self.of_lanes.values() or merged, default=None)


def _takes_away(header: BatchHeader, batch: Buffer) -> bool:
    try:
        return any(record.value is None for record in decode(header, batch))
    except (CorruptBatch, BatchTooLarge):
        # Who looks its receipts up says so; the time in its header is one all the same.
        return False


def _reader(
    cluster: Cluster,
    topics: Mapping[str, TopicInfo],
    intervals: Mapping[TopicPartition, Interval],
    deadline: Deadline,
    isolation: int = calls.READ_COMMITTED,
    *,
    compacted: bool = False,
) -> IntervalReader:
    return IntervalReader(
        cluster,
        topics,
        intervals,
        deadline,
        isolation=isolation,
        max_bytes=_LOOK_BYTES,
        share_bytes=_SHARE_BYTES,
        tolerates=(OnceoverError,),
        compacted=compacted,
    )
