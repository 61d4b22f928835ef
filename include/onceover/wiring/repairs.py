"""Repairs of a flow's partitions: what ``onceover partition`` and the DAG ``repair_partition`` call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onceover.config.flowfile import Flow
from onceover.config.load import run_dir
from onceover.config.runsettings import RunSettings
from onceover.engine.approval import Approval
from onceover.engine.journal import Journal
from onceover.engine.repair import RESEED, RESUME, SKIP, Repair, plan_resume, plan_skip
from onceover.engine.repairapply import Repaired, Repairer
from onceover.engine.reseed import Making, plan_reseed
from onceover.errors import UsageError
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition
from onceover.wiring.flows import identity, open_clusters, rules
from onceover.wiring.treatments import target_partitions


@dataclass(frozen=True)
class RepairWish:
    """What is to be done.

    Args:
        action: ``resume``, ``skip-to`` or ``reseed``.
        partition: of the source; None with ``resume`` for every stopped partition of the flow.
        offset: with ``skip-to``, the next source offset to copy.
    """

    action: str
    partition: TopicPartition | None = None
    offset: int | None = None


def check_wish(wish: RepairWish) -> None:
    """Refuse what cannot be meant, before a cluster is asked.

    Raises:
        UsageError: a partition or an offset is missing, or one is given that means nothing.
    """
    if wish.action not in (RESUME, SKIP, RESEED):
        raise UsageError(f"there is no action {wish.action!r}", expected=f"{RESUME}, {SKIP} or {RESEED}")
    if wish.partition is None and wish.action != RESUME:
        raise UsageError(f"{wish.action} needs a partition", expected="a source topic and its partition")
    if wish.action != SKIP:
        if wish.offset is not None:
            raise UsageError(f"{wish.action} takes no offset", seen=str(wish.offset))
    elif wish.offset is None or wish.offset < 0:
        seen = "none" if wish.offset is None else str(wish.offset)
        raise UsageError("skip-to needs an offset", expected="the next source offset to copy", seen=seen)


def plan_repair(flow: Flow, wish: RepairWish) -> Repair:
    """Return what would be done. Changes nothing; clusters are opened and closed here.

    Raises:
        UsageError: the wish makes no sense, the flow was never started, or does not copy the partition.
        Retriable: a cluster is away.
    """
    check_wish(wish)
    source, target = open_clusters(flow)
    with source, target:
        return _plan(flow, source, target, wish)


def apply_repair(
    flow: Flow, wish: RepairWish, announce: Callable[[Repair], None], approval: Approval | None = None
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
    check_wish(wish)
    source, target = open_clusters(flow)
    journal = Journal(run_dir(flow) / "journal" / "partition.jsonl", approval)
    with source, target, journal:
        repairer = Repairer(identity(flow), source, target, lambda: _plan(flow, source, target, wish))
        return repairer.apply(journal, announce, approval)


def making(flow: Flow) -> Making:
    """Return how the flow makes target topics."""
    counts = target_partitions(flow, RunSettings.of(flow))
    return Making(rules(flow, target_partitions=counts), flow.topics.sync_configs)


def _plan(flow: Flow, source: Cluster, target: Cluster, wish: RepairWish) -> Repair:
    tp = wish.partition
    if tp is None or wish.action == RESUME:
        return plan_resume(flow.flow, target, () if tp is None else (tp,))
    if wish.action == RESEED:
        return plan_reseed(flow.flow, source, target, tp, making(flow))
    return plan_skip(flow.flow, source, target, tp, wish.offset or 0)
