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

from collections.abc import Collection
from typing import Final, NamedTuple

from onceover.kafka import calls
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.resume.peek import PartitionReader

# Ours would come first: behind the marker of the transaction that is known, and behind what was aborted then.
_MOST_BYTES: Final = 8 << 20
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
    with PartitionReader(target, tp) as reader:
        if log_start < known_end <= stable_end and reader.is_aborted(known_end - 1):
            return Behind(is_dropped=True)
        try:
            found = _first_of(reader, max(known_end, log_start), stable_end, producer_ids)
        except _TooMuch:
            return Behind(is_unclear=True)
    return Behind(found, is_unclear=found is None and log_start > known_end + _MARKER)


def written_behind(
    target: Cluster, tp: TopicPartition, known_end: int, log_end: int, producer_id: int
) -> int | None:
    """Return the target offset of a batch of ``producer_id`` behind ``known_end``, decided or not.

    Raises:
        Retriable: the broker is away.
    """
    # What is open can be deleted, too, and is open still.
    log_start = target.list_offsets([tp], calls.EARLIEST)[tp]
    with PartitionReader(target, tp, calls.READ_UNCOMMITTED) as reader:
        try:
            return _first_of(reader, max(known_end, log_start), log_end, [producer_id])
        except _TooMuch:
            return None


def _first_of(reader: PartitionReader, start: int, end: int, producer_ids: Collection[int]) -> int | None:
    left_bytes = _MOST_BYTES
    for header in reader.headers(start, end):
        if header.producer_id in producer_ids and header.is_transactional:
            return header.base_offset
        left_bytes -= header.size_bytes
        if left_bytes <= 0:
            raise _TooMuch
    return None
