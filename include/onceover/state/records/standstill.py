"""What a driver writes down about partitions that do not move though there is something to copy. Pure.

Invariant: it is evidence with a time, and no judgement. Whoever reads it compares it with where the partition
is now, and with what else is known of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from onceover.model import TopicPartition
from onceover.state.records.value import mapping, name, partition_number, whole_number

# Of a hundred bytes each: they stay within one record of 1 MiB.
_MOST: Final = 1000


class Standstill(NamedTuple):
    """That a source partition has stood at ``position`` since ``since_ms``, with something behind it."""

    position: int
    since_ms: int


def standstill_note(generation: int, still: Mapping[TopicPartition, Standstill]) -> dict[str, Any]:
    """Return the value under ``still``: the longest first, not more than one record holds."""
    longest = sorted(still, key=lambda tp: (still[tp].since_ms, tp))[:_MOST]
    told = [[tp.topic, tp.partition, *still[tp]] for tp in longest]
    return {"v": 1, "generation": generation, "still": told, "count": len(still)}


def read_standstills(value: Any, generation: int | None) -> dict[TopicPartition, Standstill]:
    """Return what the driver of this generation says; nothing of what an older one has left.

    Raises:
        NeedsOperator, KeyError, TypeError, ValueError: it is something else.
    """
    value = mapping(value, "standstill")
    told = dict(map(_read, value["still"]))
    return told if whole_number(value["generation"]) == generation else {}


def _read(entry: Iterable[Any]) -> tuple[TopicPartition, Standstill]:
    topic, partition, position, since_ms = entry
    tp = TopicPartition(name(topic), partition_number(str(partition)))
    return tp, Standstill(whole_number(position), whole_number(since_ms))
