"""What a lane knows of one partition while it copies it.

Invariant: ``position`` is the source offset after everything that was produced or skipped in the
open transaction; ``committed`` the one of the last committed transaction. They are equal between
transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from onceover.copy.written import Written
from onceover.errors import Fatal, MustReset
from onceover.handlers.within import LONGEST_S, TookTooLong, within
from onceover.handling.deadletter import DeadLetter
from onceover.handling.handling import (
    MAX_BATCH_BYTES,
    BadRecord,
    Group,
    Handled,
    Handling,
    Request,
    groups,
)
from onceover.handling.obstacles import Blocked, Obstacle
from onceover.kafka.ports import Acknowledged, Outgoing
from onceover.model import TopicPartition
from onceover.stops.record import Stop
from onceover.wire.batches.batch import BatchHeader, BatchTooLarge, CorruptBatch, parse_header, verify
from onceover.wire.batches.kernel import Policy
from onceover.wire.batches.records import (
    EncodedBatch,
    Unmergeable,
    decode_payload,
    reencode,
    reencode_run,
)
from onceover.wire.batches.runs import Run
from onceover.wire.batches.unpack import READERS, Ceiling, Unpacked, unpack, unpack_pieces
from onceover.wire.batches.visibility import Visible
from onceover.wire.offsetlookup import split
from onceover.wire.offsetmap import MAX_SEGMENTS, MapRecord
from onceover.wire.progress import CopiedBatch, ProgressMeta, last_before

# A batch costs about 60 us to send and to append, a record about 4 us to re-encode (measured): below
# this many records and bytes, several batches are cheaper as one. Short runs pass as they are, so that
# a gentle stream of single records is not held up by decoding.
_TINY_RECORDS = 8
_TINY_BYTES = 4096
_MERGE_FROM = 8
_MERGED_BYTES = 1 << 18
# Small as they are, a few kilobytes can stand for gigabytes: more than this is not worth expanding, and
# stays below what a topic takes with default settings.
_MERGED_PLAIN_BYTES = 1 << 19
# Expanded sixteen times it is as large as that.
_SHORTEST_BYTES = 1 << 15
# Compiled, merging a kilobyte of records that are not compressed costs 0.3 us (measured): below this a batch
# is cheaper as a part of a larger one, too.
_SMALL_BYTES = 1 << 16
MERGING = Policy(
    tiny_records=_TINY_RECORDS,
    tiny_bytes=_TINY_BYTES,
    small_bytes=_SMALL_BYTES,
    merge_from=_MERGE_FROM,
    packed_bytes=_MERGED_BYTES,
    plain_bytes=_MERGED_PLAIN_BYTES,
)


@dataclass
class PartitionCopy:
    """One partition under copy.

    ``expanding`` while a batch of it comes in pieces, ``underway`` while ``position`` is not yet behind what
    was taken of it; ``sparing`` while the target counts bytes; ``alone`` unless a handler of before may have
    put copies of other partitions behind ``target_end``; ``last`` is a batch of the source that was read up
    to some offset, by its own numbers: the last one before ``position`` where these say so.
    """

    source: TopicPartition
    target: TopicPartition
    source_id: UUID
    target_id: UUID
    committed: int
    leader_epoch: int
    target_end: int
    obstacle: Obstacle
    handling: Handling | None = None
    dead_letter: DeadLetter | None = None
    ceiling: Ceiling = READERS
    target_epoch: int | None = None
    alone: bool = True
    last: BatchHeader | CopiedBatch | None = None
    position: int = field(init=False)
    lso: int = -1
    stopped: bool = False
    aside: bool = False
    pausing: bool = False
    sparing: bool = False
    expanding: bool = False
    underway: bool = False
    _merging: Policy = MERGING
    written: Written = field(init=False)

    def __post_init__(self) -> None:
        self.position = self.committed
        self.written = Written(self.target_end)

    @property
    def shares_targets(self) -> bool:
        """True when other partitions may write where this one does: to be asked before a request."""
        return self.handling is not None or self.dead_letter is not None

    @property
    def moved(self) -> bool:
        """True when the open transaction has something to commit for this partition."""
        return self.position != self.committed

    @property
    def has_written(self) -> bool:
        """True when the target partition of the same number has something of the open transaction."""
        return self.target_end != self.written.target_start

    @property
    def map_full(self) -> bool:
        """True when the map record of this transaction should not grow any more."""
        return self.written.runs >= MAX_SEGMENTS // 2

    @property
    def caught_up(self) -> bool:
        """True when everything up to the LSO of the last answer is in hand, or no more can be had now."""
        return self.stopped or self.aside or self.position >= self.lso

    @property
    def merges(self) -> bool:
        """True where runs of small batches are wanted together: nobody looks at each."""
        return self.handling is None and self.obstacle.empty

    @property
    def merging(self) -> Policy | None:
        """Which runs of small batches are wanted together; None where none are."""
        return self._merging if self.merges else None

    def outgoing(self, visible: Sequence[Visible | Run]) -> Iterator[Outgoing | None]:
        """Yield the batches to produce, moving ``position`` over them and over what is skipped.

        While ``pausing`` is set, None is yielded as soon as ``position`` is behind everything that was
        yielded: then, and at the end, the transaction may be committed.

        Raises:
            Blocked: the partition stops at ``position``; what came before it was yielded.
        """
        batches: list[Visible] = []
        for one in visible:
            if isinstance(one, Visible):
                batches.append(one)
                continue
            yield from self._some(batches)
            batches = []
            yield from self._run(one)
        yield from self._some(batches)

    def _some(self, visible: list[Visible]) -> Iterator[Outgoing | None]:
        if self.handling is not None:
            yield from self._handled(self.handling, visible)
            return
        for group in self._groups(visible):
            if len(group) >= _MERGE_FROM:
                yield from self._merged(group)
            else:
                yield from self._each(group)

    def _run(self, run: Run) -> Iterator[Outgoing | None]:
        """Copy a run of small batches as one; batch by batch where it cannot be taken apart, or where what
        the target refused is looked for."""
        packing = None if self.sparing else self.obstacle.packing
        merged = run.merged(self.position, _MERGED_PLAIN_BYTES, packing) if self.merges else None
        if merged is not None:
            made = [merged]
            del merged
            yield from self._as_one(made, run.header)
            return
        parts: list[Visible | Run] = []
        damage = None
        try:
            parts.extend(self._parts(run))
        except CorruptBatch as error:
            damage = error
        # What comes before the damage is copied first, so that the stop names its place.
        yield from self.outgoing(parts)
        if damage is not None:
            raise damage

    def _parts(self, run: Run) -> Iterator[Visible | Run]:
        """Yield a run that cannot be merged as shorter ones: what is compressed well expands too far.

        The next ones of this partition are as short. Below some size it is not for that.
        """
        # Two of them, and not what is left over a third time.
        most_bytes = run.size_bytes // 2 + _TINY_BYTES
        if not self.merges or not run.facts.packed or most_bytes < _SHORTEST_BYTES:
            return run.apart()
        self._merging = self._merging._replace(packed_bytes=min(self._merging.packed_bytes, most_bytes))
        return run.within(self._merging)

    def _groups(self, visible: list[Visible]) -> Iterator[list[Visible]]:
        """Yield runs of tiny batches together, everything else alone."""
        if not self.obstacle.empty:
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

    def _merged(self, group: list[Visible]) -> Iterator[Outgoing | None]:
        """Copy a run of tiny batches as one: a request takes only one batch of a partition."""
        batches = [(one.header, one.batch) for one in group if one.batch is not None]
        try:
            for header, batch in batches:
                verify(header, batch)
            encoded = reencode_run(_small(batches), from_offset=self.position) if batches else None
        except (CorruptBatch, BatchTooLarge, Unmergeable):
            yield from self._apart(group)
            return
        made = [] if encoded is None else [encoded]
        del encoded
        yield from self._as_one(made, group[-1].header)

    def _as_one(self, made: list[EncodedBatch], last: BatchHeader) -> Iterator[Outgoing | None]:
        """Send what batches up to ``last`` were merged to, taken out of ``made``, and go behind them."""
        if made:
            # Not held while it is on its way: other partitions merge theirs meanwhile.
            yield self._outgoing(self.target, made.pop())
        self.last = last
        self.position = last.next_offset
        self.leader_epoch = last.leader_epoch
        if self.pausing:
            yield None

    def _apart(self, group: list[Visible]) -> Iterator[Outgoing | None]:
        """Copy what cannot be merged by halves, and in the end one by one: what expands too far passes as
        bytes, and everything before a damaged batch is copied, so that the stop names its place."""
        half = len(group) // 2
        if half < _MERGE_FROM:
            yield from self._each(group)
        else:
            yield from self._merged(group[:half])
            yield from self._merged(group[half:])

    def _each(self, group: list[Visible]) -> Iterator[Outgoing | None]:
        for header, batch in group:
            barrier = self.obstacle.barrier
            if barrier is not None and header.last_offset >= barrier:
                if batch is not None:
                    yield from self._reencoded(header, batch, barrier)
                self.position = barrier
                raise Blocked(self._reason_to_stop())
            if batch is not None:
                yield from self._one(header, batch)
            self.last = header
            self.position = header.next_offset
            self.leader_epoch = header.leader_epoch
            if self.pausing:
                yield None

    def _reason_to_stop(self) -> Stop:
        if self.obstacle.stop is None:
            raise Fatal(f"{self.source}: a barrier without its reason")
        return self.obstacle.stop

    def _one(self, header: BatchHeader, batch: memoryview) -> Iterator[Outgoing | None]:
        verify(header, batch)
        cap = self.obstacle.most_bytes(self.position)
        if (
            header.has_holes
            or header.is_log_append_time
            or header.base_offset < self.position
            or header.base_offset in self.obstacle.reencode
            or (cap is not None and header.size_bytes > cap)
            or self.obstacle.divert
        ):
            yield from self._reencoded(header, batch, None)
        else:
            runs = ((header.base_offset, header.count),)
            yield Outgoing(self.target, header, batch, self.source, runs, self.target_id)

    def _reencoded(
        self, header: BatchHeader, batch: memoryview, end: int | None
    ) -> Iterator[Outgoing | None]:
        """Copy a batch record by record, before ``end``; a large one in pieces, the position behind each."""
        for piece in unpack_pieces(header, batch, self.ceiling):
            behind = piece.header.next_offset if end is None else min(end, piece.header.next_offset)
            self.expanding = piece.header.next_offset < header.next_offset
            batches = [
                self._outgoing(self.target, encoded)
                for encoded in reencode(
                    piece,
                    from_offset=self.position,
                    to_offset=end,
                    max_batch_bytes=self.obstacle.most_bytes(self.position),
                    without=self.obstacle.divert,
                )
            ]
            bad = self._refused_in(piece, behind)
            # Not held while the batches are on their way: other partitions may expand theirs meanwhile.
            del piece
            yield from batches
            if bad:
                yield from self._dead(header.codec, bad)
            if behind > self.position:
                # Together: the epoch before this one ends before the batch, and a position behind its
                # epoch's end looks like another history.
                self.position, self.leader_epoch, self.last = behind, header.leader_epoch, header
            if self.pausing:
                yield None

    def _refused_in(self, piece: Unpacked, end: int) -> list[BadRecord]:
        """Return the records before ``end`` that the target refused before."""
        divert = self.obstacle.divert
        if not any(self.position <= offset < end for offset in divert):
            return []
        found = (r for r in decode_payload(piece, self.position, end) if r.offset in divert)
        return [BadRecord(record, divert[record.offset]) for record in found]

    def _outgoing(self, target: TopicPartition, encoded: EncodedBatch) -> Outgoing:
        header = parse_header(encoded.batch)
        known = self.target_id if target.topic == self.target.topic else None
        return Outgoing(target, header, encoded.batch, self.source, tuple(encoded.source_runs), known)

    # ---- with a handler, and what cannot be copied

    def _handled(self, handling: Handling, visible: list[Visible]) -> Iterator[Outgoing | None]:
        """Copy what the handler makes of the batches, as much at a time as it deals with in a moment."""
        ceiling = Ceiling(handling.group_bytes, self.ceiling.record_bytes)
        for group in groups(visible, ceiling, self.obstacle.pace.share):
            if group.batches and group.end <= self.position:
                # Handled before: the batch is larger than what one turn, or one session, was enough for.
                continue
            try:
                handled = self._timed(handling, group)
            except BatchTooLarge as error:
                yield from self._before(handling, group, error)
                raise
            except CorruptBatch:
                if len(group.batches) == 1:
                    raise
                # One by one: what comes before the damaged one is copied, and the stop names its place.
                for single in group.apart():
                    yield from self._finished(single, self._timed(handling, single))
            else:
                yield from self._finished(group, handled)

    def _before(self, handling: Handling, group: Group, error: BatchTooLarge) -> Iterator[Outgoing | None]:
        """Copy what comes before a record that takes too much, so that the stop names its place."""
        end = error.offset
        batches = [one for one in group.batches if end is not None and one.header.base_offset < end]
        if end is None or end <= self.position or not batches:
            return
        epoch = batches[-1].header.leader_epoch
        before = replace(group, batches=batches, end=end, leader_epoch=epoch)
        yield from self._finished(before, self._timed(handling, before, end))

    def _timed(self, handling: Handling, group: Group, end: int | None = None) -> Handled:
        """Hand a group over, up to ``end``, and learn from how long that takes.

        Raises:
            Blocked: it is one record, and has taken too long several times.
            MustReset: the handler was interrupted.
        """
        if not group.batches:
            return Handled()
        barrier = self.obstacle.barrier
        began_s = time.monotonic()
        if end is None and barrier is not None and group.end > barrier:
            end = barrier
        request = self._request(end)
        pace, records = self.obstacle.pace, sum(piece.header.count for piece in group.batches)
        handled = None
        try:
            handled = within(LONGEST_S, lambda: handling.process(group, request))
        except TookTooLong:
            pace.interrupted(group.end)
        seconds = time.monotonic() - began_s
        if handled is not None:
            pace.took(seconds, group.bytes, group.end)
        if pace.too_slow(seconds, records, self.position):
            # Kept, should the transaction be over by now: the next attempt does not begin with the record.
            self.obstacle.barrier = self.position
            self.obstacle.stop = handling.too_slow(self.position, seconds)
            raise Blocked(self.obstacle.stop)
        if handled is None:
            text = f"the handler did not come back within {LONGEST_S:g} s and was interrupted"
            raise MustReset(f"{text}: {self.source} from offset {self.position}, {records} records")
        return handled

    def _finished(self, group: Group, handled: Handled) -> Iterator[Outgoing | None]:
        """Send what became of a group and go behind it; or stop at the barrier, where there is one."""
        yield from self._results(group, handled)
        barrier = self.obstacle.barrier
        if barrier is not None and group.end > barrier:
            self.position = barrier
            raise Blocked(self._reason_to_stop())
        if group.end > self.position:
            self.position, self.leader_epoch, self.last = group.end, group.leader_epoch, group.last
        if self.pausing:
            yield None

    def _request(self, end: int | None) -> Request:
        return Request(
            from_offset=self.position,
            to_offset=end,
            known_bad=self.obstacle.divert,
            max_batch_bytes=self.obstacle.most_bytes(self.position) or MAX_BATCH_BYTES,
            record_bytes=self.ceiling.record_bytes,
            stop_at_bad=self.dead_letter is None,
        )

    def _results(self, group: Group, handled: Handled) -> Iterator[Outgoing]:
        for partition, encoded in handled.outputs:
            yield self._outgoing(TopicPartition(self.target.topic, partition), encoded)
        if handled.bad:
            yield from self._dead(group.codec, handled.bad)

    def _dead(self, codec: int, bad: list[BadRecord]) -> Iterator[Outgoing]:
        """Send records to the dead-letter topic; without one, stop at the first of them.

        Raises:
            Blocked: there is no dead-letter topic.
        """
        if self.dead_letter is not None:
            limit = self.obstacle.max_dead_letter_bytes or MAX_BATCH_BYTES
            yield from self.dead_letter.outgoing(bad, codec, limit)
            return
        if self.handling is None:
            raise Fatal(f"{self.source}: a diverted record without a dead-letter topic")
        self.position = bad[0].record.offset
        raise Blocked(self.handling.stop_at(bad[0]))

    # ---- the account of the open transaction

    def acknowledged(self, ack: Acknowledged) -> None:
        """Note where a batch landed.

        The end kept beside the progress is not moved by one that went to another partition: it speaks of the
        target partition of the same number, and only has to be a lower bound of its log.
        """
        elsewhere = self.shares_targets and ack.outgoing.target != self.target
        end = self.written.add(ack, elsewhere=elsewhere)
        if not elsewhere:
            self.target_end, self.alone = end, True

    def map_records(
        self, generation: int, lane: int, instance: tuple[int, int], begin_ms: int, commit_ms: int
    ) -> list[MapRecord]:
        """Return the offset map records of the open transaction.

        The first is always that of the target partition of the same number; it covers what was skipped
        or dropped. Others follow for every further target partition that received something. Each is cut
        to what its topic takes: one batch may have lost every second record to compaction.
        """
        own = MapRecord(
            source=self.source,
            target=self.target,
            source_start=self.committed,
            source_end=self.position,
            target_start=self.written.target_start,
            segments=self.written.segments.build(),
            bytes=self.written.bytes,
            generation=generation,
            lane=lane,
            batch=instance[0],
            attempt=instance[1],
            begin_ms=begin_ms,
            commit_ms=commit_ms,
        )
        return self.written.beside(own) if self.shares_targets else split(own)

    def metadata(
        self, generation: int, instance: tuple[int, int], producer_id: int | None = None
    ) -> ProgressMeta:
        """Return what is committed beside the position.

        Args:
            producer_id: of the lane, where it writes this copy alone. Without a record of its own behind what
                others may have written, it stays out: what lies there would be taken for this partition's.
        """
        return ProgressMeta(
            source_topic_id=str(self.source_id),
            target_topic_id=str(self.target_id),
            leader_epoch=self.leader_epoch,
            target_end=self.target_end,
            generation=generation,
            instance=instance,
            position=self.position,
            target_epoch=self.target_epoch,
            producer=producer_id if self.alone else None,
            batch=last_before(self.position, self.last),
        )

    def committed_now(self) -> None:
        """Begin the next transaction's account."""
        self.committed = self.position
        self.written = Written(self.target_end)
        if not self.obstacle.empty:
            self.obstacle.passed(self.committed)


def _small(batches: list[tuple[BatchHeader, memoryview]]) -> list[Unpacked]:
    """Return tiny batches with their records, unless these are not tiny at all.

    Raises:
        CorruptBatch: a batch cannot be decompressed.
        BatchTooLarge: together they expand too far.
    """
    left, found = _MERGED_PLAIN_BYTES, []
    for header, batch in batches:
        found.append(unpack(header, batch, left))
        left -= len(found[-1].payload)
    return found
