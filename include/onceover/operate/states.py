"""The states that `status` knows of flows and partitions: the one list of each. Pure.

Invariant: whoever counts, sorts or explains states takes them from here, so that a new one is
forgotten nowhere.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class CopyState(StrEnum):
    """How it is with a flow's copy. WAITING: the driver shows signs of life, and no lane has begun:
    Spark has not given it a slot yet.
    """

    NOT_STARTED = "not_started"
    WAITING = "waiting"
    COPYING = "copying"
    CAUGHT_UP = "caught_up"
    STOPPED = "stopped"
    FENCED = "fenced"
    PROMOTED = "promoted"
    UNKNOWN = "unknown"


# Of a flow whose driver lives, and whose lanes have begun.
COPIES: Final = frozenset({CopyState.COPYING, CopyState.CAUGHT_UP})


class PartitionState(StrEnum):
    """How it is with a partition, the worst first.

    STUCK: does not move, and nothing that is known explains it. UNKNOWN: nobody knows what is missing. IDLE:
    not caught up while nobody copies.
    """

    STOPPED = "stopped"
    STUCK = "stuck"
    NOT_ENROLLED = "not_enrolled"
    UNKNOWN = "unknown"
    IDLE = "idle"
    COPYING = "copying"
    CAUGHT_UP = "caught_up"


# What somebody has to look at.
PARTITION_NEEDS: Final = frozenset(
    {
        PartitionState.STOPPED,
        PartitionState.STUCK,
        PartitionState.NOT_ENROLLED,
        PartitionState.UNKNOWN,
    }
)
