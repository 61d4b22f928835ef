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
from typing import Final

from onceover.engine.peek import PartitionReader
from onceover.kafka import calls
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition

# Ours would come first: behind the marker of the transaction that is known, and behind what was aborted then.
_MOST_BYTES: Final = 8 << 20
# The marker that ends the transaction of a position.
_MARKER: Final = 1


def written_beyond(
    target: Cluster, tp: TopicPartition, known_end: int, log_end: int, producer_ids: Collection[int]
) -> int | None:
    """Return the target offset of a committed batch of ``producer_ids`` behind ``known_end``, None without.

    Nearly always nothing is read: a transaction that ended well leaves its marker, and nothing else.

    Args:
        tp: target partition.
        known_end: what stands beside the position; ``log_end`` the high watermark now.

    Raises:
        Retriable: the broker is away.
    """
    if log_end <= known_end + _MARKER:
        return None
    stable_end = target.list_offsets([tp], calls.LATEST, calls.READ_COMMITTED)[tp]
    left_bytes = _MOST_BYTES
    with PartitionReader(target, tp) as reader:
        for header in reader.headers(known_end, stable_end):
            if header.producer_id in producer_ids and header.is_transactional:
                return header.base_offset
            left_bytes -= header.size_bytes
            if left_bytes <= 0:
                return None
    return None
