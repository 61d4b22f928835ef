"""The few value types that every layer shares. Immutable, without I/O."""

from __future__ import annotations

import zlib
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


def lane_of(source: TopicPartition, lanes: int) -> int:
    """Return the lane that copies ``source``, in ``range(lanes)``.

    The same on every machine and in every process: crc32 is not salted, as ``hash`` is.
    """
    return (zlib.crc32(source.topic.encode()) + source.partition) % lanes
