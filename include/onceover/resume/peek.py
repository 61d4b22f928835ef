"""Reading a stretch of a partition record by record, to compare it with another: offset, time, digest.

Reads as any consumer would and decides nothing.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator, Retriable
from onceover.kafka import calls
from onceover.kafka.codes import KafkaCode
from onceover.kafka.logs.fetcher import Fetcher, Position
from onceover.kafka.logs.reading import TopicGone, batches_in, place
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.wire.batches.batch import BatchHeader
from onceover.wire.batches.records import DecodedRecord, decode, encode_body
from onceover.wire.batches.visibility import Visible
from onceover.wire.hotpath import FetchedPartition

_MAX_BYTES: Final = 4 << 20
_WAIT_S: Final = 10.0
_STUCK_S: Final = 30.0
_DIGEST_BYTES: Final = 16
_TIMESTAMP: Final = struct.Struct(">q")


class Peek(NamedTuple):
    """A record: where it is, its time (ms), and a digest of key, value, headers and time."""

    offset: int
    timestamp_ms: int
    digest: bytes


class PartitionReader:
    """Reads one partition forwards. A context manager; not thread-safe.

    Args:
        cluster: where it is.
        tp: the partition.
        isolation: ``READ_COMMITTED``, or ``READ_UNCOMMITTED`` for everything that was written.
    """

    def __init__(self, cluster: Cluster, tp: TopicPartition, isolation: int = calls.READ_COMMITTED) -> None:
        self._cluster = cluster
        self._tp = tp
        self._fetcher = Fetcher(
            cluster, isolation=isolation, max_bytes=_MAX_BYTES, partition_max_bytes=_MAX_BYTES
        )

    def __enter__(self) -> PartitionReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._fetcher.close()

    def read(self, start: int, end: int, limit: int) -> list[Peek]:
        """Return the first ``limit`` records with offsets in ``range(start, end)``.

        Args:
            end: at most the LSO, or the high watermark for ``READ_UNCOMMITTED``.

        Raises:
            Retriable: the broker is away, or the log does not reach ``end``.
            NeedsOperator: the topic is gone, or a batch is damaged.
        """
        return [Peek(r.offset, r.timestamp, digest(r)) for r in islice(self.records(start, end), limit)]

    def records(self, start: int, end: int) -> Iterator[DecodedRecord]:
        """Yield the records with offsets in ``range(start, end)``; as ``read``."""
        for header, batch in self._batches(start, end):
            yield from (r for r in decode(header, batch) if start <= r.offset < end)

    def headers(self, start: int, end: int) -> Iterator[BatchHeader]:
        """Yield the headers of the batches that begin in ``range(start, end)``; as ``read``."""
        yield from (header for header, _ in self._batches(start, end) if header.base_offset >= start)

    def is_aborted(self, offset: int) -> bool:
        """Tell whether the record at an offset below the LSO is one of an aborted transaction.

        Raises:
            Retriable, NeedsOperator: as ``read``.
        """
        for each in self._all(offset, offset + 1):
            header = each.header
            if header.base_offset <= offset:
                return each.batch is None and header.count > 0 and not header.is_control
        # Compaction has removed it.
        return False

    def _batches(self, start: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        for header, batch in self._all(start, end):
            if batch is not None:
                yield header, batch

    def _all(self, start: int, end: int) -> Iterator[Visible]:
        if start >= end:
            return
        position = self._assign(start)
        deadline = Deadline(_STUCK_S)
        while position.offset < end:
            self._fetcher.request(max_wait_ms=100, min_bytes=1)
            for _, answer in self._fetcher.poll(_WAIT_S):
                before = position.offset
                for each in self._visible(answer, position):
                    if each.header.base_offset >= end:
                        return
                    yield each
                if position.offset > before:
                    deadline = Deadline(_STUCK_S)
            if deadline.passed:
                raise Retriable(
                    f"{self._tp} cannot be read to offset {end} on {self._cluster.alias}",
                    seen=f"readable up to {position.offset}",
                )

    def _assign(self, start: int) -> Position:
        # A request that was left behind by a read that ended early would answer for another offset.
        self._fetcher.close()
        info = self._cluster.topics([self._tp.topic]).get(self._tp.topic)
        if info is None or self._tp.partition not in info.partitions:
            raise self._missing()
        position = place(info, self._tp.partition, start)
        if position is None:
            raise Retriable(f"{self._tp} has no leader on {self._cluster.alias} at the moment")
        self._fetcher.assign(self._tp, position)
        return position

    def _visible(self, answer: FetchedPartition, position: Position) -> Iterator[Visible]:
        try:
            yield from batches_in(self._cluster.alias, self._tp, answer, position)
        except TopicGone as error:
            raise self._missing() from error

    def _missing(self) -> NeedsOperator:
        return NeedsOperator(f"{self._tp} does not exist on {self._cluster.alias}", code=KafkaCode.MISSING)


def read_topic(cluster: Cluster, topic: str) -> Iterator[tuple[TopicPartition, DecodedRecord]]:
    """Yield every committed record that a small topic held when the call began; nothing without the topic.

    Raises:
        Retriable: a broker is away; begin again.
    """
    info = cluster.topics([topic]).get(topic)
    if info is None:
        return
    partitions = [TopicPartition(topic, number) for number in sorted(info.partitions)]
    starts = cluster.list_offsets(partitions, calls.EARLIEST)
    ends = cluster.list_offsets(partitions, calls.LATEST)
    for tp in partitions:
        with PartitionReader(cluster, tp) as reader:
            for record in reader.records(starts[tp], ends[tp]):
                yield tp, record


def digest(record: DecodedRecord) -> bytes:
    """Return a digest of everything that a copy must keep; null and empty differ."""
    content = encode_body(record.key, record.value, record.headers)
    return hashlib.blake2b(_TIMESTAMP.pack(record.timestamp) + content, digest_size=_DIGEST_BYTES).digest()
