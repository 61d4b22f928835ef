"""What a lane knows of one partition while it copies it.

Invariant: ``position`` is the source offset after everything that was produced or skipped in the
open transaction; ``committed`` the one of the last committed transaction. They are equal between
transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from onceover.engine.stops import Stop
from onceover.errors import Fatal
from onceover.kafka.ports import Acknowledged, Outgoing
from onceover.model import TopicPartition
from onceover.wire.batch import BatchHeader, parse_header, verify
from onceover.wire.offsetmap import MAX_SEGMENTS, MapRecord, SegmentBuilder
from onceover.wire.progress import ProgressMeta
from onceover.wire.records import reencode, reencode_run
from onceover.wire.visibility import Visible

# A batch costs about 60 us to send and to append, a record about 4 us to re-encode (measured): below
# this many records and bytes, several batches are cheaper as one. Short runs pass as they are, so that
# a gentle stream of single records is not held up by decoding.
_TINY_RECORDS = 8
_TINY_BYTES = 4096
_MERGE_FROM = 8
_MERGED_BYTES = 1 << 18


@dataclass
class Obstacle:
    """What the target refused before, kept over the reset that follows (per partition).

    Args:
        max_batch_bytes: batches larger than this are split (error 10).
        reencode_at: the batch at this base offset is re-encoded instead of passed.
        barrier: copy up to this source offset, then stop with ``stop``.
    """

    max_batch_bytes: int | None = None
    reencode_at: int | None = None
    barrier: int | None = None
    stop: Stop | None = None


class Blocked(Exception):
    """The partition stops at its position."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.message)
        self.stop = stop


@dataclass
class PartitionCopy:
    """One partition under copy."""

    source: TopicPartition
    target: TopicPartition
    source_id: UUID
    target_id: UUID
    committed: int
    leader_epoch: int
    target_end: int
    obstacle: Obstacle
    position: int = field(init=False)
    lso: int = -1
    stopped: bool = False
    bytes: int = 0
    target_start: int = field(init=False)
    runs: int = 0
    _segments: SegmentBuilder = field(default_factory=SegmentBuilder)

    def __post_init__(self) -> None:
        self.position = self.committed
        self.target_start = self.target_end

    @property
    def moved(self) -> bool:
        """True when the open transaction has something to commit for this partition."""
        return self.position != self.committed

    @property
    def map_full(self) -> bool:
        """True when the map record of this transaction should not grow any more."""
        return self.runs >= MAX_SEGMENTS // 2

    @property
    def caught_up(self) -> bool:
        """True when everything up to the LSO of the last answer is in hand."""
        return self.stopped or self.position >= self.lso

    def outgoing(self, visible: list[Visible]) -> Iterator[Outgoing]:
        """Yield the batches to produce, moving ``position`` over them and over what is skipped.

        Raises:
            Blocked: the partition stops at ``position``; what came before it was yielded.
        """
        for group in self._groups(visible):
            if len(group) >= _MERGE_FROM:
                yield from self._merged(group)
            else:
                yield from self._each(group)

    def _groups(self, visible: list[Visible]) -> Iterator[list[Visible]]:
        """Yield runs of tiny batches together, everything else alone."""
        if self.obstacle != Obstacle():
            # What the target refused is found batch by batch; merged again, it would be refused again.
            yield from ([one] for one in visible)
            return
        run: list[Visible] = []
        size = 0
        for one in visible:
            tiny = one.header.size_bytes <= _TINY_BYTES and one.header.count <= _TINY_RECORDS
            if not tiny or size >= _MERGED_BYTES:
                if run:
                    yield run
                run, size = [], 0
            if tiny:
                run.append(one)
                size += one.header.size_bytes
            else:
                yield [one]
        if run:
            yield run

    def _merged(self, group: list[Visible]) -> Iterator[Outgoing]:
        """Copy a run of tiny batches as one: a request takes only one batch of a partition."""
        batches = [(one.header, one.batch) for one in group if one.batch is not None]
        for header, batch in batches:
            verify(header, batch)
        encoded = reencode_run(batches, from_offset=self.position) if batches else None
        if encoded is not None:
            header = parse_header(encoded.batch)
            yield Outgoing(self.target, header, encoded.batch, self.source, tuple(encoded.source_runs))
        self.position = group[-1].header.next_offset
        self.leader_epoch = group[-1].header.leader_epoch

    def _each(self, group: list[Visible]) -> Iterator[Outgoing]:
        for header, batch in group:
            barrier = self.obstacle.barrier
            if barrier is not None and header.last_offset >= barrier:
                if batch is not None:
                    yield from self._reencoded(header, batch, barrier)
                self.position = barrier
                if self.obstacle.stop is None:
                    raise Fatal(f"{self.source}: a barrier without its reason")
                raise Blocked(self.obstacle.stop)
            if batch is not None:
                yield from self._one(header, batch)
            self.position = header.next_offset
            self.leader_epoch = header.leader_epoch

    def _one(self, header: BatchHeader, batch: memoryview) -> Iterator[Outgoing]:
        verify(header, batch)
        cap = self.obstacle.max_batch_bytes
        if (
            header.has_holes
            or header.is_log_append_time
            or header.base_offset < self.position
            or header.base_offset == self.obstacle.reencode_at
            or (cap is not None and header.size_bytes > cap)
        ):
            yield from self._reencoded(header, batch, None)
        else:
            runs = ((header.base_offset, header.count),)
            yield Outgoing(self.target, header, batch, self.source, runs)

    def _reencoded(self, header: BatchHeader, batch: memoryview, end: int | None) -> Iterator[Outgoing]:
        for encoded in reencode(
            header,
            batch,
            from_offset=self.position,
            to_offset=end,
            max_batch_bytes=self.obstacle.max_batch_bytes,
        ):
            yield Outgoing(
                self.target,
                parse_header(encoded.batch),
                encoded.batch,
                self.source,
                tuple(encoded.source_runs),
            )

    def acknowledged(self, ack: Acknowledged) -> None:
        """Note where a batch landed."""
        target = ack.base_offset
        for first, count in ack.outgoing.source_runs:
            self._segments.add(first, target, count)
            target += count
        self.target_end = target
        self.runs += len(ack.outgoing.source_runs)
        self.bytes += ack.outgoing.header.size_bytes

    def map_record(
        self, generation: int, lane: int, instance: tuple[int, int], begin_ms: int, commit_ms: int
    ) -> MapRecord:
        """Return the offset map record of the open transaction."""
        return MapRecord(
            source=self.source,
            target=self.target,
            source_start=self.committed,
            source_end=self.position,
            target_start=self.target_start,
            segments=self._segments.build(),
            bytes=self.bytes,
            generation=generation,
            lane=lane,
            batch=instance[0],
            attempt=instance[1],
            begin_ms=begin_ms,
            commit_ms=commit_ms,
        )

    def metadata(self, generation: int, instance: tuple[int, int]) -> ProgressMeta:
        """Return what is committed beside the position."""
        return ProgressMeta(
            source_topic_id=str(self.source_id),
            target_topic_id=str(self.target_id),
            leader_epoch=self.leader_epoch,
            target_end=self.target_end,
            generation=generation,
            instance=instance,
        )

    def committed_now(self) -> None:
        """Begin the next transaction's account."""
        self.committed = self.position
        self.target_start = self.target_end
        self.bytes = self.runs = 0
        self._segments = SegmentBuilder()
