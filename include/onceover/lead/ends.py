"""What a run that is to end asks of the clusters: is there something left to do? Reads only, decides nothing
about positions.

Invariant: a partition that nobody leads, or that may not be asked about, holds up no other one; a run that
had to leave one out says so, or its lane stops it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from uuid import UUID

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.codes import KafkaCode
from onceover.kafka.ports import Cluster
from onceover.lead.codes import LeadCode
from onceover.model import TopicPartition
from onceover.resume.resume import is_leaderless, map_partition
from onceover.state import names
from onceover.state.log import StateLog
from onceover.state.read import read_log
from onceover.state.records.enrolment import Enrolment, read_enrolments
from onceover.state.records.layout import layout_in
from onceover.stops.record import stopped_in
from onceover.stops.requests import asked_to_end, unanswered

log = logging.getLogger(__name__)

# How long a run goes on, in words: until what was on the source when it began is on the target.
CAUGHT_UP: Final = "caught-up"

_TIMEOUT_S = 60.0
# Elections are over by then; a broker that was restarted often is not, and the next run looks for it.
LEADERLESS_S = 30.0
_LOOK_AGAIN_S = 0.5
_NAMED = 3


class EndCheck:
    """Looks at one run of a flow. Not thread-safe.

    Args:
        flow: name of the flow.
        run: the run that copies; a stop request names it.
    """

    def __init__(self, flow: str, run: str) -> None:
        self._flow = flow
        self._run = run
        self._clusters: tuple[Cluster, Cluster] | None = None
        self._requests: StateLog | None = None
        self._left_out: set[TopicPartition] = set()
        self._seen: dict[str, UUID] = {}

    def open(self, source: Cluster, target: Cluster) -> None:
        """Take over both clusters; ``close`` closes them."""
        self._clusters = (source, target)
        topic = names.state_topic(self._flow)
        self._requests = StateLog(target, topic, names.STATE_OTHERS, calls.READ_UNCOMMITTED)

    def close(self) -> None:
        """Close everything."""
        if self._requests is not None:
            self._requests.close()
        for cluster in self._clusters or ():
            cluster.close()

    def stop_requested(self) -> bool:
        """Tell whether this run was asked to stop."""
        target, requests = self._both()[1], self._requests
        if requests is None:
            return False
        target.retry(requests.catch_up, Deadline(_TIMEOUT_S))
        return asked_to_end(requests.values, self._run)

    @property
    def left_out(self) -> frozenset[TopicPartition]:
        """What exists, and whose end nobody told when it was last asked for."""
        return frozenset(self._left_out)

    def ends(self) -> dict[TopicPartition, int]:
        """Return the source's LSO of every enrolled partition that exists and whose leader tells it.

        Raises:
            Retriable: nobody tells anything for a minute.
        """
        source, _ = self._both()
        try:
            return source.retry(self._ends, Deadline(_TIMEOUT_S))
        except Retriable:
            # A broker that leads and cannot be reached from here holds up its own partitions only: their
            # lane stops them when its patience is over.
            found = self._ends(patient=False)
            if not found:
                raise
            return found

    def _ends(self, *, patient: bool = True) -> dict[TopicPartition, int]:
        wanted, led = self._read_leaders()
        found = self._told(led, patient=patient)
        self._left_out = wanted - found.keys()
        if self._left_out:
            log.warning("left out for now: %s", listed(self._left_out))
        return found

    def _told(self, partitions: Collection[TopicPartition], *, patient: bool) -> dict[TopicPartition, int]:
        """Return the LSOs of those that we may ask about.

        Raises:
            Retriable: others will be told; never if not ``patient``.
        """
        source, _ = self._both()
        each = source.each_offset(partitions, calls.LATEST)
        if patient:
            _raise_temporary(each.failed.values())
        return each.found

    def reached(self, ends: dict[TopicPartition, int]) -> bool:
        """Tell whether everything up to ``ends`` is committed, stopped partitions aside.

        Not those that somebody has asked to look again at: their lane has not yet, and may copy them.

        Args:
            ends: what ``ends`` returned; a partition that was left out is added once it has a leader.

        Raises:
            Retriable: NO_LEADER, nothing is left but partitions that have had no leader for some time.
        """
        source, target = self._both()
        deadline = Deadline(LEADERLESS_S)
        while True:
            ends.update(source.retry(self._late_ends, Deadline(_TIMEOUT_S)))
            left = target.retry(lambda: self._waited_for(ends), Deadline(_TIMEOUT_S))
            if not left:
                return True
            waiting = self._leaderless(left)
            if left - waiting or self.stop_requested():
                return False
            if deadline.passed:
                raise self._incomplete(waiting)
            time.sleep(_LOOK_AGAIN_S)

    def left(self, ends: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return the source partitions that are not known to be copied up to ``ends``, stopped or not.

        Raises:
            Retriable: the target does not answer for a minute.
        """
        return set(self._both()[1].retry(lambda: self._left(ends), Deadline(_TIMEOUT_S)))

    def _late_ends(self) -> dict[TopicPartition, int]:
        """Return the LSO of partitions that were left out and can be asked about now."""
        if not self._left_out:
            return {}
        wanted, led = self._read_leaders()
        found = self._told(self._left_out & led, patient=False)
        self._left_out = (self._left_out & wanted) - found.keys()
        return found

    def _waited_for(self, ends: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return those that are left and not stopped; whether they are is read behind their positions."""
        left = self._left(ends)
        stopped = self._stopped()
        return {tp for tp, copied_to in left.items() if copied_to not in stopped}

    def _left(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, TopicPartition]:
        """Return the source partitions that are not known to be copied up to their end, or have none yet.

        With their counterparts. Nothing is known of those of a topic that was made anew: until its lane has
        noticed, what is committed counts the records of the one that is gone.
        """
        _, target = self._both()
        enrolled = self._read().values()
        anew = {
            tp for e in enrolled for tp in e.sources() if self._seen.get(e.source, e.source_id) != e.source_id
        }
        targets = {e.target_of(tp): tp for e in enrolled for tp in e.sources()}
        committed = target.each_committed(names.progress_group(self._flow), targets).found if targets else {}
        behind = {
            source
            for tp, source in targets.items()
            # What is not told may be anything; its lane stops it where that does not pass.
            if tp not in committed or committed[tp].offset < ends.get(source, 0)
        }
        left = behind | self._left_out | anew
        return {source: tp for tp, source in targets.items() if source in left}

    def _leaderless(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those that nobody leads on one of the sides, their part of the offset map included."""
        source, target = self._both()
        enrolled = target.retry(self._read, Deadline(_TIMEOUT_S))
        owners = {tp: e for e in enrolled.values() for tp in e.sources() if tp in partitions}
        here = source.retry(lambda: source.each_topic(sorted({tp.topic for tp in owners}))).found
        written = {tp: (e.target_of(tp), map_partition(self._flow, tp)) for tp, e in owners.items()}
        topics = sorted({one.topic for pair in written.values() for one in pair})
        there = target.retry(lambda: target.each_topic(topics)).found
        return {
            tp
            for tp, pair in written.items()
            if is_leaderless(here, tp) or any(is_leaderless(there, one) for one in pair)
        }

    def _incomplete(self, waiting: Collection[TopicPartition]) -> Retriable:
        source, target = self._both()
        return Retriable(
            f"everything is copied but what partitions without a leader hold: {listed(waiting)}",
            code=KafkaCode.NO_LEADER,
            expected="a leader on both sides",
            seen=f"none on {source.alias} or {target.alias} for {LEADERLESS_S:.0f} s",
            resolve="bring the brokers back that hold them, then run again",
        )

    def _stopped(self) -> set[TopicPartition]:
        """Return the target partitions that are stopped, and stay so by all that is known."""
        topic = names.state_topic(self._flow)
        values = read_log(self._both()[1], topic, names.STATE_OTHERS, wait=False)
        return stopped_in(values) - unanswered(values, values)

    def _read(self) -> dict[str, Enrolment]:
        """Return the topics that are copied; those that have left the filter hold up nobody.

        Those that were taken in a moment ago are waited for: their records may be committed and not readable
        yet. From then on the source is the one that the run copies, whatever its address leads to.
        """
        source, target = self._both()
        values = read_log(target, names.state_topic(self._flow), names.STATE_LEADER, wait=True)
        layout, found = layout_in(values), read_enrolments(values)
        if layout is not None:
            source.keep_to(layout.source_cluster_id)
        return {target: enrolment for target, enrolment in found.items() if enrolment.active}

    def _read_leaders(self) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Return the enrolled source partitions that exist, for all we may know, and those with a leader."""
        source, _ = self._both()
        enrolled = [tp for e in self._read().values() for tp in e.sources()]
        topics = source.each_topic(sorted({tp.topic for tp in enrolled}))
        _raise_temporary(topics.failed.values())
        found = topics.found
        self._seen.update((name, info.topic_id) for name, info in found.items())
        there = {tp for tp in enrolled if tp.topic in found and tp.partition in found[tp.topic].partitions}
        hidden = {tp for tp in enrolled if tp.topic in topics.failed}
        return there | hidden, {tp for tp in there if not is_leaderless(found, tp)}

    def _both(self) -> tuple[Cluster, Cluster]:
        if self._clusters is None:
            raise NeedsOperator("the clusters were asked before they were opened", code=LeadCode.NOT_OPEN)
        return self._clusters


def _raise_temporary(errors: Iterable[OnceoverError]) -> None:
    for error in errors:
        if isinstance(error, Retriable):
            raise error


def listed(partitions: Collection[TopicPartition]) -> str:
    """Return the first of them by name, and how many more there are."""
    shown = [str(tp) for tp in sorted(partitions)]
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f"{', '.join(shown[:_NAMED])}{more}"
