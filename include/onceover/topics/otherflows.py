"""What other flows say about themselves in their state topics on a cluster. Reads, never writes.

Two questions need it: does another flow write, or is it about to write, the target topic that this one would
write, and does another flow copy this one's copies back?
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator, NotNow, OnceoverError
from onceover.kafka import calls
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.log import OTHERS_ROOM, StateLog, catch_up_together
from onceover.state.records.enrolment import Enrolment, read_enrolments
from onceover.state.records.ownership import Claim, FlowId, Rival, read_claims
from onceover.state.records.value import MALFORMED, as_unreadable, mapping, name
from onceover.topics.hops import Hop, Way, extended, origin, read_upstream, ring
from onceover.topics.namingpolicy import NamingPolicy
from onceover.topics.plan import Loop, OtherWriter

log = logging.getLogger(__name__)

_UNKNOWN: Final = -1
# A topic that was just created has a leader within this time, on busy brokers too.
_YOUNG_S: Final = 2.0
# All that is read of another flow's state.
_PREFIXES: Final = (names.LAYOUT, names.enrolment_key(""), names.CLAIM_PREFIX, names.UPSTREAM_PREFIX)


class _Key(NamedTuple):
    """One state topic; recreated, it is another one."""

    flow: str
    topic_id: UUID


@dataclass(frozen=True)
class OtherFlow:
    """A flow as its state describes it.

    Args:
        clusters: ids of its source and target, each None where its state does not tell.
        enrolments: its topics; ``claims`` those that it is about to take in.
        upstream: where their records come from, by target topic; those of a cluster's own are left out.
    """

    name: str
    clusters: tuple[str | None, str | None]
    enrolments: tuple[Enrolment, ...]
    claims: tuple[Claim, ...] = ()
    upstream: Mapping[str, Way] = field(default_factory=dict)

    @property
    def flow(self) -> FlowId:
        """By which flows that want the same topic are ordered."""
        return FlowId(self.name, self.clusters[1] or "")


class OtherFlows:
    """The flows whose state is on one cluster.

    What was read is kept, and read again only where something was added, all together: a hundred flows that
    look at each other cost each of them two requests, and one more where any has changed. No connection stays
    open.

    Args:
        cluster: where their state is, that is, their target.
        without: name of a flow that is left out.
    """

    def __init__(self, cluster: Cluster, *, without: str | None = None) -> None:
        self._cluster = cluster
        self._without = without
        self._logs: dict[_Key, StateLog] = {}
        self._seen: dict[_Key, tuple[int, OtherFlow]] = {}
        self.unreadable: dict[str, OnceoverError] = {}

    def read(self, topics: Mapping[str, TopicInfo]) -> list[OtherFlow]:
        """Return every flow whose state can be read now; ``unreadable`` has the others.

        A state that was written by another version, or whose broker is away, is that flow's trouble and
        must not end this one; what depends on it waits.

        Args:
            topics: the cluster's topics as they are now.
        """
        self.unreadable = {}
        found = {_Key(flow, topic.topic_id): topic.name for flow, topic in self._states(topics)}
        for gone in self._logs.keys() - found.keys():
            self._logs.pop(gone).close()
            self._seen.pop(gone, None)
        ends = self._ends(found)
        self._read_together(found, ends, topics)
        flows = []
        for key, topic in found.items():
            end, seen = ends.get(key, _UNKNOWN), self._seen.get(key)
            same = seen is not None and end == seen[0] and end != _UNKNOWN
            flow = seen[1] if seen is not None and same else self._read(key, topic, end)
            if flow is not None:
                flows.append(flow)
        return flows

    def close(self) -> None:
        """Close all connections."""
        for state in self._logs.values():
            state.close()
        self._logs.clear()
        self._seen.clear()

    def _read_together(
        self, found: Mapping[_Key, str], ends: Mapping[_Key, int], topics: Mapping[str, TopicInfo]
    ) -> None:
        """Read what was added to the states, as far as nothing is in the way; the others are read alone."""
        known = {key: end for key, (end, _) in self._seen.items()}
        grown = {key: end for key, end in ends.items() if end != known.get(key)}
        logs = {self._log(key, found[key]): (topics[found[key]], end) for key, end in grown.items()}
        if not logs:
            return
        done = catch_up_together(self._cluster, logs)
        for key, end in grown.items():
            state = self._logs[key]
            if state in done:
                # Read alone, it tells what is the matter.
                with suppress(*MALFORMED):
                    self._seen[key] = end, _described(key.flow, state.values)

    def _log(self, key: _Key, topic: str) -> StateLog:
        if key not in self._logs:
            self._logs[key] = StateLog(
                self._cluster, topic, names.STATE_LEADER, prefixes=_PREFIXES, room=OTHERS_ROOM
            )
        return self._logs[key]

    def _read(self, key: _Key, topic: str, end: int) -> OtherFlow | None:
        state = self._log(key, topic)
        try:
            # A flow that was started together with this one: its state was created a moment ago.
            flow = self._cluster.retry(
                lambda: self._caught_up(key.flow, topic, state), Deadline(_YOUNG_S), only=NotNow
            )
        except MALFORMED as error:
            self._logs.pop(key).close()
            self._seen.pop(key, None)
            if self._is_gone(topic):
                # Deleted since the topics were looked at: there is no such flow, and nothing to wait for.
                return None
            self.unreadable[key.flow] = as_unreadable(error, f"state of flow {key.flow}")
            return None
        # What was read stays; a connection for every pair of flows would add up.
        state.close()
        self._seen[key] = end, flow
        return flow

    def _caught_up(self, flow: str, topic: str, state: StateLog) -> OtherFlow:
        try:
            return _described(flow, state.catch_up(wait=False))
        except NotNow as error:
            if self._is_gone(topic):
                # Nobody waits for what will not come.
                raise NeedsOperator(error.message, code=StateCode.STATE_MISSING) from error
            raise

    def _is_gone(self, topic: str) -> bool:
        """Tell whether a state is not there any more; one that was made anew meanwhile is another flow's."""
        try:
            return topic not in self._cluster.topics([topic])
        except OnceoverError as error:
            log.debug("whether %s is there is not known: %s", topic, error)
            return False

    def _ends(self, found: Mapping[_Key, str]) -> dict[_Key, int]:
        """Return where each state ends, all asked at once; empty when one of their brokers is away."""
        wanted = {key: TopicPartition(topic, names.STATE_LEADER) for key, topic in found.items()}
        try:
            ends = self._cluster.list_offsets(wanted.values(), calls.LATEST)
        except OnceoverError as error:
            log.debug("the states of other flows are asked one by one: %s", error)
            return {}
        return {key: ends[tp] for key, tp in wanted.items()}

    def _states(self, topics: Mapping[str, TopicInfo]) -> Iterator[tuple[str, TopicInfo]]:
        for topic in topics.values():
            owner = names.state_owner(topic.name)
            if owner is not None and owner != self._without:
                yield owner, topic


