"""What other flows say about themselves in their state topics on a cluster. Reads, never writes.

Two questions need it: does another flow write the target topic that this one would write, and does
another flow copy this one's copies back?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from onceover.engine import names
from onceover.engine.enrolment import Enrolment, read_enrolments
from onceover.engine.naming import Naming
from onceover.engine.statelog import StateLog
from onceover.engine.topicplan import Loop
from onceover.errors import OnceoverError
from onceover.kafka.cluster import Cluster, TopicInfo


@dataclass(frozen=True)
class OtherFlow:
    """A flow as its state describes it.

    Args:
        clusters: ids of its source and target, each None where its state does not tell.
    """

    name: str
    clusters: tuple[str | None, str | None]
    enrolments: tuple[Enrolment, ...]


class OtherFlows:
    """The flows whose state is on one cluster. Keeps what was read, so that asking again is cheap.

    Args:
        cluster: where their state is, that is, their target.
        without: name of a flow that is left out.
    """

    def __init__(self, cluster: Cluster, *, without: str | None = None) -> None:
        self._cluster = cluster
        self._without = without
        self._logs: dict[tuple[str, UUID], StateLog] = {}
        self.unreadable: dict[str, OnceoverError] = {}

    def read(self, topics: Mapping[str, TopicInfo]) -> list[OtherFlow]:
        """Return every flow whose state can be read now; ``unreadable`` has the others.

        A state that was written by another version, or whose broker is away, is that flow's trouble and
        must not end this one; what depends on it waits.

        Args:
            topics: the cluster's topics as they are now.
        """
        self.unreadable = {}
        found = {(flow, topic.topic_id): topic.name for flow, topic in self._states(topics)}
        for gone in self._logs.keys() - found.keys():
            self._logs.pop(gone).close()
        flows = []
        for key, topic in found.items():
            log = self._logs.setdefault(key, StateLog(self._cluster, topic, names.STATE_LEADER))
            try:
                flows.append(_described(key[0], log.catch_up(wait=False)))
            except OnceoverError as error:
                self._logs.pop(key).close()
                self.unreadable[key[0]] = error
        return flows

    def close(self) -> None:
        """Close all connections."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def _states(self, topics: Mapping[str, TopicInfo]) -> Iterator[tuple[str, TopicInfo]]:
        for topic in topics.values():
            owner = names.state_owner(topic.name)
            if owner is not None and owner != self._without:
                yield owner, topic


def _described(flow: str, values: Mapping[str, Any]) -> OtherFlow:
    # Not read as a Layout: another version's flow is as real, and of its layout only this matters.
    layout = values.get(names.LAYOUT, {})
    clusters = layout.get("source_cluster_id"), layout.get("target_cluster_id")
    return OtherFlow(flow, clusters, tuple(read_enrolments(values).values()))


def writers(flows: list[OtherFlow]) -> dict[str, str]:
    """Return the target topics of flows, with the flow that writes each; those it has left included."""
    return {enrolment.target: flow.name for flow in flows for enrolment in flow.enrolments}


def loops(flows: list[OtherFlow], naming: Naming, source_id: str, target_id: str) -> dict[str, Loop]:
    """Return the source topics that other flows write from what this flow would write. Pure.

    Args:
        flows: those whose state is on this flow's source.
        naming: of this flow.
        source_id: cluster id of this flow's source; ``target_id`` likewise.
    """
    found: dict[str, Loop] = {}
    for flow in flows:
        pairs = zip(flow.clusters, (target_id, source_id), strict=True)
        if any(seen not in (None, expected) for seen, expected in pairs):
            continue
        for enrolment in flow.enrolments:
            if enrolment.active and naming.target_name(enrolment.target) == enrolment.source:
                found[enrolment.target] = Loop(flow.name, enrolment.at_ms)
    return found
