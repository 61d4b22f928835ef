"""A flow's drills, for the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from onceover.backoff import Patience
from onceover.clock import now_ms
from onceover.config.flow.flowfile import Flow
from onceover.drills.clients import ClientsSeen, look
from onceover.drills.dryrun import DryRun
from onceover.errors import OnceoverError
from onceover.groups.plan import GroupPlan
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition
from onceover.planning.background import in_background
from onceover.topics.scope import explain
from onceover.topics.sync import SyncPlan
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.groups import GroupRequest, group_sync
from onceover.wiring.status import PATIENCE_S, read_status
from onceover.wiring.topics import topic_sync

T = TypeVar("T")


def dry_run(flow: Flow) -> DryRun:
    """Return what a failover now would cost, and what stands in its way. Changes nothing.

    A cluster that does not answer is named in it; clusters are opened and closed here.

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
        groups = part("groups", lambda: _groups(flow, source, target))
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


def _groups(flow: Flow, source: Cluster, target: Cluster) -> GroupPlan:
    with group_sync(flow, source, target, GroupRequest()) as sync:
        return sync.plan()


def _clients(flow: Flow, source: Cluster) -> ClientsSeen:
    which = rules(flow)
    # Whatever is in scope, taken in or not: who uses a topic that is not copied yet is a client, too.
    topics = source.retry(source.topics)
    inside = [info for name, info in topics.items() if explain(name, which).inside]
    partitions = [TopicPartition(info.name, number) for info in inside for number in info.partitions]
    return source.retry(lambda: look(source, partitions))
