"""The canary that a flow file asks for, with the name that the flow's rules give its copy. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from onceover.config.clients.clusterspec import ClusterSpec
from onceover.config.flow.flowfile import Flow
from onceover.metrics.canary.thread import CanaryOrder
from onceover.wiring.flows import rules


@dataclass(frozen=True)
class WantedCanary:
    """A canary, and the clusters that it is of: where any of it is another one, it is another canary."""

    order: CanaryOrder
    source: ClusterSpec
    target: ClusterSpec


def canary_wanted(flow: Flow) -> WantedCanary | None:
    """Return the canary that the flow file asks for, None where it asks for none."""
    if flow.canary.interval_ms is None:
        return None
    copy = rules(flow).naming.target_name(flow.canary_topic)
    order = CanaryOrder(
        flow.flow, flow.canary_topic, copy, flow.canary.interval_ms, flow.topics.discovery_interval_ms
    )
    return WantedCanary(order, flow.source, flow.target)
