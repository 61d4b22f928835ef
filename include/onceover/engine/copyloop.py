"""The copy: fetch, produce, and commit data, map and progress in one transaction (DESIGN 6).

Invariant: EndTxn is sent only after every batch, the map and the progress were acknowledged; whatever
goes wrong before leaves the loop as ``MustReset`` or ``Retriable``, and the transaction is never
committed.

How a batch is made durable is the producer's business: the loop hands over rounds of one batch per
partition and learns base offsets.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from onceover.engine import names
from onceover.engine.obstacles import ABOUT_A_RECORD, Blocked, TryOtherwise, obstacle_after
from onceover.engine.partition import PartitionCopy
from onceover.engine.reading import Review, Source, Throttle
from onceover.engine.review import Reviewed
from onceover.engine.rounds import OWN_BATCH_BYTES, distinct_targets, made_bytes, pieces
from onceover.engine.steps import Step, reached
from onceover.engine.stops import Stop, damaged_batch, memory_too_small
from onceover.engine.suspects import Suspects
from onceover.errors import MustReset, NeedsOperator, OnceoverError
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.ports import Acknowledged, Outgoing, Refused, TxnProducer
from onceover.model import TopicPartition, lane_of
from onceover.wire.batch import BatchTooLarge, CorruptBatch, parse_header
from onceover.wire.hotpath import FetchedPartition
from onceover.wire.offsetmap import MapRecord, encode_map_key, encode_map_value
from onceover.wire.records import control_type, encode
from onceover.wire.visibility import Visible, visible_batches

log = logging.getLogger(__name__)

# The broker works off one connection's requests one after the other; a few in flight keep it busy
# while we stamp the next round, more only hold buffers.
_IN_FLIGHT = 4
_IDLE_WAIT_MS = 500
# What a handler gave for several partitions goes out in requests of about this size.
_REQUEST_BYTES = 1 << 20


_Streams = list[tuple[PartitionCopy, Iterator[Outgoing | None]]]


class _Nothing(Enum):
    """Why a partition's stream has given no batch."""

    PAUSED = auto()
    ENDED = auto()


@dataclass(frozen=True)
class CopySettings:
    """What may change while a lane runs (from the flow file)."""

    max_interval_s: float
    max_bytes: int
    bytes_per_second: float | None


@dataclass(frozen=True)
class LaneIdentity:
    """Who is copying: flow, generation, run, lane of how many, and the instance within them."""

    flow: str
    generation: int
    run: str
    lane: int
    lanes: int
    instance: tuple[int, int]


@dataclass
class Until:
    """When a lane's task ends.

    Args:
        deadline_s: on the monotonic clock.
        ends: stop once these source offsets are committed; None to go on until the deadline.
    """

    deadline_s: float
    ends: Mapping[TopicPartition, int] | None = None
    stopped: bool = False

    def over(self, partitions: Collection[PartitionCopy], waiting: Collection[TopicPartition] = ()) -> bool:
        """Tell whether there is nothing left to do.

        Args:
            waiting: source partitions that may still be copied, or stop; their end may not be known.
        """
        if self.stopped or time.monotonic() >= self.deadline_s:
            return True
        if self.ends is None:
            return False
        positions = {p.source: p.position for p in partitions}
        # One that was set aside is waited for as long as it may come back: `waiting` knows.
        done = all(p.stopped or p.aside or p.position >= self.ends.get(p.source, 0) for p in partitions)
        return done and all(positions.get(tp, 0) >= self.ends.get(tp, math.inf) for tp in waiting)


