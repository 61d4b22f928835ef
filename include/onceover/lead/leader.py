"""The leader: starts a generation, fences the older ones, enrols topics (docs/protocol.md).

Invariant: lanes are told to begin only after ``ready`` is confirmed, and ``ready`` is written only
after every lane id of an older generation was fenced with OK. The order of the steps below is the
protocol; each sentence of it has a test.
"""

from __future__ import annotations

import logging
import random
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.errors import MustReset, NeedsOperator, OnceoverError, Retriable
from onceover.kafka.calls import CommittedOffset, OffsetToCommit
from onceover.kafka.groups.members import check_may_commit
from onceover.kafka.ports import Cluster, TxnProducer
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.model import MOST_LANES, TopicPartition
from onceover.resume.told import settle
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.committed import all_progress
from onceover.state.fenced import send, take_id
from onceover.state.fencing import LEADER_TIMEOUT_MS, START_DEADLINE_S, fence
from onceover.state.log import StateLog
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.layout import (
    DONE,
    Layout,
    check_clusters,
    check_mine,
    check_told,
    delivery_with,
    ever_handled,
    fence_bound,
    follows_with,
    launches_with,
    layout_in,
    leaves_unfinished,
    letters_with,
    restarts_with,
)
from onceover.state.records.ownership import FlowId
from onceover.state.records.progress import newest_of, promoted_again
from onceover.state.steps import Step, reached

log = logging.getLogger(__name__)

# Longer than a start takes (0.2 to 2 s), so that a starter which took our id either finishes and is
# seen as the newer generation, or is dead.
_RECOVERY_PAUSE_S = (4.0, 8.0)


@dataclass(frozen=True)
class FlowIdentity:
    """What the leader writes into the layout about the flow.

    Args:
        letters: the topic that its lanes divert bad records to; None where they divert none.
        begun_by: which run of a DAG begins this; None where it is none.
        launch: the same for all starts that one command or task makes by itself.
    """

    name: str
    lanes: int
    sha256: str
    delivery: str = "exactly_once"
    handled: bool = False
    letters: str | None = None
    begun_by: str | None = None
    launch: str = field(default_factory=lambda: secrets.token_hex(8))


class Identified(Protocol):
    """Something with a cluster's id: the cluster, or what is on record of one that does not answer."""

    def cluster_id(self) -> str:
        """Return it."""


