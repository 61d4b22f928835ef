"""Reading a flow's offset map (docs/positions.md): what receipts, translation and upkeep stand on.

Invariant: a partition's entries come in log order, so that whoever applies them one after the other has
what the topic says, whether old records were merged meanwhile or not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from onceover.backoff import StallLimit
from onceover.errors import NeedsOperator
from onceover.kafka import calls
from onceover.kafka.each import Each
from onceover.kafka.logs.between import Interval, IntervalReader
from onceover.kafka.logs.reading import OffsetGone, TopicGone
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.wire.batches.batch import Buffer
from onceover.wire.batches.records import decode
from onceover.wire.batches.visibility import Visible
from onceover.wire.offsetmap import MapKey, MapRecord, decode_map_key, decode_map_value, key_named_by

log = logging.getLogger(__name__)

# One answer is decoded and applied as a whole: a quarter of a second of work, a few MB of memory.
_MAX_BYTES: Final = 1 << 20
# A killed lane's open transaction holds the LSO until the target aborts it, after 15 s.
_SETTLE_S: Final = 30.0


class MapEntry(NamedTuple):
    """One record of the topic; ``record`` None removes what stands under the key."""

    offset: int
    key: MapKey
    record: MapRecord | None


class Unread(NamedTuple):
    """A record of the topic that cannot be read; what its key names, if it names anything, and why."""

    offset: int
    key: MapKey | None
    error: NeedsOperator


class Chunk(NamedTuple):
    """What one answer brought of one partition.

    ``next_offset`` and ``epoch`` are where reading goes on and the leader epoch of what came before it.
    """

    partition: int
    entries: list[MapEntry]
    next_offset: int
    epoch: int
    unread: Sequence[Unread] = ()


class Point(NamedTuple):
    """Where a partition was read to, and the leader epoch of the last batch; ``NO_EPOCH``: not known."""

    offset: int
    epoch: int = calls.NO_EPOCH


class MapChanged(Exception):
    """The topic's log is no longer the one that was read before: begin this partition anew.

    Args:
        partition: its number.
    """

    def __init__(self, partition: int) -> None:
        super().__init__(f"the log of the offset map's partition {partition} has changed")
        self.partition = partition


@dataclass(frozen=True)
class MapTopic:
    """The topic of a flow's map, as it is now.

    Args:
        target: where it is.
        info: its metadata.
    """

    target: Cluster
    info: TopicInfo

    @classmethod
    def find(cls, target: Cluster, flow: str) -> MapTopic | None:
        """Return the topic, None when there is none.

        Raises:
            Retriable: the target is away.
        """
        name = names.map_topic(flow)
        info = target.topics([name]).get(name)
        return None if info is None else cls(target, info)

    @property
    def topic_id(self) -> UUID:
        """Another one after the topic was deleted and created anew."""
        return self.info.topic_id

    def starts(self, partitions: list[int]) -> dict[int, int]:
        """Return the first offset that the log still has, by partition."""
        return self._offsets(partitions, calls.EARLIEST, calls.READ_COMMITTED)

    def ends(self, partitions: list[int], *, settled: bool = False) -> dict[int, int]:
        """Return up to where to read, by partition.

        Args:
            settled: the high watermark instead of the LSO: reading to it waits for open transactions.
        """
        isolation = calls.READ_UNCOMMITTED if settled else calls.READ_COMMITTED
        return self._offsets(partitions, calls.LATEST, isolation)

    def each_bounds(self, partitions: list[int], *, settled: bool = False) -> Each[int, tuple[int, int]]:
        """Return both, with the partitions beside it that are not answered."""
        isolation = calls.READ_UNCOMMITTED if settled else calls.READ_COMMITTED
        # In this order: what expires in between is before the start, and not behind the end.
        ends = self._each(partitions, calls.LATEST, isolation)
        starts = self._each(list(ends.found), calls.EARLIEST, calls.READ_COMMITTED)
        found = {p: (start, ends.found[p]) for p, start in starts.found.items()}
        return Each(found, {**ends.failed, **starts.failed})

    def _offsets(self, partitions: list[int], what: int, isolation: int) -> dict[int, int]:
        return self._each(partitions, what, isolation).whole()

    def _each(self, partitions: list[int], what: int, isolation: int) -> Each[int, int]:
        each = self.target.each_offset(
            [TopicPartition(self.info.name, p) for p in partitions], what, isolation
        )
        return Each(
            {tp.partition: offset for tp, offset in each.found.items()},
            {tp.partition: error for tp, error in each.failed.items()},
        )

    def holds(self, partition: int, point: Point) -> bool:
        """Tell whether the log before ``point`` is still the one that was read (KIP-320)."""
        tp = TopicPartition(self.info.name, partition)
        epoch, end = self.target.retry(lambda: self.target.epoch_ends({tp: point.epoch}))[tp]
        return epoch == point.epoch and end >= point.offset

    def read(
        self,
        points: Mapping[int, Point],
        ends: Mapping[int, int],
        *,
        settle_s: float | None = None,
        skip: bool = False,
    ) -> Iterator[Chunk]:
        """Yield what is committed, from ``points`` to at least ``ends``, an answer at a time.

        While an open transaction is waited for, answers come with nothing in them.

        Args:
            settle_s: how long one is waited for; None until the target has aborted a killed lane's.
            skip: give records that cannot be read as ``unread`` of their chunk.

        Raises:
            MapChanged: a point is not in the log any more, or the log before it is another one (KIP-320).
            Retriable: a broker is away, or a transaction stays open before an end; begin again.
            NeedsOperator: a record cannot be read, without ``skip``.
        """
        reader = IntervalReader(
            self.target,
            {self.info.name: self.info},
            {
                TopicPartition(self.info.name, number): Interval(point.offset, ends[number], point.epoch)
                for number, point in points.items()
            },
            StallLimit(_SETTLE_S if settle_s is None else settle_s),
            max_bytes=_MAX_BYTES,
            tolerates=(OffsetGone, TopicGone),
            compacted=True,
        )
        for part in reader.parts():
            number = part.tp.partition
            if part.error is not None:
                raise MapChanged(number) from part.error
            entries, unread = _entries(part.batches, points[number].offset)
            if unread and not skip:
                raise unread[0].error
            yield Chunk(number, entries, part.next_offset, part.epoch, unread)


def say_unread(topic: MapTopic, partition: int, unread: Unread) -> None:
    """Name a record that is left out, for a person."""
    whose = f"{unread.key.source} -> {unread.key.target}" if unread.key else "nobody"
    log.warning(
        "a record of the offset map cannot be read and is left out: partition %d of it, offset %d, of %s "
        "(topic id %s): %s",
        *(partition, unread.offset, whose, topic.topic_id, unread.error),
    )


def _entries(batches: Iterable[Visible], start: int) -> tuple[list[MapEntry], list[Unread]]:
    """Return what batches hold from an offset on."""
    found: list[MapEntry] = []
    unread: list[Unread] = []
    for each in batches:
        for record in () if each.batch is None else decode(each.header, each.batch):
            if record.offset >= start and record.key is not None:
                try:
                    found.append(_entry(record.offset, record.key, record.value))
                except NeedsOperator as error:
                    unread.append(Unread(record.offset, key_named_by(record.key), error))
    return found, unread


def _entry(offset: int, key: Buffer, value: Buffer | None) -> MapEntry:
    named = decode_map_key(key)
    return MapEntry(offset, named, None if value is None else decode_map_value(named, value))
