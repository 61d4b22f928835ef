"""The few value types that every layer shares. Immutable, without I/O."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

# Nothing shorter: people have groups that are called after what they use.
_OWN_GROUPS: Final = ("onceover.", "onceover-lag.")


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


def is_own_group(group_id: str) -> bool:
    """Tell whether a group is one that Onceover keeps for itself: progress, lag, drills (``state.names``).

    No filter selects one, whatever it says.
    """
    return group_id.startswith(_OWN_GROUPS)


# Of a flow.
MOST_LANES: Final = 64


def lane_of(source: TopicPartition, lanes: int) -> int:
    """Return the lane that copies ``source``, in ``range(lanes)``.

    The same on every machine and in every process: crc32 is not salted, as ``hash`` is.
    """
    return (zlib.crc32(source.topic.encode()) + source.partition) % lanes
