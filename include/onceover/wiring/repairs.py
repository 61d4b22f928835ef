"""Repairs of a flow's partitions, for ``onceover partition`` and the DAG ``repair_partition``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from onceover.config.flow.flowfile import Flow
from onceover.errors import UsageError
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.operate.repair import RESEED, RESUME, SKIP, Repair, plan_resume, plan_skip
from onceover.operate.repairapply import Repairer
from onceover.operate.reseed import TopicMaking, plan_reseed
from onceover.wiring.apart import partitions_apart
from onceover.wiring.flows import identity, journal_of, rules


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


@contextmanager
def repairer(flow: Flow, source: Cluster, target: Cluster, request: RepairRequest) -> Iterator[Repairer]:
    """Yield what repairs the flow's partitions.

    Raises:
        UsageError: the request makes no sense.
    """
    check_request(request)
    plan = partial(_plan, flow, source, target, request)
    yield Repairer(identity(flow), source, target, plan, journal_of(flow, "partition"))


@contextmanager
def making(flow: Flow) -> Iterator[TopicMaking]:
    """Yield how the flow makes target topics."""
    with partitions_apart(flow) as counts:
        yield TopicMaking(rules(flow, target_partitions=counts), flow.topics.sync_configs)


def _plan(flow: Flow, source: Cluster, target: Cluster, request: RepairRequest) -> Repair:
    tp = request.partition
    if tp is None or request.action == RESUME:
        return plan_resume(flow.flow, target, () if tp is None else (tp,))
    if request.action == RESEED:
        with making(flow) as how:
            return plan_reseed(flow.flow, source, target, tp, how)
    return plan_skip(flow.flow, source, target, tp, request.offset or 0)
