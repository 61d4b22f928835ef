"""The copy of a rehearsal: a leader and a lane as a flow has them, under a name that no file can have.

Invariant: it shares nothing with the flow that is rehearsed: neither its progress, nor its transactional ids,
nor a topic of its target. Fencing it fences nobody else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from onceover.backoff import Backoff, Deadline
from onceover.copy.identity import LaneIdentity
from onceover.copy.lane import LaneTask
from onceover.copy.loop import Until
from onceover.drills.progress import copied_to, left_to_copy
from onceover.drills.rehearsing.trouble import copy_late, copy_stopped
from onceover.errors import OnceoverError, Retriable, unexpected
from onceover.kafka.logs.between import stable_ends
from onceover.kafka.ports import Cluster
from onceover.lead.supervisor import Supervisor
from onceover.model import TopicPartition
from onceover.planning.background import begin
from onceover.planning.plan import Refusal
from onceover.state import names
from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.layout import DONE, FAILED, Layout
from onceover.stops.codes import StopCode
from onceover.stops.record import Stop, readable_stop, stopped_in

# A rehearsal is small: what one lane copies is enough to show that copying works.
LANES: Final = 1
# Of a lane that is told to stop: it ends its transaction first.
_JOIN_S: Final = 20.0
# A rehearsal is over by then, whatever happens.
_LONGEST_S: Final = 3600.0

Opened = Callable[[], AbstractContextManager[tuple[Cluster, Cluster]]]


class ShadowCopy:
    """One run of it. Not thread-safe.

    Args:
        flow: the flow that is rehearsed.
        source: source cluster; ``target`` likewise. Belong to the caller.
        lead: makes its supervisor.
        lane: makes the task of its lane, of clusters of its own.
        opened: opens and closes those.
    """

    def __init__(
        self,
        flow: str,
        source: Cluster,
        target: Cluster,
        lead: Callable[[Cluster, Cluster], Supervisor],
        lane: Callable[[LaneIdentity, Cluster, Cluster], LaneTask],
        opened: Opened,
    ) -> None:
        self._rehearsed, self._flow = flow, names.rehearsal_flow(flow)
        self._source, self._target = source, target
        self._make_lead, self._make_lane, self._opened = lead, lane, opened
        self._lead: Supervisor | None = None
        self._thread: threading.Thread | None = None
        self._problem: OnceoverError | None = None
        self._until = Until(time.monotonic() + _LONGEST_S)
        self.layout: Layout | None = None
        # What retention has overtaken: of the rehearsal's own position, by source partition.
        self.expired: dict[TopicPartition, Stop] = {}

    @property
    def refused(self) -> list[Refusal]:
        """What it leaves out, and why."""
        return [] if self._lead is None else self._lead.refused

    def start(self) -> dict[str, Enrolment]:
        """Make its topics, take the chosen ones in, and let the lane copy; return what was taken in.

        Raises:
            As ``Supervisor.start`` and ``discover``.
        """
        self._lead = lead = self._make_lead(self._source, self._target)
        self.layout = layout = lead.start()
        self._target.retry(lead.discover)
        state = self._target.retry(lambda: read_flow_state(self._target, self._flow))
        thread = threading.Thread(target=self._copy, args=(layout,), name="rehearsal", daemon=True)
        begin(thread)
        self._thread = thread
        return {e.source: e for e in state.enrolled.values() if e.active}

    def ends(self, enrolled: Collection[Enrolment]) -> dict[TopicPartition, int]:
        """Return the last stable offsets of the source's partitions as they are now."""
        return stable_ends(self._source, [tp for enrolment in enrolled for tp in enrolment.sources()])

    def await_copied(
        self, enrolled: Collection[Enrolment], ends: Mapping[TopicPartition, int], deadline: Deadline
    ) -> None:
        """Return when everything before ``ends`` is committed on the target, or known to be in ``expired``.

        Raises:
            NeedsOperator: a partition is stopped.
            Retriable: not within ``deadline``.
            Whatever the lane has met.
        """
        backoff = Backoff(cap_s=0.2)
        copies = {tp: each.target_of(tp) for each in enrolled for tp in each.sources()}
        while True:
            self._check()
            notes = self._checked(copies)
            left = left_to_copy(copied_to(self._target, self._flow, enrolled), ends)
            left = {tp: offsets for tp, offsets in left.items() if tp not in self.expired}
            if not left:
                return
            late = copy_late(self._target.alias, left, copies, notes)
            backoff.pause(deadline, late)

    def stop(self) -> None:
        """End the run: its lane first, then the leader, which fences what may be left of it.

        Raises:
            Retriable: the lane does not end, or the target is away.
        """
        self._until.stopped = True
        if self._thread is not None:
            self._thread.join(_JOIN_S)
            if self._thread.is_alive():
                raise Retriable("the rehearsal's lane does not end", where=self._source.alias)
        if self._lead is not None:
            self._lead.end(DONE if self._problem is None else FAILED, self._problem)
        self._check()

    def close(self) -> None:
        """Let go of everything, whatever state it is in."""
        self._until.stopped = True
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        if self._lead is not None:
            self._lead.close()
            self._lead = None

    def _copy(self, layout: Layout) -> None:
        # Numbers of instances grow within a generation, and there is one task.
        me = LaneIdentity(self._flow, layout.generation, layout.run, 0, layout.lanes, (1, 1))
        try:
            with self._opened() as (source, target):
                for _ in self._make_lane(me, source, target).run(self._until):
                    pass
        except OnceoverError as error:
            self._problem = error
        except Exception as error:  # noqa: BLE001 - a thread's: raised by whoever waits for it
            self._problem = unexpected(error)

    def _check(self) -> None:
        if self._problem is not None:
            raise self._problem

    def _checked(self, copies: Mapping[TopicPartition, TopicPartition]) -> Mapping[str, Any]:
        """Return what its lanes have noted, once none of its partitions is stopped that should not be."""
        others = self._target.retry(lambda: read_flow_state(self._target, self._flow)).others
        found = set(stopped_in(others))
        for source, target in copies.items():
            stop = readable_stop(others, target) if target in found else None
            if stop is not None and stop.code == StopCode.SOURCE_TRUNCATED:
                self.expired[source] = stop
        if stopped := sorted(found - {copies[tp] for tp in self.expired if tp in copies}):
            first = readable_stop(others, stopped[0])
            raise copy_stopped(self._rehearsed, self._target.alias, stopped, first)
        return others
