"""Reading all of a flow's state at once, from outside the flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onceover.engine import names
from onceover.engine.enrolment import Enrolment, read_enrolments
from onceover.engine.layout import Layout
from onceover.engine.statelog import StateLog
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition


@dataclass(frozen=True)
class FlowState:
    """Latest values of both partitions of the state topic; empty for a flow that was never started."""

    leader: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def layout(self) -> Layout | None:
        """The newest layout."""
        value = self.leader.get(names.LAYOUT)
        return None if value is None else Layout.from_json(value)

    @property
    def enrolled(self) -> dict[str, Enrolment]:
        """What is enrolled, by target topic."""
        return read_enrolments(self.leader)

    def stopped(self, targets: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of some target partitions that a lane has stopped, whether they can be read or not."""
        return [tp for tp in targets if names.stop_key(*tp) in self.others]


def read_flow_state(target: Cluster, flow: str) -> FlowState:
    """Return the flow's state as it was when the call began.

    Raises:
        Retriable: the target is away, or a transaction stays open.
    """
    topic = names.state_topic(flow)
    if topic not in target.topics([topic]):
        return FlowState()
    values = []
    for partition in (names.STATE_LEADER, names.STATE_OTHERS):
        log = StateLog(target, topic, partition)
        try:
            values.append(log.catch_up())
        finally:
            log.close()
    return FlowState(*values)