def _described(flow: str, values: Mapping[str, Any]) -> OtherFlow:
    # Not read as a Layout: another version's flow is as real, and of its layout only this matters.
    layout = mapping(values.get(names.LAYOUT, {}), f"layout of flow {flow}")
    clusters = _cluster(layout, "source_cluster_id"), _cluster(layout, "target_cluster_id")
    # Of its partitions nothing is asked: thousands of topics of many flows are kept.
    enrolments = (
        replace(e, start={}, since={}, changed={}, former={}, placed={}, begun=frozenset())
        for e in read_enrolments(values).values()
    )
    claims = read_claims(values).values()
    return OtherFlow(flow, clusters, tuple(enrolments), tuple(claims), read_upstream(values))


def _cluster(layout: Mapping[str, Any], field: str) -> str | None:
    value = layout.get(field)
    return None if value is None else name(value)


def writers(flows: list[OtherFlow]) -> dict[str, OtherWriter]:
    """Return the target topics of flows, with the flow that writes each; those it has left included."""
    found: dict[str, OtherWriter] = {}
    for flow in flows:
        for enrolment in flow.enrolments:
            writer = OtherWriter(flow.name, enrolment.at_ms, enrolment.active)
            known = found.get(enrolment.target)
            if known is None or (not known.active, known.at_ms) > (not writer.active, writer.at_ms):
                found[enrolment.target] = writer
    return found


def rivals_there(flows: list[OtherFlow], target: str) -> list[Rival]:
    """Return the flows that write ``target``, have written it, or claim it. Pure.

    Args:
        flows: those whose state is on this flow's target, without this one.
    """
    found = [Rival(f.flow, enrolled=True) for f in flows if any(e.target == target for e in f.enrolments)]
    return found + [Rival(f.flow, enrolled=False) for f in flows if any(c.target == target for c in f.claims)]


