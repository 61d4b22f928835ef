"""A running flow as its driver sees it: start, discovery, enrolment, heartbeat, end.

One supervisor per run; it owns the leader. The lanes run elsewhere and learn of everything it does
from the state topic.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from onceover.acls.sync import AclSync
from onceover.backoff import Patience
from onceover.clock import now_ms
from onceover.errors import NeedsOperator, OnceoverError, UsageError
from onceover.kafka import calls
from onceover.kafka.admin.topics import Admin
from onceover.kafka.codes import KafkaCode
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.kafka.produce.notes import NoteWriter
from onceover.lead.claims import Claims
from onceover.lead.enroller import Enroller, Start
from onceover.lead.leader import FlowIdentity, Leader
from onceover.lead.movement import MovementWatch
from onceover.mirrormaker.output import MirrorOutput
from onceover.model import TopicPartition
from onceover.planning.plan import Change, Refusal
from onceover.positions.merge import MapMerger, MapUpkeep, MergeRules
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.log import StateLog
from onceover.state.read import read_layout
from onceover.state.records.enrolment import Enrolment, LeftAt, read_enrolments
from onceover.state.records.firstlook import EARLIEST, FirstLook, over, remembered
from onceover.state.records.layout import DONE, Layout, check_distinct, launches_with
from onceover.state.records.managed import read_managed
from onceover.state.records.standstill import standstill_note
from onceover.stops.contents import refused_by_configuration
from onceover.stops.requests import (
    asked_to_look_again,
    asks_to_stop,
    resume_request,
    stop_request,
    unanswered,
)
from onceover.topics.apply import TopicApply
from onceover.topics.hops import changed_upstream
from onceover.topics.namingpolicy import NamingPolicy
from onceover.topics.own import MapKeeper, OwnedLog, StateSettings, create_flow_topics
from onceover.topics.plan import TopicPlan, View, copied_back, overlap, plan_topics, without
from onceover.topics.scope import Rules
from onceover.topics.view import TopicReader

log = logging.getLogger(__name__)

HEARTBEAT_S = 5.0
# A source that is silent may hold a tick up for so long, or the driver itself would count as gone.
_SOURCE_PATIENCE_S = 8.0
# How often it is said that a note is not taken: it is tried every few seconds.
_COMPLAINTS_S = 60.0
_POSITIONS_S = 24 * 3600.0
# A request that nobody needs any more: it was answered, or was for a partition that is not stopped.
_REQUEST_LIFE_S = 60.0
_NAMED = 5
# A lane that met what a copy refused may have a transaction open for 15 s until it writes its stop.
_FOLLOWED_S = 30.0
# Of half a kilobyte each: they stay within one record of 1 MiB.
_REFUSED_SHOWN = 1000


@dataclass(frozen=True)
class Scope:
    """Which topics a flow copies, and how fast it may, from the flow file as it is now.

    Args:
        rules: which topics are in, and how they are called on the target.
        start: where the flow's first topics begin.
        interval_s: pause between two discoveries.
        sync_configs: whether the topics' configuration is copied.
        bytes_per_second: of all lanes together; None without a limit.
    """

    rules: Rules
    start: Start
    interval_s: float
    sync_configs: bool
    bytes_per_second: int | None


class Supervisor:
    """One run of a flow. Not thread-safe.

    Args:
        flow: name, lanes, hash.
        source: source cluster; ``target`` likewise.
        scope: asked at every discovery, so that the flow file may change meanwhile.
        state: replication of the flow's own topics.
        acls: keeps the target's ACLs in line with the source's.
        mirror: writes MirrorMaker 2's records; closed with the run.
        home: folder of the flow's files, for the index of the offset map.
    """

    def __init__(
        self,
        flow: FlowIdentity,
        source: Cluster,
        target: Cluster,
        scope: Callable[[], Scope],
        state: StateSettings,
        acls: AclSync,
        mirror: MirrorOutput,
        home: Path,
    ) -> None:
        self._flow = flow
        source.patience = self._patience = Patience()
        self._source = source
        self._target = target
        self._scope = scope
        self._state_settings = state
        self._acls = acls
        self._mirror = mirror
        self._target_admin = Admin(target)
        self._owned = OwnedLog(self._target_admin, target, flow.name, state)
        self._map = MapKeeper(self._target_admin, target, flow.name, state)
        self.leader = Leader(flow, source, target)
        others = TopicPartition(names.state_topic(flow.name), names.STATE_OTHERS)
        self._notes = NoteWriter(target, others)
        self._requests = StateLog(target, others.topic, others.partition, calls.READ_UNCOMMITTED)
        self._stops = StateLog(target, others.topic, others.partition, prefixes=(names.STOP_PREFIX,))
        self._reader = TopicReader(flow.name, source, target)
        self._enroller = Enroller(self.leader, source, target)
        rules = MergeRules.for_retention(state.map_retention_ms)
        merger = MapMerger(target, flow.name, home, self.leader.confirm, self._enrolled, rules)
        self._upkeep = MapUpkeep(merger)
        self._movement = MovementWatch(
            flow.name, flow.lanes, source, target, self._active, lambda: self._scope().bytes_per_second
        )
        self.refused: list[Refusal] = []
        self._unenrolled: list[Refusal] = []
        self._asked: dict[tuple[str, int], float] = {}
        # Target topics whose configuration has followed their source's, and when.
        self._followed: dict[str, float] = {}
        self._discovered: Scope | None = None
        self._noted: dict[str, object] | None = None
        self._heard_ms = 0
        self._discovered_s = self._next_heartbeat_s = self._next_positions_s = 0.0
        self._next_complaint_s = 0.0
        # How often the topics were looked at: in between the flow copies what it did.
        self.discoveries = 0

    def start(self) -> Layout:
        """Create the flow's topics where they are missing, then become its newest generation.

        Raises:
            UsageError: source and target are one cluster under two addresses, a new flow would copy back
                what another one copies, or its progress may not be written; nothing was changed.
            Fenced: this start follows a killed one, and another has taken over meanwhile.
        """
        ids = [cluster.retry(cluster.cluster_id) for cluster in (self._source, self._target)]
        check_distinct(*ids)
        newest = read_layout(self._target, self._flow.name)
        if newest is None:
            self._target.retry(self._check_one_way)
        # Asked again behind the id; but who asks for that first, disturbs the newer one.
        launches_with(newest, self._flow.launch)
        self.leader.check_rights()
        create_flow_topics(
            self._target_admin, self._flow.name, self._state_settings, is_known=newest is not None
        )
        return self.leader.start()

    def _check_one_way(self) -> None:
        view = self._reader.read(self._scope().rules, {}, {}, sync_configs=False)
        found = overlap(view)
        if not found:
            return
        decision, loop = found[0]
        refusal = copied_back(view, decision, loop)
        shown = ", ".join(v.topic for v, _ in found[:_NAMED])
        raise UsageError(
            refusal.message,
            code=refusal.code,
            where=f"{len(found)} topics: {shown}{', ...' if len(found) > _NAMED else ''}",
            expected=f"topics that no other flow writes on {self._source.alias} from {self._target.alias}",
            seen=f"flow {loop.ring[0] if loop.ring else loop.flow} has enrolled them",
            resolve=refusal.resolve,
        )

    def tick(self) -> None:
        """Do what is due: check that this run still owns the flow, discover, show a sign of life.

        Raises:
            Fenced: a newer generation runs.
            Retriable: a cluster is away; call again.
            NeedsOperator: a topic is new, and the target does not take the record of that.
        """
        self.leader.check()
        now = time.monotonic()
        # Before anything that asks the source: without one this driver lives all the same.
        if now >= self._next_heartbeat_s:
            self._map.tick()
            self._tell(self._beat)
            self._next_heartbeat_s = time.monotonic() + HEARTBEAT_S
        # Connections keep to the one that their cluster had when they were opened.
        self._patience.limit_s = _SOURCE_PATIENCE_S
        self._patience.renew()
        if self._discovery_is_due(now):
            self.discover()
        self._acls.tick(self.copied, self._owned, self._owned.notes)
        self._mirror.tick()
        self._tell(partial(self._note_refused, just_read=False))
        self._tell(self._note_standstills)
        if now >= self._next_positions_s:
            written = self._tell(self._mirror_positions)
            self._next_positions_s = time.monotonic() + (_POSITIONS_S if written else _COMPLAINTS_S)
        self._upkeep.tick()

    def _discovery_is_due(self, now_s: float) -> bool:
        """Tell whether the interval is over, or the flow file says something else than last time."""
        scope = self._scope()
        return scope != self._discovered or now_s >= self._discovered_s + scope.interval_s

    def copied(self) -> dict[str, str]:
        """Return the topics that the flow copies, source name to target name."""
        return {e.source: e.target for e in self._active()}

    def _active(self) -> list[Enrolment]:
        return [enrolment for enrolment in self._enrolled().values() if enrolment.active]

    def _enrolled(self) -> dict[str, Enrolment]:
        return read_enrolments(self.leader.state.values)

    def stop_requested(self) -> bool:
        """Tell whether somebody has asked this run to stop (``onceover stop``)."""
        return asks_to_stop(self._requests.values.get(names.REQUEST_STOP), self._layout().run)

    def was_asked_to_stop(self) -> bool:
        """Tell the same, from all that has been written up to now.

        Raises:
            Retriable: the target is not reachable.
        """
        self._target.retry(self._requests.catch_up)
        return self.stop_requested()

    def was_asked_before(self) -> bool:
        """Tell whether somebody has asked a run to stop that was killed, and that this one follows.

        Who asks writes the request and reads the layout then, this run the other way round: one sees the
        other.

        Raises:
            Retriable: the target is not reachable.
        """
        layout = self._layout()
        if not layout.follows:
            return False
        self._target.retry(self._requests.catch_up)
        request = self._requests.values.get(names.REQUEST_STOP)
        return any(asks_to_stop(request, run) for run in (layout.run, *layout.follows))

    def finish_lanes(self) -> None:
        """Ask the lanes to finish.

        Not in the place of what a person asks, for whom a run that follows a killed one has to look.
        """
        self._notes.write(names.REQUEST_FINISH, stop_request(self._layout().run))

    def end(self, why: str = DONE, error: OnceoverError | None = None) -> None:
        """Write that the run has ended, end what its lanes left open, take back what it has asked of them.

        What a person has asked stays: the driver may be killed before anybody hears how it has ended, and is
        started again then. It names the run, and means no other.

        In this order: a lane that is fenced reads the layout again, and only one that says "ended" keeps a
        dying worker from opening another transaction.

        Args:
            why: ``done``, ``asked`` or ``failed``; ``error`` what it failed with. For ``status``.

        Raises:
            Fenced: a newer generation runs.
            Retriable: the target is away.
            NeedsOperator: OWN_RECORD_REFUSED, nobody is told; what its lanes left open is ended all the same.
        """
        try:
            self._claims(self._scope().rules.naming).withdraw()
            self.leader.end(why, error)
        except NeedsOperator:
            # A dying worker may open another one, because nobody has told it; what is open now is over.
            self.leader.abort_lanes()
            raise
        self.leader.abort_lanes()
        self._target.retry(self._requests.catch_up)
        if asks_to_stop(self._requests.values.get(names.REQUEST_FINISH), self._layout().run):
            # It names this run, and means no other.
            self._tell(partial(self._notes.write, names.REQUEST_FINISH, None))
        self._mirror.finish()
        # What the last round could not write: short runs have no other.
        self._tell(partial(self._note_refused, just_read=True))

    def close(self) -> None:
        """Close everything; the clusters belong to the caller."""
        self._mirror.close()
        self.leader.close()
        self._upkeep.close()
        self._reader.close()
        self._requests.close()
        self._stops.close()
        self._owned.close()
        self._notes.close()

    def _layout(self) -> Layout:
        if self.leader.layout is None:
            raise NeedsOperator("the flow has not been started", code=StateCode.NOT_STARTED)
        return self.leader.layout

    # ---- discovery

    def discover(self) -> TopicPlan:
        """Bring the flow in line with both clusters and the flow file: create, configure, then enrol.

        Raises:
            Retriable: interrupted; the next call plans anew.
        """
        scope = self._scope()
        # Not what was polled last: an enrolment of our own that is committed but not readable yet would
        # be planned again, and its start offsets would take a lane's progress back
        # (``ENROL_WITHOUT_PROGRESS_ONLY``).
        self.leader.catch_up()
        self._requests.catch_up()
        view = self._reader.read(
            scope.rules,
            read_enrolments(self.leader.state.values),
            read_managed(self._owned.catch_up()),
            sync_configs=scope.sync_configs,
        )
        view = replace(view, now=LeftAt(self._layout().generation, now_ms()))
        wanted = plan_topics(view)
        # Before all else: until then a run that is killed leaves the first look to the next one.
        first = self._first_look(view, scope.start)
        self._tell_upstream(view, wanted)
        plan = self._apply(view, self._claimed(view, wanted))
        if plan.enrol or plan.turn:
            start = partial(_start_of, scope.start, first)
            self._unenrolled = self._enroller.enrol(view, plan, start)
            known = {refusal.object for refusal in self._unenrolled}
            self._refuse([*(r for r in self.refused if r.object not in known), *self._unenrolled])
        self._discovered_s, self._discovered = time.monotonic(), scope
        self.discoveries += 1
        self._heard_ms = now_ms()
        return plan

    def _first_look(self, view: View, start: Start) -> FirstLook:
        """Return what the flow's first discovery saw; the first one writes that down before all else."""
        first = FirstLook.read(self.leader.state.values)
        if first.is_over:
            return first
        if start != EARLIEST:
            known = view.enrolled_by_source
            inside = [d.topic for d in view.decisions() if d.inside and d.topic not in known]
            if seen := remembered(view.source[topic] for topic in inside if topic in view.source):
                self.leader.put(seen)
        # Behind them: a run that is killed in between has enrolled nothing, and the next look is the first.
        self.leader.put(over(now_ms()))
        return FirstLook.read(self.leader.state.values)

    def _claimed(self, view: View, plan: TopicPlan) -> TopicPlan:
        """Claim new and returning topics; return the plan without those that are another flow's."""
        known, naming = view.enrolled_by_source, view.rules.naming
        wanted = {topic: naming.target_name(topic) for topic in plan.enrol if topic not in known}
        wanted |= {enrolment.source: enrolment.target for enrolment in plan.turn if enrolment.active}
        return without(plan, self._claims(naming).settle(wanted))

    def _tell_upstream(self, view: View, plan: TopicPlan) -> None:
        """Keep on record where the topics come from that are copied, before any of them is taken in."""
        left = {enrolment.source for enrolment in plan.turn if not enrolment.active}
        targets = {e.source: e.target for e in view.enrolled.values() if e.active and e.source not in left}
        targets |= {e.source: e.target for e in plan.turn if e.active}
        targets |= {topic: view.rules.naming.target_name(topic) for topic in plan.enrol}
        known = self.leader.state.values
        changes = changed_upstream(known, view.upstream, targets, whole=not view.unreadable)
        if changes:
            self.leader.put(changes)

    def _claims(self, naming: NamingPolicy) -> Claims:
        return Claims(self.leader, lambda topics: self._reader.rivals(naming, topics))

    def _apply(self, view: View, plan: TopicPlan) -> TopicPlan:
        """Change the target; return the plan without the topics for which that was refused.

        Raises:
            Retriable: somebody else has made one of its topics since it was planned.
        """
        work = TopicApply(self._target_admin, self._owned.notes, dict(view.managed), _report)
        work.run(plan)
        self._followed |= dict.fromkeys(work.configured, time.monotonic())
        if plan.steps:
            self._reader.changed()
        work.check_not_overtaken(self._target)
        # Tried again each time, and told until it works.
        still = [refusal for refusal in self._unenrolled if refusal.object in plan.enrol]
        self._refuse([*plan.refused, *work.refused, *still])
        blocked = {refusal.object for refusal in work.refused if refusal.blocks}
        return replace(plan, enrol=tuple(topic for topic in plan.enrol if topic not in blocked))

    def _refuse(self, refused: list[Refusal]) -> None:
        """Say what is new among the refusals, and keep them for ``status``."""
        for refusal in refused:
            if refusal not in self.refused:
                level = logging.ERROR if refusal.blocks else logging.WARNING
                log.log(level, "%s: %s; %s", refusal.object, refusal.message, refusal.resolve)
        if refused != self.refused:
            self.refused = refused
            self._next_heartbeat_s = 0.0

    # ---- signs of life

    def _tell(self, write: Callable[[], None]) -> bool:
        """Write what is for people; where the target does not take it, that is said, and ends no run.

        Nothing is copied by it, and what is refused may be so for a clock that has jumped.

        Returns:
            Whether it was written.
        """
        try:
            write()
            return True
        except NeedsOperator as error:
            if error.code not in (KafkaCode.WRITE_REFUSED, KafkaCode.OWN_RECORD_REFUSED):
                raise
            now_s = time.monotonic()
            if now_s >= self._next_complaint_s:
                log.error("status shows what was before: %s", error)  # noqa: TRY400 - no bug, no traceback
                self._next_complaint_s = now_s + _COMPLAINTS_S
            return False

    def _beat(self) -> None:
        self._requests.poll()
        layout = self._layout()
        value = {
            "v": 1,
            "generation": layout.generation,
            "run": layout.run,
            "at_ms": now_ms(),
            "pid": os.getpid(),
            "source_ms": max(self._heard_ms, self._movement.heard_ms),
        }
        self._notes.write(names.HEARTBEAT, value)
        self._note_refused(just_read=True)
        self._take_back()
        self._look_again()

    def _look_again(self) -> None:
        """Have lanes look again at what copies refused whose configuration has followed the source's since.

        A limit is widened on the source, and records that need it come at once: a lane meets them first.
        """
        now_s = time.monotonic()
        self._followed = {t: at_s for t, at_s in self._followed.items() if now_s - at_s < _FOLLOWED_S}
        if not self._followed:
            return
        for tp, stop in refused_by_configuration(self._stops.catch_up(wait=False)).items():
            key = names.resume_key(*tp)
            if tp.topic in self._followed and not stop.is_meant_by(self._requests.values.get(key)):
                log.info("%s is looked at again: its configuration has followed the source's", tp)
                self._notes.write(key, resume_request(stop))

    def _take_back(self) -> None:
        """Take back requests that have been there for long enough, by this driver's clock alone.

        None that its lane has still to answer: it may have no task for longer, or no broker.
        """
        now_s = time.monotonic()
        asked = asked_to_look_again(self._requests.values)
        self._asked = {request: self._asked.get(request, now_s) for request in asked}
        old = {request for request, seen_s in self._asked.items() if now_s - seen_s > _REQUEST_LIFE_S}
        if not old:
            return
        # A lane's answer is one once it is committed. Then the requests again: somebody may have asked anew.
        stops = self._stops.catch_up(wait=False)
        requests = self._requests.catch_up()
        waiting = {names.resume_key(*tp) for tp in unanswered(requests, stops)}
        for key, _ in old & asked_to_look_again(requests):
            if key not in waiting:
                self._notes.write(key, None)

    def _note_refused(self, *, just_read: bool) -> None:
        """Write down what is refused, for ``status``; only when it is something else than before.

        Args:
            just_read: what stands in the state is known; otherwise our own last note may not be in it yet.
        """
        others = [*self._acls.refused, *self._mirror.refused, *self._map.refused]
        refused = [refusal.document() for refusal in [*self.refused, *others]]
        value: dict[str, object] = {"v": 1, "refused": refused[:_REFUSED_SHOWN], "count": len(refused)}
        if self._requests.values.get(names.REFUSED) != value and (just_read or self._noted != value):
            self._notes.write(names.REFUSED, value)
            self._noted = value

    def _note_standstills(self) -> None:
        """Write down what does not move, for ``status``; nothing while everything has always moved."""
        still = self._movement.tick()
        value = standstill_note(self._layout().generation, still)
        known = self._requests.values.get(names.STILL)
        if known != value and (still or known is not None):
            self._notes.write(names.STILL, value)

    def _mirror_positions(self) -> None:
        """Keep the positions in the state once a day: evidence for ``seed``, never resumed from."""
        committed = self._target.committed(names.progress_group(self._flow.name), None)
        positions = {str(tp): offset.offset for tp, offset in committed.items()}
        self.leader.note(names.POSITIONS, {"v": 1, "at_ms": now_ms(), "positions": positions})


def _start_of(start: Start, first: FirstLook, topic: TopicInfo) -> Start:
    return start if first.saw(topic) else EARLIEST


def _report(change: Change) -> None:
    log.info("%s %s: %s -> %s (%s)", change.what, change.object, change.from_, change.to, change.reason)
