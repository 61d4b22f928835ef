"""The copy of a rehearsal: a leader and a lane as a flow has them, under a name that no file can have.

Invariant: it shares nothing with the flow that is rehearsed: neither its progress, nor its transactional ids,
nor a topic of its target. Fencing it fences nobody else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from onceover.backoff import Backoff, Deadline
from onceover.copy.identity import LaneIdentity
from onceover.copy.lane import LaneTask
from onceover.copy.loop import Until
from onceover.drills.codes import DrillCode
from onceover.drills.progress import copied_to, left_to_copy, named
from onceover.errors import NeedsOperator, OnceoverError, Retriable, unexpected
from onceover.kafka.logs.between import stable_ends
from onceover.kafka.ports import Cluster
from onceover.lead.supervisor import Supervisor
from onceover.model import TopicPartition
from onceover.planning.plan import Refusal
from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.layout import DONE, FAILED, Layout
from onceover.stops.record import Stop, readable_stop, stopped_in

# A rehearsal is small: what one lane copies is enough to show that copying works.
LANES: Final = 1
# Of a lane that is told to stop: it ends its transaction first.
_JOIN_S: Final = 20.0
# A rehearsal is over by then, whatever happens.
_LONGEST_S: Final = 3600.0
_NAMED: Final = 3
_LOOK_AT_SOURCE: Final = "look at the topic's records on the source"

Opened = Callable[[], AbstractContextManager[tuple[Cluster, Cluster]]]


class ShadowCopy:
    """One run of it. Not thread-safe.

    Args:
        flow: its name.
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
        self._flow = flow
        self._source, self._target = source, target
        self._make_lead, self._make_lane, self._opened = lead, lane, opened
        self._lead: Supervisor | None = None
        self._thread: threading.Thread | None = None
        self._problem: OnceoverError | None = None
        self._until = Until(time.monotonic() + _LONGEST_S)
        self.layout: Layout | None = None

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
        self._thread = threading.Thread(target=self._copy, args=(layout,), name="rehearsal", daemon=True)
        self._thread.start()
        return {e.source: e for e in state.enrolled.values() if e.active}

    def ends(self, enrolled: Collection[Enrolment]) -> dict[TopicPartition, int]:
        """Return the last stable offsets of the source's partitions as they are now."""
        return stable_ends(self._source, [tp for enrolment in enrolled for tp in enrolment.sources()])

    def await_copied(
        self, enrolled: Collection[Enrolment], ends: Mapping[TopicPartition, int], deadline: Deadline
    ) -> None:
        """Return when everything before ``ends`` is committed on the target.

        Raises:
            NeedsOperator: a partition is stopped.
            Retriable: not within ``deadline``.
            Whatever the lane has met.
        """
        backoff = Backoff(cap_s=0.2)
        while True:
            self._check()
            self._check_stops()
            left = left_to_copy(copied_to(self._target, self._flow, enrolled), ends)
            if not left:
                return
            late = Retriable(
                f"the rehearsal's copy did not come to the end in time: {named(left)} are left",
                where=self._target.alias,
                resolve="choose fewer topics, or a smaller --sample",
            )
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

    def _check_stops(self) -> None:
        state = self._target.retry(lambda: read_flow_state(self._target, self._flow))
        stopped = sorted(stopped_in(state.others))
        if stopped:
            raise copy_stopped(self._target.alias, stopped, readable_stop(state.others, stopped[0]))


def copy_stopped(target: str, stopped: Sequence[TopicPartition], first: Stop | None) -> NeedsOperator:
    """Return what a rehearsal ends with whose copy has stopped: the flow it belongs to is gone behind it.

    Args:
        target: alias of the target.
        stopped: partitions there, at least one.
        first: why the first one is; None where nobody can read it.
    """
    stops = ", ".join(map(str, stopped[:_NAMED]))
    why = f": {first.code}: {first.message}" if first else ""
    return NeedsOperator(
        f"the rehearsal's copy stopped at {stops}{why}",
        code=DrillCode.COPY_STOPPED,
        where=target,
        expected=first.expected if first else None,
        seen=first.seen if first else None,
        resolve=f"the flow itself would stop there, too: {first.resolve if first else _LOOK_AT_SOURCE}",
    )
