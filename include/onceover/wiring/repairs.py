"""Repairs of a flow's partitions, for ``onceover partition`` and the DAG ``repair_partition``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from onceover.config.flow.flowfile import Flow
from onceover.kafka.ports import Cluster
from onceover.operate.repair import RESEED, RESUME, Repair, RepairRequest, plan_resume, plan_skip
from onceover.operate.repairapply import Repairer
from onceover.operate.reseed import TopicMaking, plan_reseed
from onceover.wiring.apart import partitions_apart
from onceover.wiring.flows import identity, journal_of, rules


@contextmanager
def repairer(flow: Flow, source: Cluster, target: Cluster, request: RepairRequest) -> Iterator[Repairer]:
    """Yield what repairs the flow's partitions.

    Raises:
        UsageError: the request makes no sense.
    """
    request.check()
    plan = partial(_plan, flow, source, target, request)
    yield Repairer(identity(flow), source, target, plan, journal_of(flow, "partition"))


@contextmanager
def making(flow: Flow) -> Iterator[TopicMaking]:
    """Yield how the flow makes target topics."""
    with partitions_apart(flow) as counts:
        yield TopicMaking(rules(flow, target_partitions=counts), flow.topics.sync_configs)


def _plan(flow: Flow, source: Cluster, target: Cluster, request: RepairRequest, since: int) -> Repair:
    tp = request.partition
    if tp is None or request.action == RESUME:
        return plan_resume(flow.flow, target, () if tp is None else (tp,))
    if request.action == RESEED:
        with making(flow) as how:
            return plan_reseed(flow.flow, source, target, tp, how, since)
    return plan_skip(flow.flow, source, target, tp, request.offset or 0, since)
