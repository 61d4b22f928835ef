"""A lane's protocol: own the transactional.id, resume from the progress group, copy (docs/protocol.md).

Invariant: the layout is read before *every* InitProducerId, so a loser never disturbs the winner, and
again after it, so that a fenced generation never copies; positions come from the stable progress
group and from nowhere else. After any failure everything is dropped and the order begins anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from onceover.backoff import Backoff, Deadline
from onceover.copy.identity import LaneIdentity
from onceover.copy.known import Known
from onceover.copy.loop import CopyLoop, CopySettings, Until
from onceover.copy.review import Reviewer
from onceover.copy.sessionstart import SessionStart
from onceover.copy.waits import Waits, aborted_count, aborted_note, slowed_note
from onceover.errors import MustReset, NeedsOperator, OnceoverError, Retriable, Superseded
from onceover.handling.lanehandler import LaneHandler
from onceover.handling.obstacles import Obstacle, TryOtherwise
from onceover.kafka import calls
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.groups.lag import LagReporter
from onceover.kafka.logs.endepochs import EndEpochs
from onceover.kafka.logs.fetcher import FAR_WAYS, Fetcher
from onceover.kafka.ports import Cluster, TxnProducer
from onceover.kafka.produce.atleastonce import AtLeastOnceProducer, IdempotentProducer
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.model import TopicPartition
from onceover.resume.resume import LaneWriter, check_instance
from onceover.state import names
from onceover.state.committed import resting_progress
from onceover.state.fencing import LANE_TIMEOUT_MS
from onceover.state.log import StateLog
from onceover.state.read import read_log
from onceover.state.records.enrolment import Enrolment, owned, read_enrolments
from onceover.state.records.layout import check_clusters, check_mine, check_told, layout_in
from onceover.state.steps import Step, reached
from onceover.stops.aside import TroubleSide
from onceover.stops.codes import StopCode
from onceover.stops.record import Stop, stop_in
from onceover.stops.requests import asked_to_end
from onceover.stops.undecided import LeftOpen
from onceover.wire.batches.unpack import Ceiling
from onceover.wire.offsetmap import MapRecord

log = logging.getLogger(__name__)

# How often stop requests, the layout and new enrolments are looked at while copying.
_LOOK_INTERVAL_S = 0.2
# The target keeps what is asked for in between: far away, each look would wait for it otherwise.
_LOOK_HELD_MS = 500
# Generations begin with 1.
_NO_RUN = 0
# Of the time after which the target ends a transaction: what is under way then still has to get through.
_OPEN_SHARE = 1 / 3
# Of limits.memory_per_lane: one answer in the receive buffer, the next in the socket (from far away the next
# two, mostly on the line), the rest for re-encoding and the interpreter's own copies: six to eight of what is
# taken apart at once.
_FETCH_SHARE = 8
# What is unanswered, where the target is far away. What passes as bytes is in the socket by then.
_IN_FLIGHT_SHARE = 8
_PIECE_SHARE = 16
# Of a round with what was made anew.
_ROUND_SHARE = 64
RECORD_SHARE = 4
_PARTITION_MAX_BYTES = 2 << 20


class EnrolmentsChanged(Retriable):
    """Topics or partitions have come, left or returned: begin again with what is there now. Not a failure."""


@dataclass
class LaneTask:
    """One task of one lane: copies until told otherwise, through as many resets as it takes.

    Args:
        me: identity; ``me.instance`` must be higher than that of any earlier task of the generation.
        source: open source cluster; ``target`` likewise. Both are used by this task alone.
        settings: current settings from the flow file.
        memory_bytes: limits.memory_per_lane, asked anew after each reset.
        give_up_s: without any success for this long, ``Retriable`` is raised.
        exactly_once: False takes the data, and only that, out of the lane's transactions.
        lane_handler: the flow's handler and dead-letter topic.
        obstacles: what the target refused before, by source partition.
        known: what earlier tasks of the same lane and run found out.
    """

    me: LaneIdentity
    source: Cluster
    target: Cluster
    settings: Callable[[], CopySettings]
    memory_bytes: Callable[[], int]
    give_up_s: float
    exactly_once: bool = True
    lane_handler: LaneHandler = field(default_factory=LaneHandler)
    obstacles: dict[TopicPartition, Obstacle] = field(default_factory=dict)
    known: Known = field(default_factory=Known)

    def run(self, until: Until) -> Iterator[list[MapRecord]]:
        """Copy until ``until`` says so; yield what each committed transaction did.

        Raises:
            Fenced: a newer generation runs.
            Retriable: a cluster stayed away for ``give_up_s``.
            NeedsOperator, UsageError, Fatal: as they come.
        """
        try:
            yield from self._sessions(until)
        finally:
            self.lane_handler.released()

    def _sessions(self, until: Until) -> Iterator[list[MapRecord]]:
        backoff, deadline = Backoff(first_s=0.05, cap_s=2.0), Deadline(self.give_up_s)
        while not self._over(until):
            session = LaneSession(self)
            try:
                with session:
                    for records in session.copy(until):
                        backoff, deadline = Backoff(first_s=0.05, cap_s=2.0), Deadline(self.give_up_s)
                        yield records
                return
            except Superseded as error:
                log.info("lane %d ends: %s", self.me.lane, error)
                return
            except LeftOpen as error:
                log.info("lane %d begins again: %s", self.me.lane, error)
            except EnrolmentsChanged:
                log.info("lane %d begins again: its partitions have changed", self.me.lane)
            except TryOtherwise as error:
                log.info("lane %d tries otherwise: %s", self.me.lane, error)
            except OnceoverError as error:
                if session.note(error):
                    # The partition has a patience of its own, and the others go on.
                    deadline = Deadline(self.give_up_s)
                elif not isinstance(error, MustReset | Retriable):
                    raise
                log.info("lane %d begins again: %s", self.me.lane, error)
                self.source.close()
                self.target.close()
                backoff.pause(deadline, error)

    @staticmethod
    def _over(until: Until) -> bool:
        return until.stopped or time.monotonic() >= until.deadline_s


class LaneSession:
    """From one InitProducerId to the next reset. Use as a context manager."""

    def __init__(self, task: LaneTask) -> None:
        self._task = task
        self._me = task.me
        topic = names.state_topic(task.me.flow)
        self._state = StateLog(task.target, topic, names.STATE_LEADER)
        self._requests = StateLog(task.target, topic, names.STATE_OTHERS, calls.READ_UNCOMMITTED)
        memory_bytes = task.memory_bytes()
        self._producer = _producer(task, memory_bytes // _IN_FLIGHT_SHARE)
        self._fetcher = Fetcher(
            task.source,
            isolation=calls.READ_COMMITTED,
            max_bytes=max(1 << 20, memory_bytes // _FETCH_SHARE),
            partition_max_bytes=min(_PARTITION_MAX_BYTES, max(1 << 18, memory_bytes // (4 * _FETCH_SHARE))),
            ways=FAR_WAYS,
        )
        self._round_bytes = memory_bytes // _ROUND_SHARE
        self._lag = LagReporter(task.source, names.lag_group(task.me.flow))
        self._enrolled: Mapping[TopicPartition, Enrolment] = {}
        self._until: Until | None = None
        self._loop: CopyLoop | None = None
        self._waits = Waits(task.me.generation)
        self._next_look_s = 0.0
        self._start = SessionStart(task.me, task.target, self._producer, task.known.rest)
        self._ends = EndEpochs(task.target)
        self._review = Reviewer(
            task.me.flow,
            task.source,
            task.target,
            self._fetcher,
            task.lane_handler,
            task.obstacles,
            task.known.troubles,
            Ceiling(memory_bytes // _PIECE_SHARE, memory_bytes // RECORD_SHARE),
            task.me.stamped,
            self._writer,
            self._start.told,
        )

    def _own_writes(self) -> int | None:
        writer = self._writer()
        return writer.producer_id if writer.alone else None

    def _writer(self) -> LaneWriter:
        # A handler gives records of several partitions to one; at least once they have an id of their own.
        mixed = self._task.lane_handler.use is not None
        return LaneWriter(self._producer.producer_id, not mixed and self._producer.visible_at_commit, mixed)

    def __enter__(self) -> LaneSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._producer.in_transaction:
            # Otherwise readers of the target would wait for the transaction's timeout. If it cannot
            # be done, whoever comes next does it with InitProducerId.
            self._task.known.given_up.another()
            with suppress(OnceoverError):
                self._producer.abort()
        for closable in (self._ends, self._lag, self._producer, self._fetcher, self._state, self._requests):
            closable.close()

    def copy(self, until: Until) -> Iterator[list[MapRecord]]:
        """Take the lane over, resume, copy."""
        self._until = until
        # A task that begins behind a stop takes nothing over, and may be killed at any moment.
        self._look_for_requests()
        if until.stopped:
            return
        if not self._take_over(until):
            return
        self._look_for_requests()
        loop = self._resume()
        with self._start.writing_first():
            loop.claim()
        # From here on a transaction that fails does so although one of ours has just been committed.
        self._loop = loop
        yield from loop.run(until)

    def _look_for_requests(self) -> None:
        # They are written without transactions: reading them uncommitted never waits for one.
        self._requests.catch_up()
        self._check_stop()

    # ---- steps 4 and 5

    def _take_over(self, until: Until) -> bool:
        """Own the transactional.id; False where the task was stopped while an older transaction was ended."""
        backoff, deadline = Backoff(), Deadline(self._task.give_up_s)
        while True:
            reached(Step.LANE_READ)
            self._check_layout(self._state.catch_up(wait=False))
            reached(Step.LANE_INIT)
            if self._producer.init():
                break
            backoff.pause(
                deadline, Retriable(f"lane {self._me.lane}: an older transaction is still being ended")
            )
            # It may take for ever: a broker does not try markers again that its topic was too small for.
            self._look_for_requests()
            if until.stopped:
                return False
        reached(Step.LANE_CHECK)
        # ``LANE_READS_UP_TO_A_MARK``: whoever fenced this id before has written its layout before the mark.
        self._check_layout(self._state.read_whole())
        return True

    def _check_layout(self, state: Mapping[str, Any]) -> None:
        found = layout_in(state)
        if found is not None:
            check_told(found.generation, self._me.generation, self._me.flow, self._task.target.alias)
        seen = check_mine(found, self._me.generation, self._me.run)
        if seen.ended_at_ms is not None:
            raise Superseded("the run has ended")
        source, target = self._task.source, self._task.target
        # Every task finds its clusters anew, and an address may lead elsewhere by then: the topics there
        # would be taken for ones that were created anew.
        source.keep_to(seen.source_cluster_id)
        check_clusters(seen, source.cluster_id(), target.cluster_id())

    def _resume(self) -> CopyLoop:
        """Return the loop that copies what goes on, by the evidence of now; all else stops or waits."""
        me, task = self._me, self._task
        self._enrolled = owned(read_enrolments(self._state.values).values(), me.lane, me.lanes)
        self._asked_again()
        reached(Step.LANE_RESUME)
        progress = self._start.progress(self._enrolled, alone=self._writer().alone)
        check_instance(progress.found.values(), me.generation, me.instance, me.lane)
        task.lane_handler.open(task.target)
        known = self._known_stops()
        positions = {tp: committed.offset for tp, committed in progress.found.items()}
        staying = self._staying(known, positions)
        task.known.suspects.keep(self._enrolled.keys() - staying)
        for tp in staying:
            task.known.troubles.forget(tp)
        found = self._review.begin(self._enrolled, progress, staying, known)
        self._start.end_left_open(found.left_open)
        return CopyLoop(
            me=me,
            partitions=found.going,
            fetcher=self._fetcher,
            review=self._review,
            producer=self._producer,
            settings=task.settings,
            look_around=self._look_around,
            after_commit=self._committed,
            after_stops=self._stopped,
            stops=found.stops,
            resumed=found.resumed,
            resting=self._resting(found.going, known),
            throttle=task.known.throttle,
            quota=task.known.quota,
            round_bytes=self._round_bytes,
            suspects=task.known.suspects,
            returns=task.known.returns,
            waits=self._wait_notes,
            longest_open_s=LANE_TIMEOUT_MS / 1000 * _OPEN_SHARE,
            confirm=self._start.told.confirm,
            settle=self._start.settle,
            ends=self._ends,
            own_writes=self._own_writes,
        )

    def _staying(
        self, known: Mapping[TopicPartition, Stop], positions: Mapping[TopicPartition, int]
    ) -> set[TopicPartition]:
        """Return the partitions that are stopped and stay so."""
        targets = {tp: enrolment.target_of(tp) for tp, enrolment in self._enrolled.items()}
        return {tp for tp, at in targets.items() if self._stays_stopped(known.get(at), at, positions.get(tp))}

    def _resting(
        self, copied: Collection[TopicPartition], known: Mapping[TopicPartition, Stop]
    ) -> dict[TopicPartition, OffsetToCommit]:
        """Return the progress of this lane's partitions that are stopped or wait, or whose topic has left.

        Without those that the target does not let us write: beside them nobody's progress could be written.
        """
        me, target, troubles = self._me, self._task.target, self._task.known.troubles
        refused = {tp for tp, stop in known.items() if stop.code == StopCode.TARGET_UNAUTHORIZED}
        resting = {
            tp: enrolment
            for tp, enrolment in self._owned().items()
            if tp not in copied
            and not troubles.has(tp, TroubleSide.TARGET)
            and enrolment.target_of(tp) not in refused
        }
        offsets = target.retry(lambda: resting_progress(me.flow, target, resting))
        with self._start.writing_first():
            self._start.told.keep(offsets)
        return offsets

    def _owned(self) -> dict[TopicPartition, Enrolment]:
        """Return this lane's enrolments by source partition, those of topics that have left among them."""
        enrolments = read_enrolments(self._state.values).values()
        return {**owned(enrolments, self._me.lane, self._me.lanes, active=False), **self._enrolled}

    def _committed(self, positions: Mapping[TopicPartition, int]) -> None:
        self._task.known.passed(positions)
        self._lag.report(positions)

    def _stopped(self, targets: Collection[TopicPartition]) -> None:
        """Forget why they stop: it is on record, and whoever resumes them begins anew, wherever that is."""
        for tp, enrolment in self._enrolled.items() if targets else ():
            if enrolment.target_of(tp) in targets:
                self._task.known.troubles.forget(tp)

    def note(self, error: OnceoverError) -> bool:
        """Take down trouble with partitions on the target; tell whether the error is about them alone."""
        is_theirs = self._noted(error)
        if self._loop is not None:
            # Found at another position by a later task, it has passed: another process may copy in between.
            for tp, partition in self._loop.partitions.items():
                self._task.known.troubles.stands_at(tp, partition.committed)
        return is_theirs

    def _noted(self, error: OnceoverError) -> bool:
        known, involved = self._task.known, self._loop.involved if self._loop is not None else ()
        concerned = {tp for target in error.partitions for tp in self._written_to(TopicPartition(*target))}
        writers = concerned & set(involved) if self._task.lane_handler.use is not None else ()
        if len(concerned) > 1 and writers:
            known.failed_at(writers, error)
        elif concerned:
            for tp in concerned:
                known.troubles.note(tp, TroubleSide.TARGET, error)
        elif involved and any(topic == self._task.lane_handler.dead_letter for topic, _ in error.partitions):
            known.failed_at(involved, error)
        else:
            # Only what ends a transaction: what the source does not answer is nobody's work here.
            return isinstance(error, MustReset) and self._loop is not None and known.failed(involved, error)
        return True

    def _written_to(self, target: TopicPartition) -> set[TopicPartition]:
        """Return the source partitions whose copy a target partition is; none for the flow's own topics.

        With a handler any partition of the topic may be written from any other one.
        """
        exact = self._task.lane_handler.use is None
        return {
            tp
            for tp, e in self._owned().items()
            if e.target == target.topic and (not exact or tp.partition == target.partition)
        }

    def _known_stops(self) -> dict[TopicPartition, Stop]:
        """Return the committed stop records of this lane's partitions, by target partition."""
        others = TopicPartition(names.state_topic(self._me.flow), names.STATE_OTHERS)
        # Stops and notes are found out again; until it is ended nobody reads to the end of this log.
        opened = self._task.target.each_open({others: {self._producer.producer_id}}).found
        self._start.end_left_open({tp: False for tp, (first, _) in opened.items() if first >= 0})
        values = read_log(self._task.target, *others, wait=True)
        targets = [e.target_of(tp) for tp, e in self._enrolled.items()]
        waits = [names.wait_key(*tp) for tp in targets]
        waits.append(names.quota_key(self._me.lane))
        self._task.known.given_up.stands_at(aborted_count(values, self._me.lane))
        self._waits = Waits(self._me.generation, [key for key in waits if key in values])
        return {tp: stop for tp in targets if (stop := _stop(values, tp)) is not None}

    def _wait_notes(self, moving: Collection[TopicPartition]) -> dict[str, dict[str, Any] | None]:
        targets = {tp: e.target_of(tp) for tp, e in self._enrolled.items()}
        slowed = slowed_note(self._me, self._task.target.alias) if self._task.known.quota.slows else {}
        return {**self._waits.changes(self._task.known.troubles, targets, moving, slowed), **self._aborted()}

    def _aborted(self) -> dict[str, dict[str, Any] | None]:
        count = self._task.known.given_up.untold()
        return {} if count is None else {names.aborted_key(self._me.lane): aborted_note(count)}

    def _stays_stopped(self, stop: Stop | None, target: TopicPartition, position: int | None) -> bool:
        """Tell whether a stop of this generation still holds.

        It is looked at again at the next start of the flow, or when somebody asks for it: trying a
        refused record once a task would throw away the other partitions' open transaction each time.
        """
        if stop is None or stop.generation != self._me.generation or stop.position != position:
            return False
        return not stop.is_meant_by(self._requests.values.get(names.resume_key(*target)))

    # ---- while copying

    def _look_around(self) -> None:
        if time.monotonic() < self._next_look_s:
            return
        self._next_look_s = time.monotonic() + _LOOK_INTERVAL_S
        if self._state.poll(held_ms=_LOOK_HELD_MS):
            self._check_layout(self._state.values)
            enrolled = owned(read_enrolments(self._state.values).values(), self._me.lane, self._me.lanes)
            if enrolled != self._enrolled:
                raise EnrolmentsChanged("enrolments have changed")
        if self._requests.poll(held_ms=_LOOK_HELD_MS):
            self._check_requests()

    def _check_requests(self) -> None:
        self._check_stop()
        again = self._asked_again()
        if again:
            raise EnrolmentsChanged(f"asked to look again at {', '.join(map(str, again))}")

    def _check_stop(self) -> None:
        if self._until is not None and asked_to_end(self._requests.values, self._me.run):
            self._until.stopped = True

    def _asked_again(self) -> list[TopicPartition]:
        """Begin anew with the partitions that somebody has asked for since the last time; return them."""
        mine = {names.resume_key(*e.target_of(tp)): tp for tp, e in self._enrolled.items()}
        again = [mine[key] for key in self._task.known.asked(self._requests.values) if key in mine]
        for tp in again:
            self._task.obstacles.pop(tp, None)
            self._task.known.forget(tp)
        return again


def _stop(others: Mapping[str, Any], target: TopicPartition) -> Stop | None:
    """Return a stop on record; one that cannot be read is of no run: its partition is looked at again."""
    try:
        return stop_in(others, target)
    except NeedsOperator as error:
        return Stop(error.code, error.message, "", "", error.resolve or "", None, generation=_NO_RUN)


def _producer(task: LaneTask, in_flight_bytes: int) -> TxnProducer:
    lane = TransactionalProducer(
        task.target,
        names.lane_id(task.me.flow, task.me.lane),
        timeout_ms=LANE_TIMEOUT_MS,
        in_flight_bytes=in_flight_bytes,
    )
    if task.exactly_once:
        return lane
    return AtLeastOnceProducer(lane, IdempotentProducer(task.target, in_flight_bytes))
