"""Where a lane's partitions stand when it begins: its progress, and what its transactions have left open.

Invariant: what is read here is true, or the session ends before anything is committed that follows from it.
Positions are stable, what a coordinator may have told too early is asked for behind a write (``told``), and a
transaction that is over and still open in a log is ended as it was meant to end (``undecided``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from onceover.backoff import Deadline
from onceover.copy.identity import LaneIdentity
from onceover.errors import OnceoverError, Retriable
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.ports import Cluster, TxnProducer
from onceover.model import TopicPartition
from onceover.resume.told import CoordinatorRest, ToldProgress
from onceover.state.records.enrolment import Enrolment
from onceover.state.steps import Step, reached
from onceover.stops.undecided import LeftOpen

log = logging.getLogger(__name__)

# After InitProducerId nothing of the lane is under way: what is pending for so long has missed its marker.
_PENDING_S = 5.0

Enrolled = Mapping[TopicPartition, Enrolment]


class SessionStart:
    """What a session finds out of its own partitions before it copies. Not thread-safe.

    Args:
        me: the lane.
        target: open, the session's own.
        producer: the lane's; initialised, with nothing in a transaction, at every call here.
        rest: how long the progress group's coordinator is to be left alone.
    """

    def __init__(
        self, me: LaneIdentity, target: Cluster, producer: TxnProducer, rest: CoordinatorRest
    ) -> None:
        self.told = ToldProgress(me.flow, target)
        self._me = me
        self._target = target
        self._producer = producer
        self._rest = rest

    def progress(self, enrolled: Enrolled, *, alone: bool) -> Each[TopicPartition, CommittedOffset]:
        """Return the stable progress by source partition.

        Args:
            alone: the lane's transactions hold progress and the data it tells of, and nothing of others.

        Raises:
            MustReset, Retriable: begin again.
        """
        # Pending offset commits settle within milliseconds of the predecessor's abort.
        pending = Deadline(_PENDING_S)
        return self._target.retry(lambda: self._progress(enrolled, pending if alone else None))

    def _progress(
        self, enrolled: Enrolled, pending: Deadline | None
    ) -> Each[TopicPartition, CommittedOffset]:
        try:
            progress = self.told.read(self._target, enrolled)
        except Retriable as error:
            if error.code == KafkaCode.PENDING_OFFSETS and pending is not None and pending.passed:
                # Left open, too, and nobody else would end it. Aborted, it agrees with data that were; where
                # the data were committed, they follow on a position that is doubted then.
                log.warning("lane %d aborts progress that was left pending", self._me.lane)
                self.told.settle(self._producer)
            raise
        if rest_s := self._rest.owed_s():
            log.info("lane %d waits %.1f s for the progress group's coordinator", self._me.lane, rest_s)
            time.sleep(rest_s)
            progress = self.told.read(self._target, enrolled)
        if enrolled.keys() <= progress.found.keys() | progress.failed.keys():
            return progress
        # It is gone, or its coordinator has not read it yet.
        with self.writing_first():
            self.told.settle(self._producer)
        return self.told.read(self._target, enrolled)

    def settle(self) -> None:
        """Have what was told of the progress confirmed where no position is written for now.

        Raises:
            MustReset, Retriable: begin again.
        """
        with self.writing_first():
            self.told.settle(self._producer)
            self.told.confirm()

    @contextmanager
    def writing_first(self) -> Iterator[None]:
        """Note when the coordinator does not take the first write of the session, or told two things."""
        try:
            yield
        except OnceoverError:
            self._rest.refused()
            raise

    def end_left_open(self, left_open: Mapping[TopicPartition, bool]) -> None:
        """End what transactions of this lane have left open on the target, as they were meant to end.

        Args:
            left_open: by target partition, whether it was committed. All of one kind are ended at once, the
                rest at the next session.

        Raises:
            LeftOpen: it is done; begin again.
            MustReset, Retriable: it is not known whether it is.
        """
        if not left_open:
            return
        commit = any(left_open.values())
        targets = [tp for tp, committed in left_open.items() if committed is commit]
        log.warning("lane %d ends what was left open (commit: %s): %s", self._me.lane, commit, targets)
        reached(Step.LANE_DECIDE)
        # How they were meant to end, the progress says: as it is, not as it was told too early.
        self.settle()
        self._producer.decide(targets, commit=commit)
        raise LeftOpen(f"a transaction that was left open has been ended in {', '.join(map(str, targets))}")
