"""Looking at single records of either side, as the checks of claims need it.

Invariant: what is returned is what a reader of committed records would see; a log that no longer reaches back
to an offset has no record to show for it. Questions in rising order share what was fetched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Final, Self
from uuid import UUID

from onceover.audit.model import Side
from onceover.audit.records.batches import LARGEST_RECORD_BYTES, Batch, Unreadable, too_large
from onceover.audit.records.reader import Gone, ReadBatch, Stretch, read_batches
from onceover.audit.records.recordhash import AuditedRecord
from onceover.audit.records.refusals import NotThere, refusals
from onceover.kafka import calls
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition

# Enough for a batch of most producers; a larger one comes whole.
_FETCH_BYTES: Final = 1 << 18
# Reading on costs less than a new connection and request up to about here.
_READ_ON_BYTES: Final = 4 << 20
# Backwards there is no telling where a record is: markers and aborted records may be many.
_FIRST_STEP: Final = 32
# The records of a batch are kept together, each with this much beside its content.
_REC_BYTES: Final = 400
_HEADER_BYTES: Final = 80


@dataclass
class _Reading:
    """An open stretch of one partition, and the records of the batch that was read last.

    Args:
        batches: what follows.
        begin: from here to ``end`` the records are known; what was read before is forgotten.
        end: where the next batch begins, or later.
        bytes: how much was read so far, for ``offsets`` offsets.
        records: in ``[begin, end)``, as a reader sees them.
    """

    batches: Iterator[ReadBatch]
    begin: int
    end: int
    bytes: int = 0
    offsets: int = 0
    records: list[AuditedRecord] = field(default_factory=list)

    def is_near(self, offset: int) -> bool:
        """Tell whether reading on gets to ``offset`` with little to read."""
        ahead = offset - self.end
        return ahead <= 0 or ahead * self.bytes <= _READ_ON_BYTES * max(1, self.offsets)

    def take(self, batch: Batch, records: list[AuditedRecord] | None) -> None:
        """Take the next batch; ``records`` None when nobody wants to know them."""
        if records is None:
            self.begin, self.records = batch.last_offset + 1, []
        else:
            # Where nothing was, nothing is forgotten.
            self.begin = self.end if self.records else self.begin
            self.records = [record for record in records if record.offset >= self.begin]
        self.end = batch.last_offset + 1
        self.bytes += batch.size_bytes
        self.offsets += batch.last_offset + 1 - batch.base_offset


class Lookup:
    """Looks at records of both clusters. Not thread-safe; a context manager.

    Args:
        clusters: of both sides; belong to the caller.
        untimed: source and target partitions whose timestamps the target makes itself: left out of hashes.
        ids: of the topics that are meant; others of their names are none of them.
        batch_bytes: the most that the records of a batch may take together.
    """

    def __init__(
        self,
        clusters: Mapping[Side, Cluster],
        untimed: Collection[tuple[Side, TopicPartition]] = (),
        batch_bytes: int = LARGEST_RECORD_BYTES,
        ids: Mapping[tuple[Side, str], UUID] = MappingProxyType({}),
    ) -> None:
        self._clusters = clusters
        self._batch_bytes = batch_bytes
        self._untimed = frozenset(untimed)
        self._ids = ids
        self._open: dict[tuple[Side, TopicPartition], _Reading] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open."""
        for key in list(self._open):
            self._forget(key)

    def first(self, side: Side, tp: TopicPartition, offset: int) -> AuditedRecord | None:
        """Return the first record at or after ``offset``, None when there is none below the LSO.

        None, too, when the log no longer begins at or before ``offset``.

        Raises:
            Retriable: the cluster is away.
            Unreadable: it is in a batch that is damaged, or too large, or in a log that may not be read.
        """
        key = side, tp
        reading = self._open.get(key)
        if reading is None or offset < reading.begin or not reading.is_near(offset):
            self._forget(key)
            reading = self._begin(side, tp, offset)
            if reading is None:
                return None
            self._open[key] = reading
        try:
            found = self._advance(key, reading, offset)
        except Unreadable:
            # What follows was not looked at: it must not count as "nothing there" the next time.
            self._forget(key)
            raise
        if found is None:
            # It was read to an end that has moved since; the next question begins anew.
            self._forget(key)
        return found

    def begins(self, side: Side, tp: TopicPartition) -> int:
        """Return the first offset of the log as it is now.

        Raises:
            Retriable: the cluster is away.
            Unreadable: the log may not be read, or is gone.
        """
        self._topic(side, tp)
        return self._offset(side, tp, calls.EARLIEST)

    def last_before(self, side: Side, tp: TopicPartition, offset: int) -> AuditedRecord | None:
        """Return the last record before ``offset``, None when the log holds none.

        A log that has lost its end (unclean leader election) shows the last one that it has.

        Raises:
            Retriable: the cluster is away.
            Unreadable: it is in a batch that is damaged, or too large, or in a log that may not be read.
        """
        start = self.begins(side, tp)
        # Behind it there would be nothing to read, however long that is waited for.
        offset = min(offset, self._offset(side, tp, calls.LATEST))
        step = _FIRST_STEP
        while offset > start:
            begin = max(start, offset - step)
            found = self._last(side, tp, begin, offset)
            if found is not None or begin == start:
                return found
            step *= 4
        return None

    def _last(self, side: Side, tp: TopicPartition, begin: int, end: int) -> AuditedRecord | None:
        last: AuditedRecord | None = None
        stretch = self._stretch(side, tp, begin, end)
        if stretch is None:
            return None
        try:
            for read in read_batches(self._clusters[side], stretch, fetch_bytes=_FETCH_BYTES):
                if not read.aborted:
                    last = next(
                        (r for r in reversed(self._decoded(side, tp, read)) if begin <= r.offset < end), last
                    )
        except Gone:
            return None
        return last

    def _begin(self, side: Side, tp: TopicPartition, offset: int) -> _Reading | None:
        stretch = self._stretch(side, tp, offset, offset)
        stable = offset if stretch is None else self._offset(side, tp, calls.LATEST)
        if stretch is None or stable <= offset:
            return None
        stretch = stretch._replace(end=stable)
        return _Reading(read_batches(self._clusters[side], stretch, fetch_bytes=_FETCH_BYTES), offset, offset)

    def _advance(
        self, key: tuple[Side, TopicPartition], reading: _Reading, offset: int
    ) -> AuditedRecord | None:
        while True:
            place = bisect_left(reading.records, offset, key=lambda record: record.offset)
            if place < len(reading.records):
                return reading.records[place]
            try:
                read = next(reading.batches, None)
            except Gone:
                return None
            if read is None:
                return None
            # Decoded at once, because the buffer belongs to the next answer.
            reading.take(read.batch, self._visible(key, read, offset))

    def _visible(
        self, key: tuple[Side, TopicPartition], read: ReadBatch, offset: int
    ) -> list[AuditedRecord] | None:
        if read.aborted:
            return []
        return self._decoded(*key, read) if read.batch.last_offset >= offset else None

    def _decoded(self, side: Side, tp: TopicPartition, read: ReadBatch) -> list[AuditedRecord]:
        timed, left, found = (side, tp) not in self._untimed, self._batch_bytes, []
        for rec in read.batch.decode(timed=timed, record_bytes=self._batch_bytes):
            found.append(rec)
            left -= (
                _REC_BYTES + len(rec.key or b"") + len(rec.value or b"") + _HEADER_BYTES * len(rec.headers)
            )
            if left < 0:
                expected = f"records of {self._batch_bytes} bytes together"
                raise too_large(read.batch.base_offset, expected, "more")
        return found

    def _offset(self, side: Side, tp: TopicPartition, which: int) -> int:
        cluster = self._clusters[side]
        with refusals():
            return cluster.retry(lambda: cluster.list_offsets([tp], which))[tp]

    def _stretch(self, side: Side, tp: TopicPartition, begin: int, end: int) -> Stretch | None:
        info = self._topic(side, tp)
        return None if info is None else Stretch(tp, info.topic_id, begin, end)

    def _topic(self, side: Side, tp: TopicPartition) -> TopicInfo | None:
        """Return the topic as it is now, None where there is none, and nobody says which one is meant.

        Raises:
            NotThere: it is another one than is meant.
        """
        cluster = self._clusters[side]
        with refusals():
            info = cluster.retry(lambda: cluster.topics([tp.topic])).get(tp.topic)
        meant = self._ids.get((side, tp.topic))
        if meant is not None and (info is None or info.topic_id != meant):
            raise NotThere(f"{tp.topic} is not on {cluster.alias} any more", where=str(tp))
        return info

    def _forget(self, key: tuple[Side, TopicPartition]) -> None:
        reading = self._open.pop(key, None)
        close = getattr(reading.batches, "close", None) if reading is not None else None
        if close is not None:
            close()
