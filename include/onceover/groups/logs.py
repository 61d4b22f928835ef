"""What the partitions hold that groups stand in, on both sides.

Invariant: a partition that cannot be read costs its own groups something, and no others; all are asked
together. Where the receiving log begins and ends has to be known. Where the giving one ends is only shown, so
nobody waits for it: it is asked once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from onceover.backoff import Deadline
from onceover.errors import OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.each import Each, answers_in_time
from onceover.kafka.ports import LogEnds
from onceover.model import TopicPartition

# A partition without a leader must not keep the groups of all others waiting.
_RETRY_S: Final = 5.0


@dataclass(frozen=True)
class Logs:
    """What partitions hold.

    Args:
        giving_ends: LSO of giving partitions, as far as it is known.
        starts: first offset of receiving partitions; ``ends`` their high watermarks.
        unread: why partitions cannot be read that have to be, by receiving partition.
        not_asked: why the giving side did not tell some ends, None where it told all; ``missing`` how many.
    """

    giving_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    unread: Mapping[TopicPartition, OnceoverError] = field(default_factory=dict)
    not_asked: OnceoverError | None = None
    missing: int = 0


def read_logs(giving: LogEnds, receiving: LogEnds, pairs: Mapping[TopicPartition, TopicPartition]) -> Logs:
    """Return what the partitions hold now.

    Args:
        giving: where groups have consumed; ``receiving``: where they go on.
        pairs: receiving partitions by giving partition.

    Raises:
        UsageError: a topic of the receiving side may not be described.
    """
    there = sorted(set(pairs.values()))
    starts = _read(receiving, there, calls.EARLIEST)
    ends = _read(receiving, there, calls.LATEST)
    told = _told(giving, list(pairs))
    return Logs(
        giving_ends=told.found,
        starts=starts.found,
        ends=ends.found,
        unread={**starts.failed, **ends.failed},
        not_asked=next(iter(told.failed.values()), None),
        missing=len(pairs) - len(told.found),
    )


def _told(giving: LogEnds, partitions: list[TopicPartition]) -> Each[TopicPartition, int]:
    try:
        return giving.each_offset(partitions, calls.LATEST)
    except OnceoverError as error:
        return Each(failed=dict.fromkeys(partitions, error))


def _read(cluster: LogEnds, partitions: list[TopicPartition], at: int) -> Each[TopicPartition, int]:
    """Read offsets; those that cannot be read now are asked for again together, for a while."""
    each = answers_in_time(
        cluster.retry,
        partitions,
        lambda some: cluster.each_offset(some, at, calls.READ_UNCOMMITTED),
        Deadline(_RETRY_S),
    )
    for error in each.failed.values():
        if not isinstance(error, Retriable):
            raise error
    return each
