"""Whether the progress that the group's coordinator tells is all that it has.

Invariant: no position and no stop is committed on the strength of a coordinator that had not read its log to
the end. Apache Kafka (seen with 4.3.0) may answer while it still reads: where a partition of
``__consumer_offsets`` loses its leader and gets it back while it is being loaded, the end of the first load
opens the second one, and positions of any earlier moment are told as the newest, ``require_stable`` or not.

A write shows it: a coordinator compares where its record came to lie with where it expected it, and takes
none before it has read everything. So what was told is asked for once more behind a write that it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from onceover.errors import MustReset
from onceover.kafka.calls import NO_EPOCH, CommittedOffset, OffsetToCommit
from onceover.kafka.each import Each
from onceover.kafka.ports import Cluster, GroupPositions, TxnProducer
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.committed import read_progress
from onceover.state.records.enrolment import Enrolment

# A little more than the time before: the machine may be busier.
_REST_SHARE: Final = 1.5
# Stop requests are not heard meanwhile.
_LONGEST_REST_S: Final = 30.0


class CoordinatorRest:
    """Leaves a coordinator alone that refused a write, until it should have read its log. Not thread-safe.

    At every write that it refuses it begins to read again, and the end of the reading before opens it again:
    who writes as soon as it answers keeps it so for ever. What it took to answer again is what the next
    reading takes, too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused_s: float | None = None

    def refused(self) -> None:
        """Note that a write, or what was told before it, turned out to be worth nothing."""
        self._refused_s = self._clock()

    def owed_s(self) -> float:
        """Return for how long to leave it alone, once after a refusal, now that it answers."""
        if self._refused_s is None:
            return 0.0
        seconds, self._refused_s = (self._clock() - self._refused_s) * _REST_SHARE, None
        return min(seconds, _LONGEST_REST_S)


class ToldProgress:
    """The progress that a lane was told since its last transaction. Not thread-safe.

    Args:
        flow: its name.
        target: the lane's own.
    """

    def __init__(self, flow: str, target: GroupPositions) -> None:
        self._flow = flow
        self._target = target
        self._told: dict[TopicPartition, OffsetToCommit | None] = {}

    def read(
        self, cluster: Cluster, owned: Mapping[TopicPartition, Enrolment]
    ) -> Each[TopicPartition, CommittedOffset]:
        """Return the stable progress by *source* partition, and keep it for ``confirm``.

        Args:
            cluster: the target.

        Raises:
            Retriable: pending, or the coordinator is away.
        """
        each = read_progress(cluster, self._flow, owned)
        asked = {tp: enrolment.target_of(tp) for tp, enrolment in owned.items() if tp not in each.failed}
        self._told = {target: _pair(each.found.get(tp)) for tp, target in asked.items()}
        return each

    def keep(self, offsets: Mapping[TopicPartition, OffsetToCommit]) -> None:
        """Keep what was read besides, by target partition, to be committed again as it is.

        Raises:
            MustReset: it is not what ``read`` was told a moment ago.
        """
        for tp, pair in offsets.items():
            if tp in self._told and self._told[tp] != pair:
                raise _differs(tp, self._told[tp], pair)
        self._told = {**self._told, **offsets}

    def settle(self, producer: TxnProducer) -> None:
        """Return when the coordinator has taken a write, for who was told of no progress: as ``settle``."""
        settle(producer, self._flow, moving=False)

    def confirm(self) -> None:
        """Ask again, once: for between the write of progress and the end of its transaction.

        Raises:
            MustReset: something else was told before, and may have been believed.
            Retriable: the coordinator has gone meanwhile: nothing is known again.
        """
        if not self._told:
            return
        # What is pending here is our own; the answer is what was committed before it.
        now = self._target.each_committed(names.progress_group(self._flow), self._told, stable=False)
        for tp, before in self._told.items():
            if tp not in now.failed and (seen := _pair(now.found.get(tp))) != before:
                raise _differs(tp, before, seen)
        self._told = {}


def settle(producer: TxnProducer, flow: str, *, moving: bool = True) -> None:
    """Return when the progress group's coordinator has taken a write; nothing is left of it.

    For those who have nothing to write before they judge.

    Args:
        moving: wait for a coordinator that is not ready.

    Raises:
        MustReset: begin again.
    """
    nowhere = TopicPartition(names.state_topic(flow), names.STATE_OTHERS)
    offsets = {nowhere: OffsetToCommit(0, NO_EPOCH, "")}
    producer.add_offsets(names.progress_group(flow), offsets, moving=moving)
    producer.abort()


def _pair(committed: CommittedOffset | None) -> OffsetToCommit | None:
    if committed is None:
        return None
    return OffsetToCommit(committed.offset, committed.leader_epoch, committed.metadata)


def _differs(tp: TopicPartition, before: OffsetToCommit | None, seen: OffsetToCommit | None) -> MustReset:
    return MustReset(
        f"the progress of {tp} was told as {_place(before)} and is {_place(seen)}:"
        " the group's coordinator had not read its log to the end"
    )


def _place(pair: OffsetToCommit | None) -> str:
    return "none" if pair is None else f"{pair.offset} with {pair.metadata or 'nothing'} beside it"
