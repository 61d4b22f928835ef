"""Which partitions a group may not be moved in, because source and copy have parted.

What the offset map tells of them is about records that one of the two does not hold any more: an exact answer
would be a wrong one (G7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from onceover.groups.commits import Committed
from onceover.kafka.logs.batchat import batches_at
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.log import StateLog
from onceover.state.records.progress import beside
from onceover.stops.codes import StopCode
from onceover.stops.lastbatch import is_another, place_of
from onceover.stops.record import readable_stop
from onceover.wire.progress import CopiedBatch, last_before

_PARTED: Final = frozenset({str(StopCode.SOURCE_DIVERGED), str(StopCode.TARGET_SHORTENED)})

# A source partition and its counterpart.
Sides = tuple[TopicPartition, TopicPartition]
# Code and text.
Parted = tuple[str, str]


class Histories:
    """Looks again and again. Not thread-safe; the caller closes the clusters.

    Args:
        flow: name of the flow.
        source: source cluster; ``target`` likewise.
    """

    def __init__(self, flow: str, source: Cluster, target: Cluster) -> None:
        self._source = source
        self._target = target
        self._state = StateLog(target, names.state_topic(flow), names.STATE_OTHERS)

    def close(self) -> None:
        """Close the connection of its own."""
        self._state.close()

    def parted(
        self, pairs: Iterable[Sides], progress: Committed, topics: Mapping[str, TopicInfo]
    ) -> dict[TopicPartition, Parted]:
        """Return why groups are left alone in some partitions, by *source* partition.

        A lane has stopped there, or would when it looked: the source no longer holds the batch that was
        copied last. What does not answer has no say: in a failover the source may be away.

        Args:
            progress: committed positions, by target partition.
            topics: of the source, as far as it tells.

        Raises:
            Retriable: the flow's state cannot be read.
        """
        pairs = list(pairs)
        stops = self._target.retry(lambda: self._state.catch_up(wait=False)) if pairs else {}
        found = {source: told for source, target in pairs if (told := _stopped(stops, target))}
        copied = {}
        for source, target in pairs:
            committed = progress.get(target)
            meta = beside(committed).meta
            batch = last_before(committed.offset, meta.batch) if committed and meta else None
            if (
                batch is not None
                and committed is not None
                and source not in found
                and _is_led(source, topics)
            ):
                copied[source] = (batch, committed.offset)
        return found | self._others(copied, topics)

    def _others(
        self, copied: Mapping[TopicPartition, tuple[CopiedBatch, int]], topics: Mapping[str, TopicInfo]
    ) -> dict[TopicPartition, Parted]:
        places = {tp: place_of(batch, at, tp, topics[tp.topic]) for tp, (batch, at) in copied.items()}
        seen = batches_at(self._source, places).found
        return {
            tp: (
                str(StopCode.SOURCE_DIVERGED),
                f"{tp} holds another batch before offset {copied[tp][1]} than was copied from there",
            )
            for tp, header in seen.items()
            if is_another(copied[tp][0], header)
        }


def ends_early(source: TopicPartition, end: int | None, position: int) -> Parted | None:
    """Return why groups are left alone where the source holds less than was copied; None where it does not.

    Args:
        end: of the source's log, read after the position; None where it is not known.
    """
    if end is None or end >= position:
        return None
    return str(StopCode.SOURCE_DIVERGED), f"{source} ends at offset {end}, and was copied up to {position}"


def _stopped(others: Mapping[str, Any], target: TopicPartition) -> Parted | None:
    # A stop that nobody can read says nothing; the source is asked then.
    stop = readable_stop(others, target)
    if stop is None or stop.code not in _PARTED:
        return None
    return stop.code, f"the partition is stopped: {stop.message}"


def _is_led(tp: TopicPartition, topics: Mapping[str, TopicInfo]) -> bool:
    info = topics.get(tp.topic)
    leader = info.partitions.get(tp.partition) if info else None
    return leader is not None and leader.leader >= 0
