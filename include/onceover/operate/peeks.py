"""Looking at single records at the ends of logs: how old what is missing is, and when was committed last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from onceover.kafka import calls
from onceover.kafka.logs.fetcher import Fetcher, Position
from onceover.kafka.logs.reading import batches_in, place
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.wire.batches.visibility import Visible
from onceover.wire.hotpath import FetchedPartition

_PEEK_BYTES: Final = 1 << 18
_PEEK_TRIES: Final = 20
_WAIT_S: Final = 5.0
# The last offsets are markers of our transactions; a record lies a few offsets before them.
_BEFORE_END: Final = 50


def oldest_timestamps(
    source: Cluster,
    topics: Mapping[str, TopicInfo],
    positions: Mapping[TopicPartition, int],
    isolation: int = calls.READ_COMMITTED,
) -> dict[TopicPartition, int]:
    """Return the timestamp of the first visible record at or after each position, where there is one.

    A position with only markers and aborted records behind it has none.

    Args:
        topics: the source's metadata.
        isolation: ``READ_UNCOMMITTED`` for records of transactions that are open, too.

    Raises:
        Retriable: a leader is away.
    """
    found: dict[TopicPartition, int] = {}
    fetcher = _fetcher(source, isolation)
    try:
        for tp, offset in positions.items():
            _assign(fetcher, topics[tp.topic], tp, offset)
        for _ in range(_PEEK_TRIES):
            if not fetcher.positions:
                break
            fetcher.request(max_wait_ms=0, min_bytes=0)
            for tp, answer in fetcher.poll(_WAIT_S):
                position = fetcher.positions[tp]
                before = position.offset
                for each in _seen(source, tp, answer, position):
                    if each.batch is not None:
                        found[tp] = each.header.base_timestamp
                        break
                if tp in found or position.offset == before:
                    fetcher.remove(tp)
    finally:
        fetcher.close()
    return found


def last_commit_ms(target: Cluster, flow: str) -> int | None:
    """Return the time of the newest record of the offset map, None where there is none.

    Raises:
        Retriable: a leader is away.
    """
    topic = names.map_topic(flow)
    info = target.topics([topic]).get(topic)
    if info is None:
        return None
    ends = target.list_offsets([TopicPartition(topic, p) for p in info.partitions], calls.LATEST)
    starts = {tp: max(0, end - _BEFORE_END) for tp, end in ends.items() if end}
    newest: list[int] = []
    fetcher = _fetcher(target)
    try:
        for tp, start in starts.items():
            _assign(fetcher, info, tp, start)
        fetcher.request(max_wait_ms=0, min_bytes=0)
        for _ in range(_PEEK_TRIES):
            if not fetcher.waiting:
                break
            for tp, answer in fetcher.poll(_WAIT_S):
                newest += [
                    each.header.max_timestamp
                    for each in _seen(target, tp, answer, fetcher.positions[tp])
                    if each.batch is not None
                ]
    finally:
        fetcher.close()
    return max(newest, default=None)


def _fetcher(cluster: Cluster, isolation: int = calls.READ_COMMITTED) -> Fetcher:
    return Fetcher(cluster, isolation=isolation, max_bytes=_PEEK_BYTES, partition_max_bytes=_PEEK_BYTES)


def _assign(fetcher: Fetcher, topic: TopicInfo, tp: TopicPartition, offset: int) -> None:
    position = place(topic, tp.partition, offset)
    if position is not None:
        fetcher.assign(tp, position)


def _seen(
    cluster: Cluster, tp: TopicPartition, answer: FetchedPartition, position: Position
) -> Iterator[Visible]:
    """Yield what is in an answer; of one that refuses nothing: whoever peeks does without."""
    if not answer.error_code:
        yield from batches_in(cluster.alias, tp, answer, position)
