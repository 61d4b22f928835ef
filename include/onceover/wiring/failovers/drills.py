"""A flow's drills, for the command line and Airflow: what a failover would cost, and rehearsals."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from onceover.acls.sync import AclSync
from onceover.audit.compare.sides import Sides
from onceover.audit.course.content import audit_content
from onceover.audit.course.local import LocalWorkers
from onceover.backoff import Patience
from onceover.clock import now_ms
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import run_dir
from onceover.config.patterns import matcher
from onceover.copy.identity import LaneIdentity
from onceover.copy.lane import LaneTask
from onceover.copy.loop import CopySettings
from onceover.drills import chain as chains
from onceover.drills.about import DrillAbout
from onceover.drills.chain import JournalEntry
from onceover.drills.history import DrillHistory
from onceover.drills.journal import DrillJournal
from onceover.drills.leaving.fences import left_behind
from onceover.drills.looks.clients import ClientsSeen, look
from onceover.drills.looks.dryrun import DryRun
from onceover.drills.looks.rpo import Objectives
from onceover.drills.outcome import DrillOutcome
from onceover.drills.page import drill_page
from onceover.drills.rehearsing.choice import CANARIES, SAMPLE, RehearsalRequest
from onceover.drills.rehearsing.rehearsal import Rehearsal
from onceover.drills.rehearsing.shadow import LANES, ShadowCopy
from onceover.drills.rehearsing.steps import RehearsalParts
from onceover.drills.rehearsing.trouble import CopyCompared
from onceover.errors import OnceoverError
from onceover.groups.plan import GroupPlan
from onceover.kafka.ports import Cluster
from onceover.lead.enroller import Newest
from onceover.lead.leader import FlowIdentity
from onceover.lead.supervisor import Scope, Supervisor
from onceover.mirrormaker.output import MirrorOutput, Round
from onceover.mirrormaker.records import MirrorSettings
from onceover.model import TopicPartition
from onceover.planning.background import in_background
from onceover.planning.operation import Pause
from onceover.positions.translate import Translator
from onceover.release import versions
from onceover.replacing import put
from onceover.state import names
from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import Enrolment
from onceover.topics.namingpolicy import PREFIX, NamingPolicy
from onceover.topics.own import StateSettings
from onceover.topics.scope import Rules, in_scope
from onceover.topics.sync import SyncPlan
from onceover.wiring.audit import AuditRequest, prepare, record_bytes
from onceover.wiring.flows import login, open_clusters, opened, rules
from onceover.wiring.groups import GroupRequest, group_sync
from onceover.wiring.status import PATIENCE_S, OpenClusters, read_status
from onceover.wiring.topics import topic_sync

T = TypeVar("T")
# A rehearsal's lane: its steps have deadlines of their own.
_GIVE_UP_S: Final = 120.0
_PAGE: Final = "report.html"


def dry_run(flow: Flow, request: GroupRequest | None = None) -> DryRun:
    """Return what a failover now would cost, and what stands in its way. Changes nothing.

    A cluster that does not answer is named in it; clusters are opened and closed here.

    Args:
        request: what is allowed of groups; None for nothing but what a failover moves by itself.

    Raises:
        UsageError: a client of the flow is not in order.
    """
    problems: dict[str, OnceoverError] = {}

    def part(name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except OnceoverError as error:
            problems[name] = error
            return None

    source, target = open_clusters(flow)
    source.patience, target.patience = Patience(PATIENCE_S), Patience(PATIENCE_S)
    # On connections of its own: neither waits for what the other one waits for.
    reading = in_background(lambda: read_status(flow, patience_s=PATIENCE_S))
    with source, target:
        drift = part("topics", lambda: _drift(flow, source, target))
        groups = part("groups", lambda: _groups(flow, source, target, request or GroupRequest()))
        clients = part("clients", lambda: _clients(flow, source))
        status = part("status", reading.result)
    return DryRun(
        flow=flow.flow,
        checked_at_ms=now_ms(),
        status=status,
        drift=drift,
        groups=groups,
        clients=clients,
        problems=problems,
    )


def _drift(flow: Flow, source: Cluster, target: Cluster) -> SyncPlan:
    with topic_sync(flow, source, target) as sync:
        return sync.plan()


def _groups(flow: Flow, source: Cluster, target: Cluster, request: GroupRequest) -> GroupPlan:
    with group_sync(flow, source, target, request) as sync:
        return sync.plan()


def _clients(flow: Flow, source: Cluster) -> ClientsSeen:
    # Taken in or not: who uses a topic that is not copied yet is a client, too.
    inside = in_scope(source.retry(source.topics), rules(flow))
    partitions = [TopicPartition(name, number) for name, info in inside.items() for number in info.partitions]
    return source.retry(lambda: look(source, partitions))


@dataclass(frozen=True)
class RehearsalOptions:
    """What a person types.

    Args:
        topics: anchored regular expressions over source topics; none for the first few.
        groups: likewise over groups.
        sample: how many of the newest offsets of each of their partitions are copied.
        canaries: how many numbered records.
        started_by: who wants it, for the report; None for the user that runs it.
    """

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    sample: int = SAMPLE
    canaries: int = CANARIES
    started_by: str | None = None

    def request(self) -> RehearsalRequest:
        """Return it as the use case has it.

        Raises:
            UsageError: an expression is none.
        """
        return RehearsalRequest(
            matcher("--topics", self.topics), matcher("--group", self.groups), self.sample, self.canaries
        )


@contextmanager
def rehearsal(
    flow: Flow, source: Cluster, target: Cluster, options: RehearsalOptions, pause: Pause
) -> Iterator[Rehearsal]:
    """Yield what rehearses a failover of the flow."""
    home = drills_dir(flow)
    parts = RehearsalParts(
        flow=flow.flow,
        source=source,
        target=target,
        look=lambda: dry_run(flow).document(),
        shadow=lambda topics, start: _shadow(flow, source, target, topics, start),
        audit=lambda topics: _compared(flow, source, target, topics),
        translator=lambda: Translator(target, names.rehearsal_flow(flow.flow), None),
        replication_factor=flow.state.replication_factor,
    )
    with drill_journal(flow, target, pause) as journal:
        yield Rehearsal(
            parts,
            options.request(),
            flow.groups.selects,
            journal,
            partial(keep_report, home),
            objectives_of(flow),
            about_drill(flow, "rehearsal: clients are not touched", options.started_by),
        )


def objectives_of(flow: Flow) -> Objectives:
    """Return what a flow's drills are held to."""
    told = flow.objectives
    return Objectives(told.rto_ms, told.rpo.records, told.rpo.age_ms)


