"""A running flow as its driver sees it: start, discovery, enrolment, heartbeat, end.

One supervisor per run; it owns the leader. The lanes run elsewhere and learn of everything it does
from the state topic.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from onceover.engine import names
from onceover.engine.aclsync import AclSync
from onceover.engine.discovery import Plan, View, plan_topics
from onceover.engine.enrolment import Enrolment, read_enrolments
from onceover.engine.layout import Layout, check_distinct
from onceover.engine.leader import FlowIdentity, Leader, first_progress, now_ms
from onceover.engine.plan import Refusal
from onceover.engine.scope import Rules, explain
from onceover.engine.statelog import StateLog
from onceover.engine.steps import Step, reached
from onceover.errors import NeedsOperator, Retriable
from onceover.kafka import calls
from onceover.kafka.admin import Admin, TopicSpec
from onceover.kafka.backoff import Backoff, Deadline
from onceover.kafka.cluster import Cluster, TopicInfo
from onceover.kafka.notes import NoteWriter
from onceover.model import TopicPartition
from onceover.wire.progress import ProgressMeta

log = logging.getLogger(__name__)

HEARTBEAT_S = 5.0
_POSITIONS_S = 24 * 3600.0
_DISCOVERED = "discovered"
# A request that nobody needed any more, for instance for a partition that was not stopped.
_REQUEST_LIFE_MS = 60_000
_CREATED_WITHIN_S = 15.0


@dataclass(frozen=True)
class Scope:
    """Which topics a flow copies, from the flow file as it is now.

    Args:
        rules: which topics are in, and how they are called on the target.
        start: ``earliest``, ``latest`` or a timestamp in ms, for the flow's first topics.
        interval_s: pause between two discoveries.
        sync_configs: whether a topic's configuration is copied when it is created.
    """

    rules: Rules
    start: str | int
    interval_s: float
    sync_configs: bool


@dataclass(frozen=True)
class StateSettings:
    """How the flow's own topics are created."""

    replication_factor: int
    map_retention_ms: int


