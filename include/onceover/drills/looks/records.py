"""Reading a few records as a consumer of committed ones would, from an offset on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from onceover.backoff import Backoff, Deadline
from onceover.errors import NotNow, Retriable
from onceover.kafka import calls
from onceover.kafka.logs.fetcher import Fetcher, Position
from onceover.kafka.logs.reading import OffsetGone, batches_in, place
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.wire.batches.records import DecodedRecord, decode
from onceover.wire.batches.visibility import Visible
from onceover.wire.hotpath import FetchedPartition

_FETCH_BYTES: Final = 1 << 20
_WAIT_MS: Final = 200
_ANSWER_S: Final = 5.0
# Of one partition among many, of which little is wanted.
_SHARE_BYTES: Final = 1 << 16

# An offset of a partition.
Place = tuple[TopicPartition, int]


def end_of(cluster: Cluster, tp: TopicPartition) -> int:
    """Return the last stable offset of a partition."""
    return ends_of(cluster, [tp])[tp]


def ends_of(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the last stable offsets of many partitions, asked together."""
    return cluster.retry(lambda: cluster.list_offsets(partitions, calls.LATEST, calls.READ_COMMITTED))


def visible_between(
    cluster: Cluster,
    tp: TopicPartition,
    start: int,
    end: int,
    deadline: Deadline,
    *,
    isolation: int = calls.READ_COMMITTED,
    stall_s: float | None = None,
) -> Iterator[Visible]:
    """Yield the batches that reach into ``[start, end)`` as a consumer meets them.

    Those that none sees come without bytes.

    The bytes are valid until the next one is asked for. A batch may begin before ``start``, or end behind
    ``end``.

    Args:
        end: not behind the last stable offset, or nobody knows when it is reached.
        stall_s: for logs of any length: whoever gets on has so many seconds again.

    Raises:
        Retriable: they cannot be read before ``deadline``.
        OffsetGone: ``start`` is not in the log.
    """
    position = _placed(cluster, {tp: start}, deadline)[tp]
    fetcher = Fetcher(
        cluster,
        isolation=isolation,
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
            before = position.offset
            for _, answer in fetcher.poll(_ANSWER_S):
                for each in batches_in(cluster.alias, tp, answer, position):
                    if each.header.base_offset < end:
                        yield each
            if stall_s is not None and position.offset > before:
                deadline = Deadline(stall_s)
    finally:
        fetcher.close()


def records_between(
    cluster: Cluster,
    tp: TopicPartition,
    start: int,
    end: int,
    deadline: Deadline,
    *,
    isolation: int = calls.READ_COMMITTED,
    stall_s: float | None = None,
) -> Iterator[DecodedRecord]:
    """Yield the committed records of ``[start, end)``, in order; with ``READ_UNCOMMITTED`` all of them.

    Args:
        end: not behind the last stable offset, or nobody knows when it is reached.
        stall_s: as of ``visible_between``.

    Raises:
        As ``visible_between``.
    """
    found = visible_between(cluster, tp, start, end, deadline, isolation=isolation, stall_s=stall_s)
    for each in found:
        if each.batch is not None:
            records = decode(each.header, each.batch)
            yield from (record for record in records if start <= record.offset < end)


def count_between(cluster: Cluster, tp: TopicPartition, start: int, end: int, deadline: Deadline) -> int:
    """Return how many records stand in ``[start, end)``, committed or not; markers are none.

    Raises:
        As ``records_between``.
    """
    if end <= start:
        return 0
    found = records_between(cluster, tp, start, end, deadline, isolation=calls.READ_UNCOMMITTED)
    return sum(1 for _ in found)


def count_that_may_count(
    cluster: Cluster, tp: TopicPartition, start: int, end: int, deadline: Deadline
) -> int:
    """Return how many records of ``[start, end)`` are committed, or may be yet; those of aborted ones do not.

    Raises:
        As ``records_between``.
    """
    if end <= start:
        return 0
    decided = min(end, max(start, end_of(cluster, tp)))
    committed = records_between(cluster, tp, start, decided, deadline) if decided > start else ()
    return sum(1 for _ in committed) + count_between(cluster, tp, decided, end, deadline)


def next_records(
    cluster: Cluster, wanted: Collection[Place], ends: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[Place, DecodedRecord | None]:
    """Return the first committed record from each place on, read together; None without one before the end.

    A place that is not in the log is left out.

    Args:
        ends: of the partitions; not behind their last stable offsets, or nobody knows when they are reached.

    Raises:
        Retriable: they cannot be read before ``deadline``.
    """
    found: dict[Place, DecodedRecord | None] = {at: None for at in wanted if at[1] >= ends.get(at[0], 0)}
    waiting: dict[TopicPartition, list[int]] = {}
    # The lowest offset of a partition is its last one here, and met first.
    for tp, offset in sorted(set(wanted) - found.keys(), reverse=True):
        waiting.setdefault(tp, []).append(offset)
    fetcher = Fetcher(
        cluster,
        isolation=calls.READ_COMMITTED,
        max_bytes=_FETCH_BYTES,
        partition_max_bytes=_SHARE_BYTES,
    )
    try:
        for tp, position in _placed(cluster, {tp: at[-1] for tp, at in waiting.items()}, deadline).items():
            fetcher.assign(tp, position)
        while fetcher.positions:
            if deadline.passed:
                left = min(fetcher.positions)
                raise Retriable(f"{left} on {cluster.alias} cannot be read in time", where=str(left))
            fetcher.request(max_wait_ms=_WAIT_MS, min_bytes=1)
            for tp, answer in fetcher.poll(_ANSWER_S):
                position = fetcher.positions[tp]
                met = _meet(cluster.alias, tp, answer, position, ends[tp], waiting[tp])
                found |= {(tp, offset): record for offset, record in met.items()}
                if waiting[tp]:
                    position.offset = max(position.offset, waiting[tp][-1])
                else:
                    fetcher.remove(tp)
    finally:
        fetcher.close()
    return found


def _meet(
    alias: str, tp: TopicPartition, answer: FetchedPartition, position: Position, end: int, waiting: list[int]
) -> dict[int, DecodedRecord | None]:
    """Return the next record of those offsets for which an answer holds it; take them from ``waiting``."""
    found: dict[int, DecodedRecord | None] = {}
    try:
        for each in batches_in(alias, tp, answer, position):
            for record in decode(each.header, each.batch) if each.batch is not None else ():
                while waiting and waiting[-1] <= record.offset < end:
                    found[waiting.pop()] = record
    except OffsetGone:
        waiting.pop()
        return found
    if position.offset >= end:
        found |= dict.fromkeys(waiting)
        waiting.clear()
    return found


def _placed(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, Position]:
    """Return where to read; a topic that was made a moment ago may have no leader yet."""
    backoff, topics = Backoff(), sorted({tp.topic for tp in offsets})
    while topics:
        infos = cluster.retry(lambda: cluster.topics(topics))
        found = {
            tp: position
            for tp, offset in offsets.items()
            if tp.topic in infos and (position := place(infos[tp.topic], tp.partition, offset)) is not None
        }
        lost = sorted(offsets.keys() - found.keys())
        if not lost:
            return found
        backoff.pause(deadline, NotNow(f"{lost[0]} has no leader on {cluster.alias}", where=str(lost[0])))
    return {}
