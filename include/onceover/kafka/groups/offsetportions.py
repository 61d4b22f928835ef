"""Committed offsets, cut into what one request may hold. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.portions import portions_of
from onceover.model import TopicPartition

# The group's coordinator writes one request as one batch into its own topic, which takes 1 MB by default
# (offset key and value repeat the group's and the topic's names).
_BYTES: Final = 500_000
_OVERHEAD_BYTES: Final = 400


def offset_portions(
    offsets: Mapping[TopicPartition, OffsetToCommit],
) -> Iterator[dict[TopicPartition, OffsetToCommit]]:
    """Yield the offsets of a group in portions that its coordinator takes at once."""
    for portion in portions_of(offsets.items(), _BYTES, _size):
        yield dict(portion)


def _size(offset: tuple[TopicPartition, OffsetToCommit]) -> int:
    return len(offset[0].topic) + len(offset[1].metadata) + _OVERHEAD_BYTES
