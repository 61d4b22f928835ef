"""Reading a few records as a consumer of committed ones would, from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onceover.backoff import Backoff, Deadline
from onceover.errors import NotNow, Retriable
from onceover.kafka import calls
from onceover.kafka.cluster import Cluster
from onceover.kafka.fetcher import Fetcher, Position
from onceover.kafka.reading import place, visible
from onceover.model import TopicPartition
from onceover.wire.records import DecodedRecord, decode

_FETCH_BYTES: Final = 1 << 20
_WAIT_MS: Final = 200
_ANSWER_S: Final = 5.0


def end_of(cluster: Cluster, tp: TopicPartition) -> int:
    """Return the last stable offset of a partition."""
    return cluster.retry(lambda: cluster.list_offsets([tp], calls.LATEST, calls.READ_COMMITTED)[tp])


def records_between(
    cluster: Cluster, tp: TopicPartition, start: int, end: int, deadline: Deadline
) -> Iterator[DecodedRecord]:
    """Yield the committed records of ``[start, end)``, in order.

    Args:
        end: not behind the last stable offset, or nobody knows when it is reached.

    Raises:
        Retriable: they cannot be read before ``deadline``.
        OffsetGone: ``start`` is not in the log.
    """
    position = _placed(cluster, tp, start, deadline)
    fetcher = Fetcher(
        cluster,
        isolation=calls.READ_COMMITTED,
        max_bytes=_FETCH_BYTES,
        partition_max_bytes=_FETCH_BYTES,
    )
    try:
        fetcher.assign(tp, position)
        while position.offset < end:
            if deadline.passed:
                raise Retriable(
                    f"{tp} on {cluster.alias} cannot be read to offset {end} in time",
                    where=str(tp),
                    seen=f"read up to {position.offset}",
                )
            fetcher.request(max_wait_ms=_WAIT_MS, min_bytes=1)
            for _, answer in fetcher.poll(_ANSWER_S):
                for each in visible(cluster.alias, tp, answer, position):
                    if each.batch is not None:
                        records = decode(each.header, each.batch)
                        yield from (record for record in records if start <= record.offset < end)
    finally:
        fetcher.close()


def next_record(
    cluster: Cluster, tp: TopicPartition, offset: int, end: int, deadline: Deadline
) -> DecodedRecord | None:
    """Return the first committed record from ``offset`` on that is before ``end``, None without one."""
    if offset >= end:
        return None
    return next(records_between(cluster, tp, offset, end, deadline), None)


def _placed(cluster: Cluster, tp: TopicPartition, offset: int, deadline: Deadline) -> Position:
    """Return where to read; a topic that was made a moment ago may have no leader yet."""
    backoff = Backoff()
    while True:
        info = cluster.retry(lambda: cluster.topics([tp.topic])).get(tp.topic)
        found = None if info is None else place(info, tp.partition, offset)
        if found is not None:
            return found
        backoff.pause(deadline, NotNow(f"{tp} has no leader on {cluster.alias}", where=str(tp)))