def about_drill(flow: Flow, kind: str, started_by: str | None) -> DrillAbout:
    """Return what a report says of a drill of this kind.

    Args:
        started_by: who wants it; None for the user that runs this.
    """
    return DrillAbout(
        started_by or login(),
        socket.gethostname(),
        flow.sha256,
        versions(),
        kind=kind,
        schedule=flow.schedules.rehearse,
        today=datetime.now(UTC).date(),
    )


def drills_dir(flow: Flow) -> Path:
    """Return where the reports of a flow's drills are."""
    return run_dir(flow) / "drills"


def report_page(flow: Flow, drill: str) -> Path:
    """Return where the page of one drill is."""
    return (drills_dir(flow) / drill / _PAGE).absolute()


@contextmanager
def drill_journal(flow: Flow, target: Cluster, pause: Pause) -> Iterator[DrillJournal]:
    """Yield the journal of the flow's drills."""
    with DrillJournal(target, flow.flow, flow.state.replication_factor, drills_dir(flow), pause) as journal:
        yield journal


def drill_history(
    flow: Flow, pause: Pause, patience: Patience | None = None, clusters: OpenClusters | None = None
) -> DrillHistory:
    """Return what the journal tells of the flow's drills.

    Args:
        patience: how long the target is waited for; None for as long as it takes.
        clusters: opens them otherwise than the flow file says now.

    Raises:
        NeedsOperator: JOURNAL_DAMAGED.
        Retriable: the target is away.
    """
    source, target = clusters() if clusters else open_clusters(flow)
    if patience is not None:
        target.patience = patience
    with source, target, drill_journal(flow, target, pause) as journal:
        chain = journal.read()
        return DrillHistory(flow.flow, chain, now_ms(), _kept_off(flow, target, chain))


