"""Repairs of a flow's partitions: what ``onceover partition`` and the DAG ``repair_partition`` call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from onceover.config.flowfile import Flow
from onceover.config.load import run_dir
from onceover.errors import UsageError
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition
from onceover.operate.repair import RESEED, RESUME, SKIP, Repair, plan_resume, plan_skip
from onceover.operate.repairapply import Repaired, Repairer
from onceover.operate.reseed import Making, plan_reseed
from onceover.planning.approval import Approval
from onceover.planning.journal import Journal
from onceover.wiring.apart import partitions_apart
from onceover.wiring.flows import identity, open_clusters, rules


@dataclass(frozen=True)
class RepairRequest:
    """What is to be done.

    Args:
        action: ``resume``, ``skip-to`` or ``reseed``.
        partition: of the source; None with ``resume`` for every stopped partition of the flow.
        offset: with ``skip-to``, the next source offset to copy.
    """

    action: str
    partition: TopicPartition | None = None
    offset: int | None = None


def check_request(request: RepairRequest) -> None:
    """Refuse what cannot be meant, before a cluster is asked.

    Raises:
        UsageError: a partition or an offset is missing, or one is given that means nothing.
    """
    if request.action not in (RESUME, SKIP, RESEED):
        raise UsageError(f"there is no action {request.action!r}", expected=f"{RESUME}, {SKIP} or {RESEED}")
    if request.partition is None and request.action != RESUME:
        raise UsageError(f"{request.action} needs a partition", expected="a source topic and its partition")
    if request.action != SKIP:
        if request.offset is not None:
            raise UsageError(f"{request.action} takes no offset", seen=str(request.offset))
    elif request.offset is None or request.offset < 0:
        seen = "none" if request.offset is None else str(request.offset)
        raise UsageError("skip-to needs an offset", expected="the next source offset to copy", seen=seen)


def plan_repair(flow: Flow, request: RepairRequest) -> Repair:
    """Return what would be done. Changes nothing; clusters are opened and closed here.

    Raises:
        UsageError: the request makes no sense, the flow was never started, or does not copy the partition.
        Retriable: a cluster is away.
    """
    check_request(request)
    source, target = open_clusters(flow)
    with source, target:
        return _plan(flow, source, target, request)


def apply_repair(
    flow: Flow, request: RepairRequest, announce: Callable[[Repair], None], approval: Approval | None = None
) -> Repaired:
    """Plan and do it; nothing is done where something is refused.

    Args:
        announce: shown the plan before anything is done, and again if it is another one by the time that
            nobody copies any more; raises to leave the progress as it is.
        approval: what somebody has said yes to; None for what ``announce`` is shown first.

    Raises:
        Fenced: another start was newer.
        NeedsOperator: it would be another repair than was approved.
        Others as ``plan_repair``.
    """
    check_request(request)
    source, target = open_clusters(flow)
    journal = Journal(run_dir(flow) / "journal" / "partition.jsonl", approval)
    with source, target, journal:
        repairer = Repairer(identity(flow), source, target, lambda: _plan(flow, source, target, request))
        return repairer.apply(journal, announce, approval)


@contextmanager
def making(flow: Flow) -> Iterator[Making]:
    """Yield how the flow makes target topics."""
    with partitions_apart(flow) as counts:
        yield Making(rules(flow, target_partitions=counts), flow.topics.sync_configs)


def _plan(flow: Flow, source: Cluster, target: Cluster, request: RepairRequest) -> Repair:
    tp = request.partition
    if tp is None or request.action == RESUME:
        return plan_resume(flow.flow, target, () if tp is None else (tp,))
    if request.action == RESEED:
        with making(flow) as how:
            return plan_reseed(flow.flow, source, target, tp, how)
    return plan_skip(flow.flow, source, target, tp, request.offset or 0)