@dataclass
class CopyLoop:
    """One lane's loop between two resets. Everything it is given is open and checked already.

    Args:
        me: who copies.
        partitions: the lane's partitions that may go on, by source partition.
        fetcher: assigned to exactly these partitions.
        review: decides about partitions that cannot be read for the moment.
        producer: initialised, nothing in the transaction.
        settings: asked before every transaction, and while there is none.
        look_around: asked a few times a second; may raise to end the loop, or set ``until.stopped``.
        after_commit: told the positions after each commit.
        after_stops: told the target partitions whose stop is committed.
        stops: partitions that stop in the first transaction, by target partition.
        resumed: target partitions whose old stop record is removed in the first transaction.
        resting: progress of partitions that are not copied, committed again as it is in the first
            transaction.
        throttle: the bandwidth that was used before.
        suspects: whom to copy alone.
        waits: what to tell `status` about partitions that cannot be copied for now, as records of the state;
            asked before a commit, with those that move on in it.
        round_bytes: a round ends where so much of it was made anew; several are on their way at once. What
            passes as bytes lies in the receive buffer already.
        longest_open_s: a transaction is ended by then even in the middle of an answer; well below the time
            after which the target would end it.
    """

    me: LaneIdentity
    partitions: dict[TopicPartition, PartitionCopy]
    fetcher: Source
    review: Review
    producer: TxnProducer
    settings: Callable[[], CopySettings]
    look_around: Callable[[], None]
    after_commit: Callable[[Mapping[TopicPartition, int]], None]
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    resumed: set[TopicPartition] = field(default_factory=set)
    resting: Mapping[TopicPartition, OffsetToCommit] = field(default_factory=dict)
    throttle: Throttle = field(default_factory=Throttle)
    suspects: Suspects = field(default_factory=Suspects)
    waits: Callable[[Collection[TopicPartition]], Mapping[str, Mapping[str, Any] | None]] = lambda _: {}
    after_stops: Callable[[Collection[TopicPartition]], None] = lambda _: None
    round_bytes: int = _REQUEST_BYTES
    longest_open_s: float = 5.0
    involved: set[TopicPartition] = field(default_factory=set, init=False)
    _begun_s: float | None = None
    _begun_ms: int = 0
    _sent_bytes: int = 0
    _shared_targets: bool = field(init=False)
    _handles: bool = field(init=False)

    def __post_init__(self) -> None:
        self._look_at_partitions()

    def _look_at_partitions(self) -> None:
        # The same for all partitions of a run; asked once, so that plain copies pay nothing for it.
        self._shared_targets = any(p.shares_targets for p in self.partitions.values())
        self._handles = any(p.handling is not None for p in self.partitions.values())

    def claim(self) -> None:
        """Write this instance beside every position, and what is known of stops, in one transaction.

        It also renews the committed offsets, which would otherwise expire when idle (7 days).
        """
        self._claim({**self.resting, **self._offsets(self.partitions.values())})

    def _claim(self, offsets: Mapping[TopicPartition, OffsetToCommit]) -> None:
        reached(Step.CLAIM_BEGIN)
        stopping = tuple(self.stops)
        try:
            self._write_stops()
        except Refused as refused:
            self._refused(refused)
        if offsets:
            self.producer.add_offsets(names.progress_group(self.me.flow), offsets)
        if self.producer.in_transaction:
            reached(Step.CLAIM_COMMIT)
            self.producer.commit()
        self.after_stops(stopping)

    def run(self, until: Until) -> Iterator[list[MapRecord]]:
        """Copy until ``until`` says so; yield what each committed transaction did."""
        current = self.settings()
        while not until.over(self.partitions.values(), self.review.waiting):
            self.look_around()
            if self._begun_s is None:
                # Also while nothing is fetched: a limit that is lifted meanwhile must not be waited for.
                current = self.settings()
            if self._begun_s is None and self.review.due:
                self._take_in(self.review.look(self._positions()))
            self._ask(until, current)
            answers = self._answers(until, current)
            taken = [(self.partitions[tp], self._take(tp, answer)) for tp, answer in answers]
            self.throttle.spend(sum(len(a.records) for _, a in answers), current.bytes_per_second)
            self._ask(until, current)
            if self.suspects:
                yield from self._apart(taken, until, current)
            else:
                yield from self._produce(taken, until, current)
            if self._due(current):
                yield self._commit()
        if self._pending():
            yield self._commit()

    # ---- reading

    def _ask(self, until: Until, current: CopySettings) -> None:
        if self.throttle.wait_s or not self.fetcher.positions:
            return
        left_ms = int((until.deadline_s - time.monotonic()) * 1000)
        # No more than a second's worth, or the lane would be silent for as long as the rest takes.
        most_bytes = None if current.bytes_per_second is None else max(1, int(current.bytes_per_second))
        wait_ms = max(1, min(_IDLE_WAIT_MS, left_ms))
        self.fetcher.request(max_wait_ms=wait_ms, min_bytes=1, max_bytes=most_bytes)

    def _answers(self, until: Until, current: CopySettings) -> list[tuple[TopicPartition, FetchedPartition]]:
        wait_s = min(_IDLE_WAIT_MS / 1000, max(0.0, until.deadline_s - time.monotonic()))
        if self._begun_s is not None:
            wait_s = min(wait_s, max(0.0, self._begun_s + current.max_interval_s - time.monotonic()))
        if self.fetcher.waiting:
            return self.fetcher.poll(wait_s)
        # Nothing to read: throttled, or no partitions. Waiting is all there is to do.
        pause_s = min(wait_s, self.throttle.wait_s or wait_s)
        time.sleep(pause_s)
        return []

    def _take(self, tp: TopicPartition, answer: FetchedPartition) -> list[Visible]:
        """Return the visible batches of an answer and move the fetch position behind them."""
        partition = self.partitions[tp]
        if answer.error_code or answer.diverging is not None:
            # What it is, and for how long, is found out beside the others, which go on.
            partition.aside = True
            self.review.unreadable(tp, answer)
            return []
        self.review.readable(tp)
        position = self.fetcher.positions[tp]
        partition.lso = answer.last_stable_offset
        visible = []
        try:
            for one in visible_batches(answer.records, answer.aborted, position.offset, control_type):
                visible.append(one)
                position.offset = one.header.next_offset
                position.last_fetched_epoch = one.header.leader_epoch
        except CorruptBatch as error:
            # What came before it is copied first; the next answer begins with the damage.
            if not visible:
                self._damaged(partition, error)
        return visible

    def _take_in(self, found: Reviewed) -> None:
        """Go on with partitions that had been left out, or write down why they stop."""
        for partition in self.partitions.values():
            if partition.aside and partition.target in found.stops:
                partition.stopped = True
        self.partitions.update(found.going)
        self.stops.update(found.stops)
        self.resumed.update(found.resumed)
        self._look_at_partitions()
        self._claim(self._offsets(found.going.values()))

    def _positions(self) -> dict[TopicPartition, int]:
        """Return the positions of the partitions that are being copied."""
        return {tp: p.position for tp, p in self.partitions.items() if not p.stopped and not p.aside}

    # ---- writing

    def _apart(
        self, taken: list[tuple[PartitionCopy, list[Visible]]], until: Until, current: CopySettings
    ) -> Iterator[list[MapRecord]]:
        """Copy those who may be the reason why transactions fail each in transactions of their own."""
        for portion, alone in self.suspects.apart([(one[0].source, one) for one in taken if one[1]]):
            if alone and self._pending():
                yield self._commit()
            yield from self._produce(portion, until, current)
            if alone and self._pending():
                yield self._commit()
            if until.over(self.partitions.values(), self.review.waiting):
                return

    def _produce(
        self, taken: list[tuple[PartitionCopy, list[Visible]]], until: Until, current: CopySettings
    ) -> Iterator[list[MapRecord]]:
        """Send the batches in rounds of one per partition (FACTS 3: a second one would be lost).

        Yields what was committed on the way: whatever an answer takes to be worked off, no transaction stays
        open for longer than it may.
        """
        streams = [(p, p.outgoing(visible)) for p, visible in taken if visible]
        if streams:
            self._begin()
            self.involved.update(p.source for p, _ in streams)
        for _ in self._gathered(streams, current) if self._handles else self._in_turns(streams):
            if self._late(current):
                streams[:] = self._settled(streams)
                yield self._commit()
                self.look_around()
                if until.over(self.partitions.values(), self.review.waiting):
                    return
                if streams:
                    self._begin()
                    self.involved.update(p.source for p, _ in streams)
        if not self._pending():
            self._begun_s = None
            self.involved.clear()

    def _late(self, current: CopySettings) -> bool:
        """Tell whether the transaction should be ended although the answer is not worked off."""
        if self._begun_s is None:
            return False
        longest_s = min(current.max_interval_s, self.longest_open_s)
        return self._sent_bytes >= current.max_bytes or time.monotonic() - self._begun_s >= longest_s

    def _in_turns(self, streams: _Streams) -> Iterator[None]:
        """Take one batch of every partition, and again, so that a request carries many partitions.

        A batch that has to be expanded in pieces has the memory for it to itself until it is through.
        """
        while streams:
            batches = self._round(streams)
            if batches:
                self._send_rounds(batches)
                # What was made anew is not held until the next one is there.
                del batches
                yield

    def _round(self, streams: _Streams) -> list[Outgoing]:
        """Take a batch of every partition, or of as many as memory allows; the others come first then."""
        batches: list[Outgoing] = []
        ended: list[int] = []
        anew_bytes = behind = 0
        busy = any(partition.expanding for partition, _ in streams)
        for index, (partition, stream) in enumerate(streams):
            if busy and not partition.expanding:
                continue
            batch = self._next(partition, stream)
            if isinstance(batch, Outgoing):
                batches.append(batch)
                anew_bytes += made_bytes(batch)
            else:
                ended.append(index)
            if partition.expanding:
                # Last, so that the others have their turn as soon as it is through.
                streams.append(streams.pop(index))
                break
            if anew_bytes >= self.round_bytes:
                behind = len(streams) - index - 1
                break
        for index in reversed(ended):
            del streams[index]
        if behind:
            streams[:] = streams[-behind:] + streams[:-behind]
        return batches

    def _gathered(self, streams: _Streams, current: CopySettings) -> Iterator[None]:
        """Take one source partition after the other, so that only one group of batches at a time is
        expanded in memory; what the handler gives for them is gathered into larger requests."""
        batches: list[Outgoing] = []
        size = 0
        while streams:
            batch = self._next(*streams[0])
            if isinstance(batch, Outgoing):
                batches.append(batch)
                size += len(batch.batch)
            else:
                del streams[0]
            if size >= _REQUEST_BYTES or not streams or self._late(current):
                if batches:
                    self._send_rounds(batches)
                batches, size = [], 0
                yield

    def _settled(self, streams: _Streams) -> _Streams:
        """Bring every partition behind what was sent of it; return those that have more.

        Nothing more is begun: expanding the next batch takes memory, handling it takes time.
        """
        going = []
        for partition, stream in streams:
            partition.pausing = True
            batch: Outgoing | _Nothing = _Nothing.PAUSED
            while partition.underway and isinstance(batch := self._next(partition, stream), Outgoing):
                self._send_rounds([batch])
            partition.pausing = False
            if batch is not _Nothing.ENDED:
                going.append((partition, stream))
        return going

    def _send_rounds(self, batches: list[Outgoing]) -> None:
        for round_ in distinct_targets(batches) if self._shared_targets else [batches]:
            self._send(round_)

    def _next(self, partition: PartitionCopy, stream: Iterator[Outgoing | None]) -> Outgoing | _Nothing:
        try:
            batch = next(stream, _Nothing.ENDED) or _Nothing.PAUSED
            partition.underway = isinstance(batch, Outgoing)
            return batch
        except Blocked as blocked:
            self._stop(partition, blocked.stop)
        except CorruptBatch as error:
            self._damaged(partition, error)
        except BatchTooLarge as error:
            self._stop(partition, memory_too_small(self.me.flow, partition.source, partition.position, error))
        partition.underway = partition.expanding = False
        return _Nothing.ENDED

    def _damaged(self, partition: PartitionCopy, error: CorruptBatch) -> None:
        self._stop(partition, damaged_batch(self.me.flow, partition.source, partition.position, error))

    def _send(self, batches: list[Outgoing]) -> None:
        self._begin()
        reached(Step.DATA_SENT)
        try:
            self.producer.send(batches)
            self._acknowledged(self.producer.drain(_IN_FLIGHT - 1))
        except Refused as refused:
            self._refused(refused)
        self._sent_bytes += sum(len(b.batch) for b in batches)

    def _begin(self) -> None:
        if self._begun_s is None:
            self._begun_s = time.monotonic()
            self._begun_ms = time.time_ns() // 1_000_000

    def _acknowledged(self, acks: Iterable[Acknowledged]) -> None:
        for ack in acks:
            if ack.outgoing.source is not None:
                self.partitions[ack.outgoing.source].acknowledged(ack)

    def _refused(self, refused: Refused) -> None:
        """Note what the target did not take, so that the next attempt deals with it; then reset.

        Raises:
            TryOtherwise: it does.
            NeedsOperator: it is a record of our own, and will be refused again.
            MustReset: it is one, and may not be.
        """
        outgoing = refused.outgoing
        if outgoing.source is None:
            raise _own_refused(refused) from refused
        partition = self.partitions[outgoing.source]
        dead_letter = partition.dead_letter.target.topic if partition.dead_letter else None
        obstacle_after(refused, outgoing, partition.obstacle, self.me.flow, partition.source, dead_letter)
        raise TryOtherwise(f"{partition.source}: {refused}") from refused

    # ---- committing

    def _pending(self) -> bool:
        return bool(self.stops or self.resumed or any(p.moved for p in self.partitions.values()))

    def _due(self, current: CopySettings) -> bool:
        if self._begun_s is None:
            return False
        full = self._sent_bytes >= current.max_bytes or any(p.map_full for p in self.partitions.values())
        if self.stops or full:
            return True
        if time.monotonic() - self._begun_s >= current.max_interval_s:
            return True
        if not self.producer.visible_at_commit:
            # Readers wait for nothing: each commit more would only cost both sides.
            return False
        # Dry: everything that readers may see now is in hand, so waiting would only add latency.
        return all(p.caught_up for p in self.partitions.values()) and not self.fetcher.answered()

    def _commit(self) -> list[MapRecord]:
        stopping = tuple(self.stops)
        try:
            self._acknowledged(self.producer.drain())
            reached(Step.DATA_ACKED)
            moved = [p for p in self.partitions.values() if p.moved]
            records = self._write_map(moved)
            self._write_stops(moved)
        except Refused as refused:
            self._refused(refused)
        if moved:
            self.producer.add_offsets(names.progress_group(self.me.flow), self._offsets(moved))
        reached(Step.PROGRESS_SENT)
        reached(Step.COMMIT)
        self.producer.commit()
        reached(Step.COMMITTED)
        self._begun_s = None
        self._sent_bytes = 0
        self.involved.clear()
        for partition in moved:
            partition.committed_now()
        self.after_commit({p.source: p.committed for p in moved})
        self.after_stops(stopping)
        return records

    def _write_map(self, moved: list[PartitionCopy]) -> list[MapRecord]:
        me, now_ms = self.me, time.time_ns() // 1_000_000
        records = [
            record
            for p in moved
            for record in p.map_records(me.generation, me.lane, me.instance, self._begun_ms, now_ms)
        ]
        by_partition: dict[int, list[MapRecord]] = {}
        for record in records:
            by_partition.setdefault(lane_of(record.source, names.MAP_PARTITIONS), []).append(record)
        if records:
            self._own_records(
                {
                    TopicPartition(names.map_topic(me.flow), number): [
                        (encode_map_key(r.key), encode_map_value(r)) for r in group
                    ]
                    for number, group in by_partition.items()
                }
            )
        reached(Step.MAP_SENT)
        return records

    def _write_stops(self, moved: Sequence[PartitionCopy] = ()) -> None:
        me = self.me
        values: list[tuple[bytes, bytes | None]] = [
            (names.stop_key(*tp).encode(), None) for tp in self.resumed if tp not in self.stops
        ]
        values += [
            (names.stop_key(*tp).encode(), json.dumps(stop.to_json()).encode())
            for tp, stop in self.stops.items()
        ]
        values += [
            (key.encode(), None if note is None else json.dumps(note).encode())
            for key, note in self.waits([p.source for p in moved]).items()
        ]
        if values:
            state = TopicPartition(names.state_topic(me.flow), names.STATE_OTHERS)
            self._own_records({state: values})
        self.stops.clear()
        self.resumed.clear()

    def _own_records(self, values: Mapping[TopicPartition, list[tuple[bytes, bytes | None]]]) -> None:
        now_ms = time.time_ns() // 1_000_000
        batches = []
        for target, pairs in values.items():
            for piece in pieces(pairs, OWN_BATCH_BYTES):
                batch = encode([(now_ms, key, value, ()) for key, value in piece]).batch
                batches.append(Outgoing(target, parse_header(batch), batch))
        for round_ in distinct_targets(batches):
            self.producer.send(round_)
            self.producer.drain()

    def _offsets(self, partitions: Iterable[PartitionCopy]) -> dict[TopicPartition, OffsetToCommit]:
        me = self.me
        return {
            p.target: OffsetToCommit(
                p.position, p.leader_epoch, p.metadata(me.generation, me.instance).encode()
            )
            for p in partitions
        }

    def _stop(self, partition: PartitionCopy, stop: Stop) -> None:
        log.error("%s stops at offset %d: %s", partition.source, partition.position, stop.message)
        partition.stopped = True
        self.fetcher.remove(partition.source)
        self.stops[partition.target] = stamped(stop, self.me)
        self._begin()


def _own_refused(refused: Refused) -> OnceoverError:
    topic = refused.outgoing.target.topic
    text = f"the target refuses a record of the flow's own in {topic}"
    if refused.code not in ABOUT_A_RECORD:
        return MustReset(f"{text}: {refused}")
    return NeedsOperator(
        text,
        code="OWN_RECORD_REFUSED",
        where=topic,
        expected="a topic with the configuration that the flow created it with",
        seen=f"error {refused.code}: {refused.reason or 'no reason given'}",
        resolve=f"remove what was set on {topic} since, such as max.message.bytes, then start the flow again",
    )


def stamped(stop: Stop, me: LaneIdentity) -> Stop:
    """Return ``stop`` with the time and generation that it is written with."""
    fields = {k: v for k, v in stop.to_json().items() if k != "v"}
    return Stop(**{**fields, "at_ms": time.time_ns() // 1_000_000, "generation": me.generation})