def _kept_off(flow: Flow, target: Cluster, chain: Sequence[JournalEntry]) -> set[str]:
    if not chains.fenced_topics(chain):
        return set()
    return left_behind(chain, enrolled_of(flow, target), leads_back=flow.switchover.reverse is not None)


def enrolled_of(flow: Flow, target: Cluster) -> list[Enrolment]:
    """Return the topics that a flow has taken in, with what became of them."""
    return list(target.retry(lambda: read_flow_state(target, flow.flow)).enrolled.values())


def keep_report(home: Path, outcome: DrillOutcome) -> None:
    """Write the report as it is now: a reader finds the old one or the new one.

    Raises:
        OSError: it cannot be written; the error names its folder.
    """
    folder = home / outcome.drill
    try:
        put(json.dumps(outcome.document(), indent=1), folder / "report.json")
        put(drill_page(outcome.document()), folder / _PAGE)
    except OSError as error:
        # A full disk's own error names nothing.
        raise OSError(error.errno, error.strerror, str(folder)) from error


def _shadow(
    flow: Flow, source: Cluster, target: Cluster, topics: frozenset[str], start: Newest
) -> ShadowCopy:
    # Names are those of the source behind a prefix, whatever the flow calls its copies.
    naming = NamingPolicy(PREFIX, names.rehearsal_copies(flow.flow), flow.target.alias)
    scope = Scope(
        Rules((), (), naming, chosen=topics),
        start,
        float("inf"),
        flow.topics.sync_configs,
        flow.limits.bytes_per_second,
    )
    return ShadowCopy(
        flow.flow,
        source,
        target,
        partial(_shadow_lead, flow, names.rehearsal_flow(flow.flow), scope),
        partial(_shadow_lane, flow),
        lambda: opened(flow, both),
    )


@contextmanager
def both(_: Flow, source: Cluster, target: Cluster) -> Iterator[tuple[Cluster, Cluster]]:
    """Yield the clusters."""
    yield source, target


def _shadow_lead(flow: Flow, name: str, scope: Scope, source: Cluster, target: Cluster) -> Supervisor:
    nothing = MirrorSettings(
        checkpoints=False,
        offset_syncs=False,
        heartbeats=False,
        checkpoint_interval_s=0,
        heartbeat_interval_s=0,
        selects=lambda _: False,
    )
    return Supervisor(
        FlowIdentity(name, LANES, flow.sha256),
        source,
        target,
        lambda: scope,
        StateSettings(flow.state.replication_factor, flow.state.map_retention_ms),
        AclSync(source, target, lambda: False),
        MirrorOutput(lambda: nothing, _no_rounds),
        drills_dir(flow) / "shadow",
    )


def _no_rounds() -> AbstractContextManager[Sequence[Round]]:
    return nullcontext(())


def _shadow_lane(flow: Flow, me: LaneIdentity, source: Cluster, target: Cluster) -> LaneTask:
    settings = CopySettings(
        max_interval_s=flow.transaction.max_interval_ms / 1000,
        max_bytes=flow.transaction.max_bytes,
        bytes_per_second=flow.limits.bytes_per_second,
    )
    return LaneTask(
        me, source, target, lambda: settings, lambda: flow.limits.memory_per_lane_bytes, _GIVE_UP_S
    )


def _compared(flow: Flow, source: Cluster, target: Cluster, topics: Sequence[str]) -> CopyCompared:
    shadow = flow.model_copy(
        update={"flow": names.rehearsal_flow(flow.flow), "handler": None, "on_bad_record": "stop"}
    )
    request = AuditRequest(tuple(re.escape(topic) for topic in topics), since="start")
    workers = LocalWorkers(Sides(source, target, record_bytes=record_bytes(flow)))
    content = audit_content(prepare(shadow, source, target, request, keeps_index=False), workers)
    return CopyCompared.of(content.partitions)