class Supervisor:
    """One run of a flow. Not thread-safe.

    Args:
        flow: name, lanes, hash.
        source: source cluster; ``target`` likewise.
        scope: asked at every discovery, so that the flow file may change meanwhile.
        state: replication of the flow's own topics.
        acls: keeps the target's ACLs in line with the source's.
    """

    def __init__(
        self,
        flow: FlowIdentity,
        source: Cluster,
        target: Cluster,
        scope: Callable[[], Scope],
        state: StateSettings,
        acls: AclSync,
    ) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._scope = scope
        self._state_settings = state
        self._acls = acls
        self._target_admin = Admin(target.config)
        self._source_admin = Admin(source.config)
        self.leader = Leader(flow, source, target)
        others = TopicPartition(names.state_topic(flow.name), names.STATE_OTHERS)
        self._notes = NoteWriter(target.config, others)
        self._requests = StateLog(target, others.topic, others.partition, calls.READ_UNCOMMITTED)
        self.refused: list[Refusal] = []
        self._next_discovery_s = self._next_heartbeat_s = self._next_positions_s = 0.0

    def start(self) -> Layout:
        """Create the flow's topics where they are missing, then become its newest generation.

        Raises:
            UsageError: source and target are one cluster under two addresses; nothing was changed.
        """
        ids = [cluster.retry(cluster.cluster_id) for cluster in (self._source, self._target)]
        check_distinct(*ids)
        self._create_state()
        return self.leader.start()

    def tick(self) -> None:
        """Do what is due: check that this run still owns the flow, discover, show a sign of life.

        Raises:
            Fenced: a newer generation runs.
            Retriable: a cluster is away; call again.
        """
        self.leader.check()
        now = time.monotonic()
        if now >= self._next_discovery_s:
            self.discover()
            self._next_discovery_s = time.monotonic() + self._scope().interval_s
        self._acls.tick(self._copied(), self._requests, self._notes)
        if now >= self._next_heartbeat_s:
            self._beat()
            self._next_heartbeat_s = time.monotonic() + HEARTBEAT_S
        if now >= self._next_positions_s:
            self._mirror_positions()
            self._next_positions_s = time.monotonic() + _POSITIONS_S

    def _copied(self) -> dict[str, str]:
        """Return the flow's topics, source name to target name."""
        return {e.source: e.target for e in read_enrolments(self.leader.state.values).values()}

    def stop_requested(self) -> bool:
        """Tell whether somebody has asked this run to stop (``onceover stop``)."""
        request = self._requests.values.get(names.REQUEST_STOP)
        return request is not None and request["run"] == self._layout().run

    def request_stop(self) -> None:
        """Ask the lanes to finish, as ``onceover stop`` does."""
        self._notes.write(names.REQUEST_STOP, stop_request(self._layout().run))

    def end(self) -> None:
        """Write that the run has ended, end what its lanes left open, take back the request that ended it.

        In this order: a lane that is fenced reads the layout again, and only one that says "ended"
        keeps a dying worker from opening another transaction.
        """
        self.leader.end()
        self.leader.abort_lanes()
        self._target.retry(self._requests.catch_up)
        if names.REQUEST_STOP in self._requests.values:
            self._notes.write(names.REQUEST_STOP, None)

    def close(self) -> None:
        """Close everything; the clusters belong to the caller."""
        self.leader.close()
        self._requests.close()
        self._notes.close()

    def _layout(self) -> Layout:
        if self.leader.layout is None:
            raise NeedsOperator("the flow has not been started", code="NOT_STARTED")
        return self.leader.layout

    # ---- discovery

    def discover(self) -> Plan:
        """Take in topics and partitions that have come: create, then enrol.

        Raises:
            Retriable: interrupted; the next call plans anew.
        """
        scope = self._scope()
        # Not what was polled last: an enrolment of our own that is committed but not readable yet would
        # be planned again, and its start offsets would take a lane's progress back (model: Md).
        self.leader.catch_up()
        view = self._view(scope)
        plan = plan_topics(view)
        if plan.refused != self.refused:
            for refusal in plan.refused:
                log.error("%s is not copied: %s; %s", refusal.object, refusal.message, refusal.resolve)
            self.refused = plan.refused
            self._next_heartbeat_s = 0.0
        if plan.create:
            reached(Step.TOPIC_CREATE)
            self._target_admin.create_topics(plan.create)
        for topic, count in plan.grow.items():
            self._target_admin.grow_topic(topic, count)
        first = _DISCOVERED not in self.leader.state.values
        if plan.enrol:
            self._enrol(view, plan, scope, first=first)
        if first:
            self.leader.note(_DISCOVERED, {"v": 1, "at_ms": now_ms()})
        return plan

    def _view(self, scope: Scope) -> View:
        found = self._source.topics()
        wanted = {
            name: info
            for name, info in found.items()
            if explain(name, scope.rules, is_internal=info.is_internal).inside
        }
        enrolled = read_enrolments(self.leader.state.values)
        new = sorted(set(wanted) - set(enrolled))
        target = self._target.topics(sorted(wanted)) if wanted else {}
        existing = [TopicPartition(t, p) for t in new if t in target for p in target[t].partitions]
        return View(
            flow=self._flow.name,
            source=wanted,
            overrides=self._source_admin.topic_overrides(new) if scope.sync_configs else {},
            target=target,
            target_ends=self._target.list_offsets(existing, calls.LATEST, calls.READ_UNCOMMITTED),
            enrolled=enrolled,
            elsewhere=self._enrolled_elsewhere() if new else {},
            sync_configs=scope.sync_configs,
        )

    def _enrolled_elsewhere(self) -> dict[str, str]:
        found: dict[str, str] = {}
        own = names.state_topic(self._flow.name)
        for topic in self._target.topics():
            if topic == own or not (topic.startswith(names.PREFIX) and topic.endswith(".state")):
                continue
            state = StateLog(self._target, topic, names.STATE_LEADER)
            try:
                values = state.catch_up(wait=False)
            finally:
                state.close()
            other = topic.removeprefix(names.PREFIX).removesuffix(".state")
            found.update(dict.fromkeys(read_enrolments(values), other))
        return found

    def _enrol(self, view: View, plan: Plan, scope: Scope, *, first: bool) -> None:
        target = self._created(plan)
        enrolments: list[Enrolment] = []
        for name in plan.enrol:
            old = view.enrolled.get(name)
            known = dict(old.start) if old else {}
            added = [TopicPartition(name, p) for p in view.source[name].partitions if p not in known]
            starts = self._starts(added, scope.start if first and old is None else "earliest")
            enrolments.append(
                Enrolment(
                    source=name,
                    target=name,
                    source_id=view.source[name].topic_id,
                    target_id=target[name].topic_id,
                    start={**known, **{tp.partition: offset for tp, offset in starts.items()}},
                    at_ms=now_ms(),
                )
            )
        self.leader.enrol(enrolments, self._without_progress(enrolments, view))
        log.info("enrolled %s", ", ".join(e.target for e in enrolments))

    def _without_progress(
        self, enrolments: list[Enrolment], view: View
    ) -> dict[TopicPartition, calls.OffsetToCommit]:
        """Return the start offsets of the partitions that this enrolment adds."""
        found: dict[TopicPartition, calls.OffsetToCommit] = {}
        for enrolment in enrolments:
            old = view.enrolled.get(enrolment.target)
            for partition, offset in enrolment.start.items():
                if old is None or partition not in old.start:
                    meta = ProgressMeta(
                        source_topic_id=str(enrolment.source_id),
                        target_topic_id=str(enrolment.target_id),
                        leader_epoch=calls.NO_EPOCH,
                        target_end=0,
                        generation=self._layout().generation,
                        instance=(0, 0),
                    )
                    found[TopicPartition(enrolment.target, partition)] = first_progress(offset, meta)
        return found

    def _starts(self, added: list[TopicPartition], start: str | int) -> dict[TopicPartition, int]:
        if start == "earliest":
            return self._source.list_offsets(added, calls.EARLIEST)
        ends = self._source.list_offsets(added, calls.LATEST)
        if start == "latest":
            return ends
        found = self._source.list_offsets(added, int(start))
        return {tp: offset if offset >= 0 else ends[tp] for tp, offset in found.items()}

    def _created(self, plan: Plan) -> dict[str, TopicInfo]:
        """Return the target topics to enrol, once all of them have leaders for all partitions."""
        deadline, backoff = Deadline(_CREATED_WITHIN_S), Backoff()
        counts = {spec.name: spec.partitions for spec in plan.create} | plan.grow
        while True:
            found = self._target.topics(plan.enrol)
            missing = [
                name
                for name in plan.enrol
                if name not in found
                or len(found[name].partitions) < counts.get(name, 0)
                or any(p.leader < 0 for p in found[name].partitions.values())
            ]
            if not missing:
                return found
            backoff.pause(deadline, Retriable(f"target topics have no leaders yet: {', '.join(missing)}"))

    # ---- signs of life

    def _beat(self) -> None:
        self._requests.poll()
        layout = self._layout()
        value = {
            "v": 1,
            "generation": layout.generation,
            "run": layout.run,
            "at_ms": now_ms(),
            "pid": os.getpid(),
            "refused": [refusal.document() for refusal in [*self.refused, *self._acls.refused]],
        }
        self._notes.write(names.HEARTBEAT, value)
        for key, request in list(self._requests.values.items()):
            if key.startswith(names.RESUME_PREFIX) and now_ms() - request["at_ms"] > _REQUEST_LIFE_MS:
                self._notes.write(key, None)

    def _mirror_positions(self) -> None:
        """Keep the positions in the state once a day: evidence for ``seed``, never resumed from."""
        committed = self._target.committed(names.progress_group(self._flow.name), None)
        positions = {str(tp): offset.offset for tp, offset in committed.items()}
        self.leader.note(names.POSITIONS, {"v": 1, "at_ms": now_ms(), "positions": positions})

    # ---- the flow's own topics

    def _create_state(self) -> None:
        factor = self._state_settings.replication_factor
        flow = self._flow.name
        self._target_admin.create_topics(
            [
                TopicSpec(
                    names.state_topic(flow), names.STATE_PARTITIONS, factor, {"cleanup.policy": "compact"}
                ),
                TopicSpec(
                    names.map_topic(flow),
                    names.MAP_PARTITIONS,
                    factor,
                    {
                        "cleanup.policy": "compact,delete",
                        "retention.ms": str(self._state_settings.map_retention_ms),
                    },
                ),
            ]
        )
        self._target.retry(self._state_ready)

    def _state_ready(self) -> None:
        wanted = [names.state_topic(self._flow.name), names.map_topic(self._flow.name)]
        found = self._target.topics(wanted)
        if len(found) < len(wanted) or any(
            p.leader < 0 for t in found.values() for p in t.partitions.values()
        ):
            raise Retriable("the flow's own topics have no leaders yet")


def stop_request(run: str) -> dict[str, object]:
    """Return the value of a request to stop ``run``; another run ignores it."""
    return {"v": 1, "run": run, "at_ms": now_ms()}
