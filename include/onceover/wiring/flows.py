"""The composition root: the only place that turns a flow file into clusters, lanes and a supervisor."""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from onceover.acls.sync import AclSync
from onceover.config.clients.resolve import ClientConfig, resolve_clients
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow, run_dir
from onceover.config.flow.runsettings import EXACTLY_ONCE, RunSettings
from onceover.copy.identity import LaneIdentity
from onceover.copy.known import Known
from onceover.copy.lane import LaneTask
from onceover.copy.loop import CopySettings
from onceover.errors import UsageError
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.ports import Cluster
from onceover.lead.leader import FlowIdentity
from onceover.lead.supervisor import Scope, Supervisor
from onceover.mirrormaker.output import MirrorOutput, Round, open_rounds
from onceover.mirrormaker.records import MirrorSettings
from onceover.planning.journal import Journal, OpenJournal
from onceover.topics.namingpolicy import NamingPolicy
from onceover.topics.own import StateSettings
from onceover.topics.scope import Rules
from onceover.wiring.handlers import dead_letter_specs, lane_handler_of, target_partitions

log = logging.getLogger(__name__)

T = TypeVar("T")


class FlowWatch:
    """The flow file as it is now: re-read when it changes, kept as it was while it is broken.

    Changes that need a restart (lanes, clusters, name) are named in the log and not applied.

    Args:
        path: the flow file.
        run: the settings that the run was started with; None where the run starts: those of the file.
        begun_with: the flow as the run was started with it; in effect until the file says something else
            that is in order. None where the run starts: the file has to be in order.

    Attributes:
        flow: the newest valid version that was read.
        run: what stays as it was when the run began.
    """

    def __init__(self, path: Path, run: RunSettings | None = None, begun_with: Flow | None = None) -> None:
        self._path = path
        self._stamp = self._stat() if begun_with is None else None
        self.flow: Flow = begun_with or load_flow(path)
        self.run: RunSettings = run or RunSettings.of(self.flow)

    def current(self) -> Flow:
        """Return the newest valid version."""
        stamp = self._stat()
        if stamp != self._stamp:
            self._stamp = stamp
            self._reload()
        return self.flow

    def _reload(self) -> None:
        try:
            fresh = load_flow(self._path)
        except UsageError as error:
            log.warning("the changed flow file is not in order; the last good one stays in effect: %s", error)
            return
        fixed = {"flow", "source", "target", "lanes", "spark", "state"}
        changed = [k for k in fixed if getattr(fresh, k) != getattr(self.flow, k)]
        needs_restart = sorted(changed + self.run.changed(RunSettings.of(fresh)))
        if needs_restart:
            log.warning("changed in the flow file, in effect after a restart: %s", ", ".join(needs_restart))
        self.flow = fresh

    def _stat(self) -> tuple[int, ...]:
        try:
            stat = os.stat(self._path)
        except OSError:
            return ()
        # With what changes its mode: it may be readable now, and was not a moment ago.
        return (stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns)


def login() -> str:
    """Return who runs this, as this machine calls them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        # A user id without a name, as in containers.
        return f"user {os.geteuid()}"


def open_clusters(flow: Flow, environ: Mapping[str, str] | None = None) -> tuple[Cluster, Cluster]:
    """Return source and target, not connected yet. The caller closes them.

    Args:
        environ: read instead of the process's environment.
    """
    return open_clients(*resolve_clients(flow, environ))


def open_clients(source: ClientConfig, target: ClientConfig) -> tuple[Cluster, Cluster]:
    """Return source and target of clients that were resolved before. The caller closes them."""
    return LiveCluster(source), LiveCluster(target)


@contextmanager
def opened(flow: Flow, make: Callable[[Flow, Cluster, Cluster], AbstractContextManager[T]]) -> Iterator[T]:
    """Yield what ``make`` makes of the flow and its clusters, which are closed at the end."""
    source, target = open_clusters(flow)
    with source, target, make(flow, source, target) as made:
        yield made


def journal_of(flow: Flow, operation: str) -> OpenJournal:
    """Return what opens the flow's journal of an operation."""
    return partial(Journal, run_dir(flow) / "journal" / f"{operation}.jsonl")


def identity(flow: Flow) -> FlowIdentity:
    """Return what the layout says about the flow."""
    return FlowIdentity(flow.flow, flow.lanes, flow.sha256, flow.delivery, flow.handler is not None)


def rules(
    flow: Flow, *, run: Flow | None = None, target_partitions: Callable[[int], int] | None = None
) -> Rules:
    """Return what decides which topics are in.

    Args:
        flow: the flow file as it is now.
        run: the flow file as it was when the run began: naming and the clusters' names stay as they were.
        target_partitions: what the flow's handler says; None where only names are asked for.
    """
    begun = run or flow
    naming = NamingPolicy(begun.topics.naming, begun.source.alias, begun.target.alias)
    found = Rules(flow.topics.include, flow.topics.exclude, naming, one_to_one=begun.handler is None)
    return found if target_partitions is None else replace(found, target_partitions=target_partitions)


def supervisor(watch: FlowWatch, source: Cluster, target: Cluster, *, home: Path | None = None) -> Supervisor:
    """Return the supervisor of a new run.

    Args:
        watch: the flow file.
        source: source cluster; ``target`` likewise.
        home: folder of the flow's files, where it is not ``ONCEOVER_HOME/<flow>`` of this process.

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
    return Supervisor(identity(flow), source, target, scope, state, acls, mirror, home or run_dir(flow))


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