def rivals_here(
    flows: list[OtherFlow], naming: NamingPolicy, source_id: str, target_id: str, source: str
) -> list[Rival]:
    """Return the flows that bring ``source`` from this flow's target, or claim to. Pure.

    Args:
        flows: as for ``loops``.
        source: a topic that this flow wants to copy.
    """

    def in_the_way(flow: OtherFlow, topic: Enrolment | Claim) -> bool:
        if topic.target != source:
            return False
        closes = _is_opposite(flow, source_id, target_id) and _closes(topic, naming)
        return closes or _brings_back(flow, topic, source_id, target_id)

    found = [
        Rival(f.flow, enrolled=True)
        for f in flows
        if any(e.active and in_the_way(f, e) for e in f.enrolments)
    ]
    return found + [Rival(f.flow, enrolled=False) for f in flows if any(in_the_way(f, c) for c in f.claims)]


def loops(
    flows: list[OtherFlow], naming: NamingPolicy, source_id: str, target_id: str, ways: Mapping[str, Way]
) -> dict[str, Loop]:
    """Return the source topics that other flows write from what is on this flow's target. Pure.

    Either from the very topic that this flow would write, or from another one, and then each round would
    add one.

    Args:
        flows: those whose state is on this flow's source.
        naming: of this flow.
        source_id: cluster id of this flow's source; ``target_id`` likewise.
        ways: of the source topics, as ``ways_to`` returns them.
    """
    found: dict[str, Loop] = {}
    for topic, way in ways.items():
        back = ring(way, target_id, naming.target_name(topic))
        if len(back) > 1:
            latest = max(back, key=lambda hop: (hop.at_ms, hop.flow))
            found[topic] = Loop(latest.flow, latest.at_ms, tuple(hop.flow for hop in back))
        elif not back and (came := origin(way, topic, target_id)) is not None:
            found[topic] = Loop(way[0].flow, way[0].at_ms, origin=came)
    for flow in flows:
        if not _is_opposite(flow, source_id, target_id):
            continue
        for enrolment in flow.enrolments:
            if enrolment.active and _closes(enrolment, naming):
                found[enrolment.target] = Loop(flow.name, enrolment.at_ms)
    return found


def former_loops(
    flows: list[OtherFlow], naming: NamingPolicy, source_id: str, target_id: str
) -> dict[str, Loop]:
    """Return the source topics that another flow has written from what this flow writes, and has left. Pure.

    Args:
        flows: as for ``loops``, without rings: what is left of those does not tell.
    """
    return {
        enrolment.target: Loop(flow.name, enrolment.left.at_ms)
        for flow in flows
        if _is_opposite(flow, source_id, target_id)
        for enrolment in flow.enrolments
        if enrolment.left is not None and _closes(enrolment, naming)
    }


def ways_to(flows: list[OtherFlow], cluster_id: str) -> dict[str, Way]:
    """Return the ways of a cluster's topics that flows write, by topic. Pure.

    Args:
        flows: those whose state is on the cluster.
        cluster_id: of the cluster.
    """
    return {
        enrolment.target: _way(flow, enrolment, cluster_id)
        for flow in flows
        if flow.clusters[1] in (None, cluster_id)
        for enrolment in flow.enrolments
        if enrolment.active
    }


def _way(flow: OtherFlow, topic: Enrolment | Claim, cluster_id: str) -> Way:
    """Return the way of what a flow writes, or is about to write, on a cluster."""
    first = Hop(flow.name, flow.clusters[0], topic.source, topic.at_ms)
    return extended(first, flow.upstream.get(topic.target, ()), cluster_id, topic.target)


def _brings_back(flow: OtherFlow, topic: Enrolment | Claim, source_id: str, target_id: str) -> bool:
    """Tell whether what a flow writes on our source has been on our target."""
    if flow.clusters[1] not in (None, source_id):
        return False
    return origin(_way(flow, topic, source_id), topic.target, target_id) is not None


def _is_opposite(flow: OtherFlow, source_id: str, target_id: str) -> bool:
    """Tell whether it copies from our target to our source; so it counts as well where it does not tell."""
    pairs = zip(flow.clusters, (target_id, source_id), strict=True)
    return all(seen in (None, expected) for seen, expected in pairs)


def _closes(topic: Enrolment | Claim, naming: NamingPolicy) -> bool:
    """Tell whether we would copy what comes out of it back to where it came from."""
    return naming.target_name(topic.target) == topic.source
