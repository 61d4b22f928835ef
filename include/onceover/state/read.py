"""Reading all of a flow's state at once, from outside the flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onceover.clock import now_ms
from onceover.kafka.ports import Cluster
from onceover.state import names
from onceover.state.log import StateLog
from onceover.state.records.enrolment import Enrolment, read_enrolments
from onceover.state.records.layout import Layout, check_told, layout_in
from onceover.state.records.runstate import FlowRun, read_heartbeat, run_of


@dataclass(frozen=True)
class FlowState:
    """Latest values of both partitions of the state topic; empty for a flow that was never started.

    ``owned``: of the topic that says what it looks after.
    """

    leader: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    owned: Mapping[str, Any] = field(default_factory=dict)

    @property
    def layout(self) -> Layout | None:
        """The newest layout."""
        return layout_in(self.leader)

    @property
    def enrolled(self) -> dict[str, Enrolment]:
        """What is enrolled, by target topic."""
        return read_enrolments(self.leader)

    def run(self, now_ms: float) -> FlowRun:
        """Return how the newest run stands at ``now_ms``, in ms since 1970.

        Raises:
            NeedsOperator: STATE_UNREADABLE, its sign of life is something else.
        """
        return run_of(self.layout, read_heartbeat(self.others.get(names.HEARTBEAT)), now_ms)


def read_flow_state(target: Cluster, flow: str, since: int = 0) -> FlowState:
    """Return the flow's state as it was when the call began.

    Args:
        since: the generation that the caller has begun: whoever shows its layout shows all that the leaders
            before have written, and who does not tells what was before (docs/protocol.md).

    Raises:
        Retriable: the target is away, or a transaction stays open, or it is of before ``since``.
    """
    state = FlowState(*read_values(target, flow, wait=True))
    check_told(0 if state.layout is None else state.layout.generation, since, flow, target.alias)
    return state


def read_run(target: Cluster, flow: str) -> FlowRun:
    """Return how the newest run stands now, from what is decided: a leader that moves answers a moment later.

    Raises:
        Retriable: the target is away.
        NeedsOperator: STATE_UNREADABLE, its sign of life is something else.
    """
    return FlowState(*target.retry(lambda: read_values(target, flow, wait=False))).run(now_ms())


def read_values(target: Cluster, flow: str, *, wait: bool) -> list[Mapping[str, Any]]:
    """Return the latest values of the leader's partition, of the others' and of what the flow looks after.

    A partition that is not there holds nothing: brokers that make whatever is asked for give a topic one, and
    a start adds the other.

    Args:
        wait: False reads only what is decided, and never waits for an open transaction.

    Raises:
        Retriable: the target is away, or a transaction stays open.
    """
    state, owned = names.state_topic(flow), names.owned_topic(flow)
    there = target.topics([state, owned])
    logs = [(state, names.STATE_LEADER), (state, names.STATE_OTHERS), (owned, 0)]
    return [
        read_log(target, topic, partition, wait=wait)
        if topic in there and partition in there[topic].partitions
        else {}
        for topic, partition in logs
    ]


def read_layout(target: Cluster, flow: str, since: int = 0) -> Layout | None:
    """Return the flow's layout, None when the flow was never started.

    Args:
        since: as of ``read_flow_state``.

    Raises:
        Retriable: the target is not reachable, or it is of before ``since``.
    """
    layout = layout_in(target.retry(lambda: read_leader(target, flow)))
    check_told(0 if layout is None else layout.generation, since, flow, target.alias)
    return layout


def read_leader(target: Cluster, flow: str) -> Mapping[str, Any]:
    """Return what is decided of the leader's values; none for a flow that was never started.

    Raises:
        Retriable: the target is away.
    """
    topic = names.state_topic(flow)
    if topic not in target.topics([topic]):
        return {}
    return read_log(target, topic, names.STATE_LEADER, wait=False)


def read_log(target: Cluster, topic: str, partition: int, *, wait: bool) -> Mapping[str, Any]:
    """Return the latest values of one partition of a flow's own topics, over a connection for this one look.

    Args:
        wait: False reads only what is decided, and never waits for an open transaction.

    Raises:
        Retriable: the target is away, or a transaction stays open.
        NeedsOperator: the topic is not there.
    """
    log = StateLog(target, topic, partition)
    try:
        return log.catch_up(wait=wait)
    finally:
        log.close()