class Leader:
    """One run's leader. Not thread-safe.

    Args:
        flow: name, lanes and hash of the flow file.
        source: source cluster, for its id.
        target: target cluster, which holds the state.
    """

    def __init__(self, flow: FlowIdentity, source: Identified, target: Cluster) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._state_partition = TopicPartition(names.state_topic(flow.name), names.STATE_LEADER)
        self.state = StateLog(target, self._state_partition.topic, names.STATE_LEADER)
        self._producer: TxnProducer | None = None
        self._wanted: Layout | None = None
        self.layout: Layout | None = None

    @property
    def flow(self) -> FlowId:
        """Who this is among all flows."""
        return FlowId(self._flow.name, self._own().target_cluster_id)

    # ---- start

    def check_rights(self) -> None:
        """Refuse to lead a flow whose progress could not be written: before anybody is fenced.

        Raises:
            UsageError: READ on the group that holds the progress is missing.
            Retriable: the target is not reachable.
        """
        self._target.retry(lambda: check_may_commit(self._target, names.progress_group(self._flow.name)))

    def start(self) -> Layout:
        """Become the flow's newest generation, with every older one fenced.

        Returns:
            The confirmed, ready layout.

        Raises:
            Fenced: another start was newer.
            NeedsOperator: the flow's clusters have changed, or the target does not take its record.
            Retriable: the target is not reachable.
        """
        deadline, backoff = Deadline(START_DEADLINE_S), Backoff(first_s=0.5, cap_s=5.0)
        while True:
            try:
                self._check_not_overtaken()
                wanted = self._announce()
                self._fence(wanted.ids_to_fence)
                self.layout = self._confirm(wanted)
                return self.layout
            except (MustReset, Retriable) as error:
                # Refused or outcome unknown: ``UNCONFIRMED_IS_NEVER_RESUMED`` (docs/protocol.md).
                log.info("start of %s interrupted, beginning again: %s", self._flow.name, error)
                self._drop_producer()
                self._target.retry(self._check_not_overtaken, deadline)
                backoff.pause(deadline, error)

    def seize(self) -> Layout:
        """Fence every lane and older run, and leave the flow not ready: nobody copies (``seed`` and others).

        Returns:
            The layout, not ready; ``enrol`` may write progress now.

        Raises:
            As ``start``, and ``check_rights``.
        """
        self.check_rights()
        wanted = self._target.retry(lambda: self._announced(seized=True))
        self._fence(wanted.ids_to_fence)
        self.layout = wanted
        # What is planned from now on reads the progress, and nobody asks a second time.
        try:
            settle(self._active(), self._flow.name)
        except MustReset as error:
            raise Retriable(str(error)) from error
        # As in ``_confirm``: who looks before it has read its own layout believes itself fenced.
        self._target.retry(self.state.catch_up)
        return wanted

    def _announced(self, *, seized: bool) -> Layout:
        try:
            return self._announce(seized=seized)
        except MustReset as error:
            raise Retriable(str(error)) from error

    def _announce(self, *, seized: bool = False) -> Layout:
        reached(Step.LEADER_INIT)
        self._init()
        reached(Step.LEADER_READ)
        # A state topic that was created a moment ago may still be looking for its leader.
        previous = self._target.retry(self._read_all)
        source_id, target_id = self._source.cluster_id(), self._target.cluster_id()
        check_clusters(previous, source_id, target_id)
        progress = all_progress(self._target, self._flow.name)
        generation, fence_up_to = self._next_after(previous, newest_of(progress.values()))
        wanted = Layout(
            generation=generation,
            run=secrets.token_hex(8),
            lanes=self._flow.lanes,
            fence_up_to=fence_up_to,
            ready=False,
            source_cluster_id=source_id,
            target_cluster_id=target_id,
            flow_sha256=self._flow.sha256,
            started_at_ms=now_ms(),
            host=socket.gethostname(),
            delivery=delivery_with(previous, self._flow.delivery),
            seized=seized,
            interrupted=seized and leaves_unfinished(previous),
            fenced_starts=self._fenced_starts(previous),
            restarts=previous.restarts if previous and self._is_mine(previous) else restarts_with(previous),
            handled=ever_handled(previous, handler=self._flow.handled, seized=seized),
            letters=letters_with(previous, generation, None if seized else self._flow.letters),
            begun_by=self._flow.begun_by,
            launches=launches_with(previous, self._flow.launch),
            follows=follows_with(previous, self._flow.launch),
        )
        self._wanted = wanted
        reached(Step.LAYOUT_BEGIN)
        self._write({names.LAYOUT: wanted.to_json(), **self._promoted_again(progress)}, Step.LAYOUT_COMMIT)
        return wanted

    def _promoted_again(self, progress: Mapping[TopicPartition, CommittedOffset]) -> dict[str, Any]:
        """Return the records of topics whose promotion the state has lost: clients write to their copies."""
        found = {}
        for topic in sorted({tp.topic for tp in progress}):
            value = self.state.values.get(names.enrolment_key(topic))
            again = None if value is None else promoted_again(Enrolment.from_json(value), progress)
            if again is not None:
                log.warning(
                    "the state of %s has lost that %s was promoted: it stays so", self._flow.name, topic
                )
                found[names.enrolment_key(topic)] = again.to_json()
        return found

    def _next_after(self, previous: Layout | None, newest: int) -> tuple[int, int]:
        """Return the next generation, above all that have copied, and which lanes older ones may have.

        Where an unclean election has taken the end of the state's log, progress is of a newer one than it
        tells of. No lane would go on beside that, and how many lanes it had is on record no more.

        Args:
            newest: that has written progress; 0 where nothing tells of one.
        """
        known = previous.generation if previous else 0
        if newest <= known:
            return known + 1, fence_bound(previous)
        log.warning(
            "the state of %s has lost its end: generation %d has copied, and the newest on record is %d",
            self._flow.name,
            newest,
            known,
        )
        return newest + 1, MOST_LANES

    def _fenced_starts(self, previous: Layout | None) -> int:
        """Return how many starts have fenced a run that had not said that it ended; for people to count."""
        if previous is None:
            return 0
        fences = previous.may_run and not self._is_mine(previous)
        return previous.fenced_starts + fences

    def _is_mine(self, previous: Layout) -> bool:
        """Tell whether this starter wrote it itself, in an attempt to start that it makes again."""
        return self._wanted is not None and self._wanted.run == previous.run

    def _fence(self, ids: int) -> None:
        """Fence every lane id below ``ids``: only OK counts, "not yet" does not (``FENCED_ON_OK_ONLY``)."""
        for lane in range(ids):
            reached(Step.FENCE_LANE)
            fence(self._target, names.lane_id(self._flow.name, lane))
        # What merges the offset map may touch nothing that the new generation's lanes write.
        fence(self._target, names.map_id(self._flow.name))

    def _confirm(self, wanted: Layout) -> Layout:
        ready = wanted.as_ready(self._flow.delivery)
        reached(Step.READY_BEGIN)
        self._write({names.LAYOUT: ready.to_json()}, Step.READY_COMMIT)
        # EndTxn says OK before the marker is in the log. Until then a reader sees "not ready", and this
        # run and its lanes would believe themselves fenced.
        self.state.catch_up()
        return ready

    def _check_not_overtaken(self) -> None:
        """Stop when another start has committed a layout; read without disturbing its id."""
        wanted = self._wanted
        if wanted is None:
            return
        seen = self._read_layout()
        if seen is None or seen.run == wanted.run or seen.generation < wanted.generation:
            return
        check_mine(seen, wanted.generation, wanted.run)

    # ---- while running

    def settle(self) -> None:
        """Return when what the progress group's coordinator tells is all that it has (``told.settle``).

        Raises:
            Fenced: a newer generation runs.
            Retriable: interrupted; begin again.
        """
        try:
            settle(self._active(), self._flow.name)
        except (MustReset, Retriable) as error:
            self._regain(error)
            raise Retriable("the progress could not be asked for; it will be again") from error

    def enrol(
        self,
        enrolments: Iterable[Enrolment],
        new: Mapping[TopicPartition, OffsetToCommit],
        over: Iterable[TopicPartition] = (),
    ) -> None:
        """Make topics part of the flow: their records and first progress in one transaction.

        They can be read by all when this returns: whoever translates next waits for no transaction, and
        would go by what was there before.

        Args:
            enrolments: the topics' records, with all their partitions.
            new: start offsets of *target* partitions that have no progress yet; others must not be in it, but
                of one that is seized, where no lane lives.
            over: *target* partitions whose stop is over with this; only where no lane can write another.

        Raises:
            Fenced: a newer generation runs.
            Retriable: interrupted, outcome unknown: plan again from live state.
            UsageError, NeedsOperator: the target takes no progress of some topics, which the error names
                (``partitions``), or not the records (OWN_RECORD_REFUSED); nothing was enrolled.
        """
        records: dict[str, Any] = {}
        for enrolment in enrolments:
            records[names.enrolment_key(enrolment.target)] = enrolment.to_json()
            over_with_it = (names.claim_key(enrolment.target), names.first_key(enrolment.source))
            records |= {key: None for key in over_with_it if key in self.state.values}
        try:
            reached(Step.ENROL_BEGIN)
            self._send(records)
            if stops := {names.stop_key(*tp): None for tp in over}:
                self._send(stops, names.STATE_OTHERS)
            if new:
                reached(Step.ENROL_OFFSETS)
                self._active().add_offsets(names.progress_group(self._flow.name), new)
            self._end(Step.ENROL_COMMIT)
        except (MustReset, Retriable) as error:
            # Perhaps it was committed and a lane has moved on since: written again, the start
            # offsets would take its progress back (``ENROL_WITHOUT_PROGRESS_ONLY``). Only a new plan may.
            self._regain(error)
            raise Retriable("the enrolment was interrupted and has to be planned again") from error
        except OnceoverError as error:
            if error.partitions:
                # Its id is needed to enrol the others.
                self._regain(error)
            raise
        reached(Step.ENROL_DONE)
        self._await_markers()

    def _await_markers(self) -> None:
        """Return when the last transaction can be read: EndTxn says OK before the markers are in the logs."""
        try:
            # The coordinator begins no transaction of an id before the one before it is complete.
            settle(self._active(), self._flow.name)
        except (MustReset, Retriable) as error:
            # Nor does it give the id anew before.
            self._regain(error)

    def put(self, records: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write records of its own, such as claims, or take them back (None); they can be read by all when
        this returns, but for topics: those have ``enrol``.

        Raises:
            Fenced: a newer generation runs.
            Retriable: the target is away.
            NeedsOperator: OWN_RECORD_REFUSED.
        """
        self._confirmed(records)
        self.catch_up()

    def note(self, key: str, value: Mapping[str, Any]) -> None:
        """Write another of the leader's own records, such as the daily positions; raises as ``put``."""
        self._confirmed({key: value})

    def check(self) -> None:
        """Read what is new in the state.

        Raises:
            Fenced: the layout is no longer this run's own.
        """
        self.state.poll()
        self._check_mine()

    def catch_up(self) -> None:
        """Read the state to its end, everything that this run has committed included.

        Raises:
            Fenced: the layout is no longer this run's own.
        """
        self.state.catch_up()
        self._check_mine()

    def confirm(self) -> None:
        """Do as ``catch_up`` for who has taken an id that a newer generation may have fenced before.

        Raises:
            Fenced: the layout is no longer this run's own.
            Retriable: the target is away.
        """
        self._read_all()
        self._check_mine()

    def end(self, why: str = DONE, error: OnceoverError | None = None) -> None:
        """Write that this run ended by itself, and why; lanes that still live stop at once.

        Raises:
            As ``put``.
        """
        reached(Step.ENDED)
        ended = self._own().as_ended(now_ms(), why, error)
        self._confirmed({names.LAYOUT: ended.to_json()})

    def abort_lanes(self) -> None:
        """End what killed lanes left open, so that it does not hold the target's LSO for 15 s."""
        self._target.retry(self.catch_up)
        self._fence(self._own().lanes)

    def close(self) -> None:
        """Close all connections."""
        self._drop_producer()
        self.state.close()

    def _confirmed(self, records: Mapping[str, Any]) -> None:
        """Write records that may be written twice."""
        try:
            self._write(records, None)
        except (MustReset, Retriable) as error:
            self._regain(error)
            try:
                self._write(records, None)
            except MustReset as second:
                raise Retriable(f"the leader's transaction failed twice: {second}") from second

    def _regain(self, error: Exception) -> None:
        """After a confirmed run lost its id or its transaction: ``LAYOUT_DECIDES`` (docs/protocol.md)."""
        log.info("leader of %s lost its transaction: %s", self._flow.name, error)
        self._drop_producer()
        low, high = _RECOVERY_PAUSE_S
        time.sleep(random.uniform(low, high))
        self._target.retry(self._recover)

    def _recover(self) -> None:
        try:
            self._read_layout()
            self._check_mine()
            self._init()
            self._read_all()
            self._check_mine()
        except MustReset as error:
            raise Retriable(str(error)) from error

    def _check_mine(self) -> None:
        own = self._own()
        seen = layout_in(self.state.values)
        if not own.ready and seen == own:
            return  # seized, and nobody has started since
        if seen is not None:
            check_told(seen.generation, own.generation, self._flow.name, self._target.alias)
        check_mine(seen, own.generation, own.run)

    def _own(self) -> Layout:
        if self.layout is None:
            raise NeedsOperator("the flow has not been started", code=StateCode.NOT_STARTED)
        return self.layout

    # ---- transactions

    def _init(self) -> None:
        self._drop_producer()
        self._producer = TransactionalProducer(
            self._target, names.leader_id(self._flow.name), timeout_ms=LEADER_TIMEOUT_MS
        )
        topic = self._state_partition.topic
        written = [TopicPartition(topic, p) for p in (names.STATE_LEADER, names.STATE_OTHERS)]
        take_id(self._target, self._producer, written, Deadline(START_DEADLINE_S))

    def _read_layout(self) -> Layout | None:
        return layout_in(self.state.catch_up())

    def _read_all(self) -> Layout | None:
        # ``START_READS_UP_TO_A_MARK``: whoever fenced this id before has written its layout before the mark.
        return layout_in(self.state.read_whole())

    def _write(self, records: Mapping[str, Any], step: Step | None) -> None:
        self._send(records)
        self._end(step)

    def _send(self, records: Mapping[str, Any], partition: int = names.STATE_LEADER) -> None:
        try:
            offset = send(self._active(), self._state_partition._replace(partition=partition), records)
        except NeedsOperator:
            self._give_up()
            raise
        if partition == names.STATE_LEADER:
            self.state.holds(offset)

    def _give_up(self) -> None:
        """End a transaction that can only be aborted: open, it would keep everybody from the layout."""
        with suppress(MustReset, Retriable):
            self._active().abort()
        self._drop_producer()

    def _end(self, step: Step | None) -> None:
        if step is not None:
            reached(step)
        self._active().commit()

    def _active(self) -> TxnProducer:
        if self._producer is None:
            raise MustReset("the leader holds no producer")
        return self._producer

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
