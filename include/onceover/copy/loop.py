"""The copy: fetch, produce, and commit data, map and progress in one transaction (docs/architecture.md).

Invariant: EndTxn is sent only after every batch, the map and the progress were acknowledged; whatever
goes wrong before leaves the loop as ``MustReset`` or ``Retriable``, and the transaction is never
committed.

How a batch is made durable is the producer's business: the loop hands over rounds of one batch per
partition and learns base offsets.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from onceover.clock import now_ms
from onceover.copy.account import Account, Waiting
from onceover.copy.identity import LaneIdentity
from onceover.copy.partition import PartitionCopy
from onceover.copy.quota import Quota
from onceover.copy.reading import Ends, NoEnds, Review, Source, Throttle
from onceover.copy.refused import try_otherwise
from onceover.copy.returns import Returns
from onceover.copy.review import Reviewed
from onceover.copy.suspects import Suspects
from onceover.copy.turns import REQUEST_BYTES, Turns
from onceover.handling.pace import AnswerBudget
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.ports import Acknowledged, Outgoing, Refused, TxnProducer
from onceover.kafka.produce.rounds import distinct_targets
from onceover.model import TopicPartition
from onceover.state.steps import Step, reached
from onceover.stops.contents import damaged_batch, records_return
from onceover.stops.record import Stop
from onceover.wire.batches.batch import CorruptBatch
from onceover.wire.batches.runs import Run, seen
from onceover.wire.batches.visibility import Visible
from onceover.wire.hotpath import FetchedPartition
from onceover.wire.offsetmap import MapRecord

log = logging.getLogger(__name__)

_IDLE_WAIT_MS = 500
# How often the flow file is looked at, which may be on a disk far away.
_SETTINGS_S = 1.0
# How often a stop is looked for while the target wants no data.
_LOOK_S = 0.2

# Partitions, and what was read of them.
_Taken = list[tuple[PartitionCopy, list[Visible | Run]]]


@dataclass(frozen=True)
class CopySettings:
    """What may change while a lane runs (from the flow file)."""

    max_interval_s: float
    max_bytes: int
    bytes_per_second: float | None


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

    @property
    def cut_off(self) -> bool:
        """True when the task ends wherever it is."""
        return self.stopped or time.monotonic() >= self.deadline_s

    def over(self, partitions: Collection[PartitionCopy], waiting: Collection[TopicPartition] = ()) -> bool:
        """Tell whether there is nothing left to do.

        Args:
            waiting: source partitions that may still be copied, or stop; their end may not be known.
        """
        if self.cut_off:
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
        settings: asked between two transactions, and while there is none, once a second.
        look_around: asked a few times a second; may raise to end the loop, or set ``until.stopped``.
        after_commit: told the positions after each commit.
        after_stops: told the target partitions whose stop is committed.
        stops: partitions that stop in the first transaction, by target partition.
        resumed: target partitions whose old stop record is removed in the first transaction.
        resting: progress of partitions that are not copied, committed again as it is in the first
            transaction.
        throttle: the bandwidth that was used before.
        quota: what is known of the target's.
        suspects: whom to copy alone.
        returns: finds records that come back in a ring.
        waits: what to tell `status` about partitions that cannot be copied for now, as records of the state;
            asked before a commit, with those that move on in it.
        confirm: called before what was read at the start, or by ``review``, is committed again, when the
            coordinator has taken it; raises to begin anew.
        settle: called before stops that no position is written with, for the same reason; raises likewise.
        own_writes: as the account's.
        ends: asked in which leader epoch a transaction came to lie.
        round_bytes: a round ends where so much of it was made anew; several are on their way at once. What
            passes as bytes lies in the receive buffer already.
        least_commits: a transaction gathers for at least so many times as long as its commit takes, which is
            several round trips: no more than a fifth of the time goes into it where the target is far away.
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
    quota: Quota = field(default_factory=Quota)
    suspects: Suspects = field(default_factory=Suspects)
    returns: Returns = field(default_factory=Returns)
    waits: Waiting = lambda _: {}
    after_stops: Callable[[Collection[TopicPartition]], None] = lambda _: None
    confirm: Callable[[], None] = lambda: None
    settle: Callable[[], None] = lambda: None
    ends: Ends = field(default_factory=NoEnds)
    own_writes: Callable[[], int | None] = lambda: None
    round_bytes: int = REQUEST_BYTES
    least_commits: int = 4
    longest_open_s: float = 5.0
    involved: set[TopicPartition] = field(default_factory=set, init=False)
    _begun_s: float | None = None
    _begun_ms: int = 0
    _sent_bytes: int = 0
    _commits_s: tuple[float, float] = (0.0, 0.0)
    _slowed: bool = False
    _over: bool = False
    _turn: AnswerBudget = field(default_factory=AnswerBudget)
    _account: Account = field(init=False)
    _shared_targets: bool = field(init=False)
    _handles: bool = field(init=False)

    def __post_init__(self) -> None:
        self._account = Account(self.me, self.producer, self.waits, self.stops, self.resumed, self.own_writes)
        self._look_at_partitions()

    def _look_at_partitions(self) -> None:
        # The same for all partitions of a run; asked once, so that plain copies pay nothing for it.
        self._shared_targets = any(p.shares_targets for p in self.partitions.values())
        self._handles = any(p.handling is not None for p in self.partitions.values())

    def claim(self) -> None:
        """Write this instance beside every position, and what is known of stops, in one transaction.

        It also renews the committed offsets, which would otherwise expire when idle (7 days).
        """
        self.ends.prepare([p.target for p in self.partitions.values()])
        self._claim({**self.resting, **self._account.offsets(self.partitions.values())})

    def _claim(self, offsets: Mapping[TopicPartition, OffsetToCommit]) -> None:
        reached(Step.CLAIM_BEGIN)
        stopping = tuple(self.stops)
        if stopping and not offsets:
            # Nothing that its coordinator has to take would follow what it told about them.
            self.settle()
        try:
            self._account.write_stops()
        except Refused as refused:
            try_otherwise(refused, self.partitions, self.me.flow)
        if offsets:
            # Not by a coordinator that is another one by now: it may have told something else.
            self._account.write_progress(offsets, moving=False)
            self.confirm()
        if self.producer.in_transaction:
            reached(Step.CLAIM_COMMIT)
            self.producer.commit()
        self._slowed = self.quota.slows
        self.after_stops(stopping)

    def run(self, until: Until) -> Iterator[list[MapRecord]]:
        """Copy until ``until`` says so; yield what each committed transaction did."""
        current, settings_s = self.settings(), time.monotonic()
        self._over = False
        while not self._is_over(until):
            self.look_around()
            if self._begun_s is None and time.monotonic() - settings_s >= _SETTINGS_S:
                # Also while nothing is fetched: a limit that is lifted meanwhile must not be waited for.
                current, settings_s = self.settings(), time.monotonic()
            if self._begun_s is None and self._slowed and not self.quota.slows:
                # Nobody else would take the note back while there is nothing to copy.
                self._claim({})
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
            # Or its buffer is kept while the next answer fills another one.
            del answers, taken
            if self._due(current):
                yield self._commit()
        if self._pending():
            yield self._commit()

    def _is_over(self, until: Until) -> bool:
        """Tell whether the task is over, for good: what was read and not sent by then is dropped.

        A partition that is waited for again a moment later must not have the loop read on behind that.
        """
        self._over = self._over or until.over(self.partitions.values(), self.review.waiting)
        return self._over

    # ---- reading

    def _ask(self, until: Until, current: CopySettings) -> None:
        if self.throttle.wait_s or not self.fetcher.positions:
            return
        left_ms = int((until.deadline_s - time.monotonic()) * 1000)
        # No more than a second's worth, or the lane would be silent for as long as the rest takes.
        most_bytes = None if current.bytes_per_second is None else max(1, int(current.bytes_per_second))
        if self._turn.most_bytes is not None:
            most_bytes = min(most_bytes or self._turn.most_bytes, self._turn.most_bytes)
        wait_ms = max(1, min(_IDLE_WAIT_MS, left_ms))
        self.fetcher.request(max_wait_ms=wait_ms, min_bytes=1, max_bytes=most_bytes)

    def _answers(self, until: Until, current: CopySettings) -> list[tuple[TopicPartition, FetchedPartition]]:
        wait_s = min(_IDLE_WAIT_MS / 1000, max(0.0, until.deadline_s - time.monotonic()))
        if self._begun_s is not None:
            wait_s = min(wait_s, max(0.0, self._begun_s + self._interval_s(current) - time.monotonic()))
        if self.fetcher.waiting:
            return self.fetcher.poll(wait_s)
        # Nothing to read: throttled, or no partitions. Waiting is all there is to do.
        pause_s = min(wait_s, self.throttle.wait_s or wait_s)
        time.sleep(pause_s)
        return []

    def _take(self, tp: TopicPartition, answer: FetchedPartition) -> list[Visible | Run]:
        """Return an answer's visible batches, small ones in runs; move the fetch position behind them."""
        partition = self.partitions[tp]
        if answer.error_code or answer.diverging is not None:
            # What it is, and for how long, is found out beside the others, which go on.
            partition.aside = True
            self.review.unreadable(tp, answer)
            return []
        self.review.readable(tp)
        position = self.fetcher.positions[tp]
        partition.lso = answer.last_stable_offset
        visible: list[Visible | Run] = []
        try:
            for one in seen(answer.records, answer.aborted, position.offset, partition.merging):
                visible.append(one)
                position.offset = one.header.next_offset
                position.last_fetched_epoch = one.header.leader_epoch
        except CorruptBatch as error:
            # What came before it is copied first; the next answer begins with the damage.
            if not visible:
                self._stop(partition, damaged_batch(self.me.flow, tp, partition.position, error))
        if offsets := self.returns.look(tp, visible):
            stop = records_return(self.me.flow, tp, partition.target, partition.position, offsets)
            self._stop(partition, stop)
            return []
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
        self.ends.prepare([p.target for p in found.going.values()])
        self._claim(self._account.offsets(found.going.values()))

    def _positions(self) -> dict[TopicPartition, int]:
        """Return the positions of the partitions that are being copied."""
        return {tp: p.position for tp, p in self.partitions.items() if not p.stopped and not p.aside}

    # ---- writing

    def _apart(self, taken: _Taken, until: Until, current: CopySettings) -> Iterator[list[MapRecord]]:
        """Copy those who may be the reason why transactions fail each in transactions of their own."""
        for portion, alone in self.suspects.apart([(one[0].source, one) for one in taken if one[1]]):
            if alone and self._pending():
                yield self._commit()
            yield from self._produce(portion, until, current)
            if alone and self._pending():
                yield self._commit()
                # There may be a thousand of them: a stop, or a newer generation, is heard after each.
                self.look_around()
            if self._is_over(until):
                return

    def _produce(self, taken: _Taken, until: Until, current: CopySettings) -> Iterator[list[MapRecord]]:
        """Send the batches in rounds of one per partition (docs/facts.md: a second one would be lost).

        Yields what was committed on the way: whatever an answer takes to be worked off, no transaction stays
        open for longer than it may.
        """
        if not self._paused(until):
            return
        turns = Turns(self.me.flow, taken, self.round_bytes, lambda: self.quota.most_bytes, self._stop)
        self._turn.begin()
        self._involve(turns)
        late = partial(self._late, current)
        for batches in turns.gathered(late) if self._handles else turns.rounds():
            self._send_rounds(batches)
            # What was made anew is not held until the next one is there.
            del batches
            # An answer from far away may take long: a stop is heard in the middle of it.
            self.look_around()
            if self._late(current) or until.cut_off:
                for batch in turns.settled():
                    self._send_rounds([batch])
                yield self._commit()
                self.look_around()
                if self._is_over(until) or not self._paused(until):
                    return
                if self._handles and turns and self._turn.is_over() and self.fetcher.answered():
                    self._turn.given_back(_size_bytes(taken))
                    self._give_back(turns)
                    break
                self._involve(turns)
        else:
            if self._handles:
                self._turn.worked_off(_size_bytes(taken))
        if not self._pending():
            self._begun_s = None
            self.involved.clear()

    def _paused(self, until: Until) -> bool:
        """Wait until the target takes more data; False where the task is over before."""
        while (left_s := self.quota.wait_s) > 0.0:
            self.look_around()
            if self._is_over(until):
                return False
            time.sleep(min(left_s, _LOOK_S))
        return True

    def _give_back(self, turns: Turns) -> None:
        """Read what is left of an answer again later: others have something, too, perhaps since it came.

        Whose turn it was comes last then.
        """
        first, *others = turns.partitions
        for partition in (*others, first):
            self.fetcher.rewind(partition.source, partition.position, partition.leader_epoch)

    def _involve(self, turns: Turns) -> None:
        if turns:
            if self._begun_s is None:
                self.ends.prepare([p.target for p in turns.partitions])
            self._begin()
            self.involved.update(p.source for p in turns.partitions)
            for partition in turns.partitions:
                partition.sparing = self.quota.most_bytes is not None

    def _late(self, current: CopySettings) -> bool:
        """Tell whether the transaction should be ended although the answer is not worked off."""
        if self._begun_s is None:
            return False
        if self.quota.wait_s:
            return True
        longest_s = min(self._interval_s(current), self.longest_open_s)
        return self._sent_bytes >= current.max_bytes or time.monotonic() - self._begun_s >= longest_s

    def _interval_s(self, current: CopySettings) -> float:
        """Return for how long a transaction gathers records while there are more.

        The quicker one of two commits counts, so that a broker that stops for a moment changes nothing; the
        longer they take, the less time is left for anything else until the target ends the transaction.
        """
        took_s = min(self._commits_s)
        most_s = max(0.0, min(self.longest_open_s, 2 * self.longest_open_s - took_s))
        return max(current.max_interval_s, min(self.least_commits * took_s, most_s))

    def _send_rounds(self, batches: list[Outgoing]) -> None:
        for round_ in distinct_targets(batches) if self._shared_targets else [batches]:
            self._send(round_)

    def _send(self, batches: list[Outgoing]) -> None:
        self._begin()
        reached(Step.DATA_SENT)
        self._sent_bytes += sum(len(b.batch) for b in batches)
        try:
            self.producer.send(batches)
            # Beside a quota each answer is waited for: it says when there was enough.
            self._acknowledged(
                self.producer.make_room() if self.quota.most_bytes is None else self.producer.drain()
            )
        except Refused as refused:
            try_otherwise(refused, self.partitions, self.me.flow)
        finally:
            self.quota.told(self.producer.pause_s, self._sent_bytes)

    def _drain(self) -> None:
        try:
            self._acknowledged(self.producer.drain())
        finally:
            self.quota.told(self.producer.pause_s, self._sent_bytes)

    def _begin(self) -> None:
        if self._begun_s is None:
            self._begun_s = time.monotonic()
            self._begun_ms = now_ms()

    def _acknowledged(self, acks: Iterable[Acknowledged]) -> None:
        for ack in acks:
            if ack.outgoing.source is not None:
                self.partitions[ack.outgoing.source].acknowledged(ack)

    # ---- committing

    def _pending(self) -> bool:
        return self._account.pending or any(p.moved for p in self.partitions.values())

    def _due(self, current: CopySettings) -> bool:
        if self._begun_s is None:
            return False
        full = self._sent_bytes >= current.max_bytes or any(p.map_full for p in self.partitions.values())
        if self.stops or full:
            return True
        if time.monotonic() - self._begun_s >= self._interval_s(current):
            return True
        if not self.producer.visible_at_commit:
            # Readers wait for nothing: each commit more would only cost both sides.
            return False
        # Dry: everything that readers may see now is in hand, so waiting would only add latency.
        return all(p.caught_up for p in self.partitions.values()) and not self.fetcher.answered()

    def _commit(self) -> list[MapRecord]:
        stopping, began_s = tuple(self.stops), time.monotonic()
        try:
            self._drain()
            reached(Step.DATA_ACKED)
            moved = [p for p in self.partitions.values() if p.moved]
            # Answered while the map is written: nobody waits for it.
            written = [p for p in moved if p.has_written]
            self.ends.ask([p.target for p in written])
            records = self._account.write_map(moved, self._begun_ms)
            self._account.write_stops(moved)
            epochs = self.ends.answers()
            for partition in written:
                partition.target_epoch = epochs.get(partition.target)
        except Refused as refused:
            try_otherwise(refused, self.partitions, self.me.flow)
        if moved:
            self._account.write_progress(self._account.offsets(moved))
        reached(Step.PROGRESS_SENT)
        reached(Step.COMMIT)
        self.producer.commit()
        reached(Step.COMMITTED)
        self._commits_s = (self._commits_s[1], time.monotonic() - began_s)
        self._begun_s = None
        self.quota.passed(self._sent_bytes)
        self._sent_bytes = 0
        self.involved.clear()
        for partition in moved:
            partition.committed_now()
        self._slowed = self.quota.slows
        self.after_commit({p.source: p.committed for p in moved})
        self.after_stops(stopping)
        return records

    def _stop(self, partition: PartitionCopy, stop: Stop) -> None:
        log.error("%s stops at offset %d: %s", partition.source, partition.position, stop.message)
        partition.stopped = True
        self.fetcher.remove(partition.source)
        self.stops[partition.target] = self.me.stamped(stop)
        self._begin()


def _size_bytes(taken: _Taken) -> int:
    return sum(one.size_bytes for _, visible in taken for one in visible)
