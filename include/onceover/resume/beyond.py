"""Whether the target holds records of this very lane behind the end that stands beside a position.

A position and what stands beside it are committed with the data, so nothing of ours can follow: where it
does, the pair is an older one that somebody has put back (a tool that restores groups, an older copy of the
offsets topic), and what follows would be copied twice.

Only transactions of the flow's own are looked for: others may write into the copy, and what a killed run left
behind was aborted. They are known by their producer ids: that of the lane now, and that of the pair, under
which the next transaction was written, too, whatever lane and id came later. Only the very last pair of an id
(a change of the number of lanes; every 32,767 transactions) is known by the lane's id of now alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from onceover.kafka import calls
from onceover.kafka.logs.between import batches_between
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.wire.batches.batch import BatchHeader

# Ours would come first: behind the marker of the transaction that is known, and behind what was aborted then.
_MOST_BYTES: Final = 8 << 20
# Of an answer: a lane shares its memory with what it copies.
_ANSWER_BYTES: Final = 1 << 20
# The marker that ends the transaction of a position.
_MARKER: Final = 1


class _TooMuch(Exception):
    """Others have written more than is read."""


class Behind(NamedTuple):
    """What the log says about the end that stands beside a position.

    Args:
        found: target offset of a committed batch of the lane's own behind it, None without.
        is_dropped: the record before it was aborted, although it was told committed (``stops.undecided``).
        is_unclear: the log no longer has what stood there, or others have written so much that ours may come
            behind it: the offset map has to tell (``resume.receipted``).
    """

    found: int | None = None
    is_dropped: bool = False
    is_unclear: bool = False


def behind(
    target: Cluster, tp: TopicPartition, known_end: int, log_end: int, producer_ids: Collection[int]
) -> Behind:
    """Look for what ``producer_ids`` have written behind ``known_end``, and at the record before it.

    Nearly always nothing is read: a transaction that ended well leaves its marker, and nothing else.

    Args:
        tp: target partition.
        known_end: what stands beside the position; ``log_end`` the high watermark now.

    Raises:
        Retriable: the broker is away.
    """
    if log_end <= known_end + _MARKER:
        return Behind()
    log_start = target.list_offsets([tp], calls.EARLIEST)[tp]
    stable_end = target.list_offsets([tp], calls.LATEST, calls.READ_COMMITTED)[tp]
    # Its lane waits for no leader: other partitions have theirs.
    topics = target.topics([tp.topic])
    if log_start < known_end <= stable_end and _is_aborted(target, topics, tp, known_end - 1):
        return Behind(is_dropped=True)
    following = _headers(target, topics, tp, max(known_end, log_start), stable_end)
    try:
        found = _first_of(following, producer_ids)
    except _TooMuch:
        return Behind(is_unclear=True)
    return Behind(found, is_unclear=found is None and log_start > known_end + _MARKER)


def batch_behind(
    target: Cluster, tp: TopicPartition, known_end: int, log_end: int, producer_id: int
) -> int | None:
    """Return the target offset of a batch of ``producer_id`` behind ``known_end``, decided or not.

    Raises:
        Retriable: the broker is away.
    """
    # What is open can be deleted, too, and is open still.
    log_start = target.list_offsets([tp], calls.EARLIEST)[tp]
    topics, start = target.topics([tp.topic]), max(known_end, log_start)
    try:
        return _first_of(_headers(target, topics, tp, start, log_end, calls.READ_UNCOMMITTED), [producer_id])
    except _TooMuch:
        return None


def _is_aborted(target: Cluster, topics: Mapping[str, TopicInfo], tp: TopicPartition, offset: int) -> bool:
    """Tell whether the record at an offset below the LSO is one of an aborted transaction."""
    met = batches_between(target, tp, offset, offset + 1, topics=topics, max_bytes=_ANSWER_BYTES)
    with closing(met):
        for each in met:
            if each.header.base_offset <= offset:
                return each.batch is None and each.header.count > 0 and not each.header.is_control
    # Compaction has removed it.
    return False


def _headers(
    target: Cluster,
    topics: Mapping[str, TopicInfo],
    tp: TopicPartition,
    start: int,
    end: int,
    isolation: int = calls.READ_COMMITTED,
) -> Iterator[BatchHeader]:
    """Yield the headers of the batches with records that begin in ``range(start, end)``."""
    met = batches_between(target, tp, start, end, topics=topics, isolation=isolation, max_bytes=_ANSWER_BYTES)
    with closing(met):
        for each in met:
            if each.batch is not None and each.header.base_offset >= start:
                yield each.header


def _first_of(headers: Iterator[BatchHeader], producer_ids: Collection[int]) -> int | None:
    left_bytes = _MOST_BYTES
    for header in headers:
        if header.producer_id in producer_ids and header.is_transactional:
            return header.base_offset
        left_bytes -= header.size_bytes
        if left_bytes <= 0:
            raise _TooMuch
    return None
