"""Which of a lane's partitions go on, which wait, and which stop: at its start and again while it copies.

Invariant: a partition goes on only with evidence of now (docs/protocol.md), and nobody waits for another one:
what is in doubt is left out and looked at again between two transactions of the others, until it goes on or
its patience is over and it stops.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from onceover.backoff import Deadline
from onceover.copy.partition import PartitionCopy
from onceover.errors import NotNow, Retriable
from onceover.handling.lanehandler import LaneHandler
from onceover.handling.obstacles import Obstacle
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.kafka.logs.fetcher import Fetcher, Position
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.resume.resume import LaneWriter, PartitionsSeen, gather
from onceover.resume.told import ToldProgress
from onceover.state.records.enrolment import Enrolment
from onceover.stops.aside import CHANGED, LEFT_OPEN, Troubles, TroubleSide
from onceover.stops.barred import barred
from onceover.stops.codes import StopCode
from onceover.stops.judge import Evidence, judge, undecided
from onceover.stops.record import Stop
from onceover.stops.undecided import LeftOpen, TransactionOutcome
from onceover.txn.classify import Action, Api, classify
from onceover.wire.batches.unpack import Ceiling
from onceover.wire.hotpath import FetchedPartition

log = logging.getLogger(__name__)

# While others could copy, a silent broker is not waited for longer than this.
_LOOK_PATIENCE_S = 2.0
# Pending offset commits (88) settle within milliseconds of the transaction's end.
_SETTLED_WITHIN_S = 5.0
# Of the time at most this share goes into looking, however slow a broker is.
_LOOK_SHARE = 0.2
# What may be nothing but a leader that has just changed, or a broker that knows a topic as it was; and where
# that would be.
_MAY_PASS = {
    StopCode.SOURCE_DIVERGED: TroubleSide.SOURCE,
    StopCode.SOURCE_MISSING: TroubleSide.SOURCE,
    StopCode.SOURCE_RECREATED: TroubleSide.SOURCE,
    StopCode.SOURCE_SHRUNK: TroubleSide.SOURCE,
    StopCode.TARGET_MISSING: TroubleSide.TARGET,
    StopCode.TARGET_RECREATED: TroubleSide.TARGET,
    StopCode.TARGET_SHORTENED: TroubleSide.TARGET,
    StopCode.TARGET_SHRUNK: TroubleSide.TARGET,
}


@dataclass
class Reviewed:
    """What was decided.

    Args:
        going: partitions that go on, by source partition; they are assigned to the fetcher.
        stops: why others stop, by *target* partition.
        resumed: *target* partitions that go on, and whose stop of before is on record.
        left_open: *target* partitions in which a transaction of the lane was left open, and whether it was
            committed. They are to be ended before anything else, and looked at again.
    """

    going: dict[TopicPartition, PartitionCopy] = field(default_factory=dict)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    resumed: set[TopicPartition] = field(default_factory=set)
    left_open: dict[TopicPartition, bool] = field(default_factory=dict)


class Reviewer:
    """Decides for one session of a lane. Not thread-safe.

    Args:
        flow: its name.
        source: source cluster; ``target`` likewise.
        fetcher: partitions that go on are assigned to it.
        lane_handler: the flow's handler and dead-letter topic, open.
        obstacles: what the target refused before; kept by the lane's task.
        troubles: what did not answer before; kept by the lane's task.
        ceiling: how much of a batch may be taken apart at once.
        stamp: gives a stop its time and generation.
        writer: under which producer id the lane writes, once that is known.
        told: keeps what is read of the progress.
    """

    def __init__(
        self,
        flow: str,
        source: Cluster,
        target: Cluster,
        fetcher: Fetcher,
        lane_handler: LaneHandler,
        obstacles: dict[TopicPartition, Obstacle],
        troubles: Troubles,
        ceiling: Ceiling,
        stamp: Callable[[Stop], Stop],
        writer: Callable[[], LaneWriter],
        told: ToldProgress,
    ) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._fetcher = fetcher
        self._lane_handler = lane_handler
        self._obstacles = obstacles
        self._troubles = troubles
        self._ceiling = ceiling
        self._stamp = stamp
        self._writer = writer
        self._told = told
        self._aside: dict[TopicPartition, Enrolment] = {}
        self._enrolled: Mapping[TopicPartition, Enrolment] = {}
        self._noted: Collection[TopicPartition] = ()
        self._next_s = 0.0

    # ---- at the start of a session

    def begin(
        self,
        enrolled: Mapping[TopicPartition, Enrolment],
        progress: Each[TopicPartition, CommittedOffset],
        staying: Collection[TopicPartition],
        noted: Collection[TopicPartition],
    ) -> Reviewed:
        """Decide about all enrolled partitions of the lane.

        Args:
            progress: stable, read in this session.
            staying: stopped partitions that nobody wants to be looked at; left out.
            noted: *target* partitions whose stop is on record.

        Raises:
            Retriable: a cluster as a whole is away.
        """
        self._enrolled, self._noted = enrolled, noted
        wanted = {tp: enrolment for tp, enrolment in enrolled.items() if tp not in staying}
        waiting = {tp: enrolment for tp, enrolment in wanted.items() if not self._troubles.is_due(tp)}
        self._aside = dict(waiting)
        ready = {tp: enrolment for tp, enrolment in wanted.items() if tp not in waiting}
        looked = gather(self._flow, self._source, self._target, ready, progress, self._writer())
        found = self._decided(ready, looked, {})
        if self._aside:
            log.warning("left out for now: %s", ", ".join(map(str, sorted(self._aside))))
        return found

    # ---- while copying

    @property
    def waiting(self) -> Collection[TopicPartition]:
        """The source partitions that will go on or stop within their patience.

        Not those that nobody leads: a run does not wait for their brokers.
        """
        return [tp for tp in self._aside if self._troubles.will_end(tp)] if self._aside else ()

    @property
    def due(self) -> bool:
        """True when something should be looked at again."""
        if not self._aside or time.monotonic() < self._next_s:
            return False
        return any(self._troubles.is_due(tp) for tp in self._aside)

    def unreadable(self, tp: TopicPartition, answer: FetchedPartition) -> None:
        """Leave out a partition whose Fetch is not answered with records."""
        action = classify(Api.FETCH, answer.error_code)
        changed = answer.diverging is not None or action in (Action.OUT_OF_RANGE, Action.MISSING)
        error = failure(self._source.alias, Api.FETCH, action, answer.error_code, str(tp))
        log.warning("%s is left out for now: %s", tp, error.message)
        self._fetcher.remove(tp)
        self._aside[tp] = self._enrolled[tp]
        self._troubles.note(tp, TroubleSide.SOURCE, error, CHANGED if changed else None)

    def readable(self, tp: TopicPartition) -> None:
        """Note that the source has answered."""
        if self._troubles:
            self._troubles.passed(tp, TroubleSide.SOURCE)

    def look(self, copied: Mapping[TopicPartition, int]) -> Reviewed:
        """Decide about the partitions that are due. For between two transactions, when nothing waits for us.

        Args:
            copied: the positions of those that are being copied.

        A cluster that is away as a whole is none of their troubles: they are looked at again later.
        """
        began_s = time.monotonic()
        some = {tp: e for tp, e in self._aside.items() if self._troubles.is_due(tp)}
        try:
            looked = self._looked(some)
        except Retriable as error:
            log.warning("not looked at again for now: %s: %s", ", ".join(map(str, some)), error)
            looked = None
        now_s = time.monotonic()
        self._next_s = now_s + (now_s - began_s) / _LOOK_SHARE
        if looked is None:
            return Reviewed()
        for tp in some:
            del self._aside[tp]
        found = self._decided(some, looked, copied)
        if found.left_open:
            # Only between InitProducerId and the first transaction nothing of ours can be on its way.
            raise LeftOpen(f"a transaction is open in {', '.join(map(str, found.left_open))}")
        return found

    def _looked(self, some: Mapping[TopicPartition, Enrolment]) -> PartitionsSeen:
        # Clusters of their own: on the lane's, a silent broker would be waited for while others could copy.
        with self._source.hasty(_LOOK_PATIENCE_S) as source, self._target.hasty(_LOOK_PATIENCE_S) as target:
            progress = target.retry(lambda: self._told.read(target, some), Deadline(_SETTLED_WITHIN_S))
            return gather(self._flow, source, target, some, progress, self._writer())

    # ---- deciding

    def _decided(
        self,
        some: Mapping[TopicPartition, Enrolment],
        looked: PartitionsSeen,
        copied: Mapping[TopicPartition, int],
    ) -> Reviewed:
        found = Reviewed()
        for tp, enrolment in some.items():
            e, problem, position = looked.evidence.get(tp), looked.problems.get(tp), looked.positions.get(tp)
            if position is not None:
                self._troubles.stands_at(tp, position)
            if problem is not None:
                self._troubles.note(tp, problem.side, problem.error, in_use=False)
            stop = judge(e) if e else None
            if e and stop is None:
                if e.left_open is not None:
                    stop = self._left_open(found, e)
                    if stop is None:
                        self._aside[tp] = enrolment
                        continue
                self._troubles.looks_well(tp)
            stop = stop or self._lasting(tp, enrolment, position)
            if stop is not None and not self._may_pass(tp, stop):
                self._stop(found, enrolment.target_of(tp), tp, stop)
            elif stop is not None or e is None:
                self._aside[tp] = enrolment
            else:
                found.going[tp] = self._partition(e, looked.topics)
        self._assign(found, copied)
        found.resumed = {p.target for p in found.going.values() if p.target in self._noted}
        return found

    def _left_open(self, found: Reviewed, e: Evidence) -> Stop | None:
        """Have a transaction that was left open ended; return the stop where that was tried in vain."""
        text = f"a transaction of this lane was left open in {e.target}"
        self._troubles.note(e.source, TroubleSide.TARGET, NotNow(text), LEFT_OPEN, in_use=False)
        if self._troubles.lasting(e.source, TroubleSide.TARGET) is not None:
            return undecided(e)
        found.left_open[e.target] = e.outcome is TransactionOutcome.COMMITTED
        return None

    def _may_pass(self, tp: TopicPartition, stop: Stop) -> bool:
        """Tell whether a stop is waited with, because a broker may be a moment behind."""
        side = _MAY_PASS.get(StopCode(stop.code))
        if side is None:
            return False
        return not self._troubles.doubt(tp, side, NotNow(stop.message))

    def _lasting(self, tp: TopicPartition, enrolment: Enrolment, position: int | None) -> Stop | None:
        """Return the stop for trouble whose patience is over."""
        for side in TroubleSide:
            error = self._troubles.lasting(tp, side)
            if error is not None:
                return barred(self._flow, tp, enrolment.target_of(tp), side, error, position)
        return None

    def _stop(self, found: Reviewed, target: TopicPartition, tp: TopicPartition, stop: Stop) -> None:
        log.error("%s is stopped: %s: %s", tp, stop.message, stop.seen)
        found.stops[target] = self._stamp(stop)

    def _assign(self, found: Reviewed, copied: Mapping[TopicPartition, int]) -> None:
        """Tell the handler, after everything else is decided, what the lane copies, as KIP-3 has it."""
        positions = {**copied, **{tp: p.position for tp, p in found.going.items()}}
        for tp, stop in self._lane_handler.assigned(positions).items():
            self._fetcher.remove(tp)
            self._stop(found, found.going.pop(tp).target, tp, stop)

    def _partition(self, e: Evidence, topics: Mapping[str, TopicInfo]) -> PartitionCopy:
        info = topics[e.source.topic]
        leader = info.partitions[e.source.partition]
        position = e.position or 0
        epoch = e.meta.leader_epoch if e.meta else calls.NO_EPOCH
        self._fetcher.assign(
            e.source, Position(info.topic_id, position, leader.leader, leader.leader_epoch, epoch)
        )
        return PartitionCopy(
            source=e.source,
            target=e.target,
            source_id=e.enrolled_source_id,
            target_id=e.enrolled_target_id,
            committed=position,
            leader_epoch=epoch,
            target_end=e.meta.target_end if e.meta else 0,
            target_epoch=e.meta.target_epoch if e.meta else None,
            alone=e.meta is None or e.meta.is_alone,
            last=e.meta.batch if e.meta else None,
            obstacle=self._obstacles.setdefault(e.source, Obstacle()),
            handling=self._lane_handler.handling(
                e.source, e.target_topic.partitions if e.target_topic else 0
            ),
            dead_letter=self._lane_handler.dead_letter_of(e.source, e.enrolled_source_id),
            ceiling=self._ceiling,
        )
