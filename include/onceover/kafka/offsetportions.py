"""Committed offsets, cut into what one request may hold. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from onceover.kafka.calls import OffsetToCommit
from onceover.model import TopicPartition

# The group's coordinator writes one request as one batch into its own topic, which takes 1 MB by default
# (offset key and value repeat the group's and the topic's names).
_BYTES: Final = 500_000
_OVERHEAD_BYTES: Final = 400


def offset_portions(
    offsets: Mapping[TopicPartition, OffsetToCommit],
) -> Iterator[dict[TopicPartition, OffsetToCommit]]:
    """Yield the offsets of a group in portions that its coordinator takes at once."""
    portion: dict[TopicPartition, OffsetToCommit] = {}
    filled = 0
    for tp, offset in offsets.items():
        size = len(tp.topic) + len(offset.metadata) + _OVERHEAD_BYTES
        if portion and filled + size > _BYTES:
            yield portion
            portion, filled = {}, 0
        portion[tp] = offset
        filled += size
    if portion:
        yield portion
