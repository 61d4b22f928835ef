"""What a run of a flow is made of: its supervisor and its lanes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from onceover.acls.sync import AclSync
from onceover.config.flow.load import run_dir
from onceover.config.flow.runsettings import EXACTLY_ONCE
from onceover.copy.identity import LaneIdentity
from onceover.copy.known import Known
from onceover.copy.lane import LaneTask
from onceover.copy.loop import CopySettings
from onceover.kafka.ports import Cluster
from onceover.lead.supervisor import Scope, Supervisor
from onceover.mirrormaker.output import MirrorOutput, Round, open_rounds
from onceover.mirrormaker.records import MirrorSettings
from onceover.topics.own import StateSettings
from onceover.wiring.flows import identity, open_clusters, rules
from onceover.wiring.handlers import dead_letter_of, dead_letter_specs, lane_handler_of, target_partitions
from onceover.wiring.watch import FlowWatch


def supervisor(
    watch: FlowWatch,
    source: Cluster,
    target: Cluster,
    *,
    home: Path | None = None,
    begun_by: str | None = None,
    launch: str | None = None,
) -> Supervisor:
    """Return the supervisor of a new run.

    Args:
        watch: the flow file.
        source: source cluster; ``target`` likewise.
        home: folder of the flow's files, where it is not ``ONCEOVER_HOME/<flow>`` of this process.
        begun_by: which run of a DAG begins it, for its layout; None where it is none.
        launch: the same for all starts of one command; None where it starts the flow once.

    Raises:
        UsageError: the flow's handler cannot be loaded here.
    """
    flow = watch.flow
    counts = target_partitions(flow, watch.run)

    def scope() -> Scope:
        now = watch.current()
        topics = now.topics
        start = topics.start_timestamp_ms
        return Scope(
            rules=rules(now, run=flow, target_partitions=counts),
            start=topics.start if start is None else start,
            interval_s=topics.discovery_interval_ms / 1000,
            sync_configs=topics.sync_configs,
            bytes_per_second=now.limits.bytes_per_second,
        )

    letters = tuple(dead_letter_specs(watch.run))
    state = StateSettings(flow.state.replication_factor, flow.state.map_retention_ms, letters)
    acls = AclSync(source, target, lambda: watch.current().topics.sync_acls)
    mirror = mirror_output(watch)
    me = replace(identity(flow), letters=dead_letter_of(watch.run.on_bad_record), begun_by=begun_by)
    me = me if launch is None else replace(me, launch=launch)
    return Supervisor(me, source, target, scope, state, acls, mirror, home or run_dir(flow))


def mirror_output(watch: FlowWatch) -> MirrorOutput:
    """Return what writes MirrorMaker 2's records beside a run; it begins with its first ``tick``."""
    flow, home = watch.flow, run_dir(watch.flow)

    def settings() -> MirrorSettings:
        now = watch.current()
        wanted = now.mirrormaker
        return MirrorSettings(
            checkpoints=wanted.checkpoints,
            offset_syncs=wanted.offset_syncs,
            heartbeats=wanted.heartbeats,
            checkpoint_interval_s=wanted.checkpoint_interval_ms / 1000,
            heartbeat_interval_s=wanted.heartbeat_interval_ms / 1000,
            selects=now.groups.selects,
        )

    def rounds() -> AbstractContextManager[Sequence[Round]]:
        handled = flow.handler is not None
        factor = flow.state.replication_factor
        return open_rounds(flow.flow, lambda: open_clusters(flow), home, factor, handled=handled)

    return MirrorOutput(settings, rounds)


def lane_task(
    watch: FlowWatch,
    me: LaneIdentity,
    source: Cluster,
    target: Cluster,
    give_up_s: float,
    known: Known | None = None,
) -> LaneTask:
    """Return the task of one lane.

    Args:
        known: what earlier tasks of the same lane and run found out.
    """

    def settings() -> CopySettings:
        flow = watch.current()
        limit = flow.limits.bytes_per_second
        return CopySettings(
            max_interval_s=flow.transaction.max_interval_ms / 1000,
            max_bytes=flow.transaction.max_bytes,
            bytes_per_second=None if limit is None else limit / me.lanes,
        )

    exactly_once = watch.run.delivery == EXACTLY_ONCE
    lane_handler = lane_handler_of(watch.flow, watch.run)
    return LaneTask(
        me,
        source,
        target,
        settings,
        lambda: watch.current().limits.memory_per_lane_bytes,
        give_up_s,
        exactly_once,
        lane_handler,
        known=known or Known(),
    )
