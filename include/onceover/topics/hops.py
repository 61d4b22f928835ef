"""Through which flows a topic's records have come, and whether they would go round. Pure.

A flow sees the states on its own two clusters only: who writes its source topic, and from where. So every
flow keeps, beside its enrolments, what it has learned about where its source topics come from; the next one
reads that, adds one hop and passes it on. Where the way leads back to the topic that a flow writes, all flows
of the ring come to see the same ring, whichever of them began last. Where it leads back to the cluster only,
and the topic has another name there, nothing closes: each round would add a topic, for ever.

Invariant: a way holds each topic once, so that what goes round in a ring does not grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from onceover.state import names
from onceover.state.records.value import MALFORMED, as_unreadable, mapping, name, whole_number
from onceover.topics.namingpolicy import SEPARATOR

VERSION: Final = 1
# A chain of more clusters than this is not followed to its end: its record stays small.
_MOST_HOPS: Final = 32


@dataclass(frozen=True)
class Hop:
    """One flow on the way, and what it reads.

    Args:
        flow: its name; ``at_ms`` when it enrolled the topic.
        cluster: id of its source; None where its state does not tell.
        topic: that it copies from there.
    """

    flow: str
    cluster: str | None
    topic: str
    at_ms: int


# From the flow that writes a topic to the one that is farthest away.
Way = tuple[Hop, ...]


def upstream_json(way: Way) -> dict[str, Any]:
    """Return the value written under ``upstream/<target topic>``: the way of its *source* topic."""
    return {"v": VERSION, "hops": [asdict(hop) for hop in way]}


def read_upstream(state: Mapping[str, Any]) -> dict[str, Way]:
    """Return the ways among the values of the state's first partition, by target topic.

    Raises:
        NeedsOperator: one is none.
    """
    prefix = names.UPSTREAM_PREFIX
    return {key.removeprefix(prefix): _way(value) for key, value in state.items() if key.startswith(prefix)}


def _way(value: object) -> Way:
    try:
        hops = mapping(value, "upstream")["hops"]
        return tuple(
            Hop(
                name(hop["flow"]),
                None if hop["cluster"] is None else name(hop["cluster"]),
                name(hop["topic"]),
                whole_number(hop["at_ms"]),
            )
            for hop in hops[:_MOST_HOPS]
        )
    except MALFORMED as error:
        raise as_unreadable(error, "upstream") from error


def extended(first: Hop, further: Way, cluster: str, topic: str) -> Way:
    """Return the way of a topic.

    Args:
        first: the flow that writes it; ``further`` the way of what that one reads.
        cluster: id of the cluster that holds ``topic``.
    """
    found: list[Hop] = []
    seen: set[tuple[str | None, str]] = set()
    for hop in (first, *further):
        found.append(hop)
        place = hop.cluster, hop.topic
        # Round the ring once: where it began is its last hop.
        if place == (cluster, topic) or place in seen or len(found) == _MOST_HOPS:
            break
        seen.add(place)
    return tuple(found)


def ring(way: Way, target_id: str, target: str) -> Way:
    """Return the hops through which what is written to ``target`` comes back; empty without a ring."""
    for number, hop in enumerate(way):
        if (hop.cluster, hop.topic) == (target_id, target):
            return way[: number + 1]
    return ()


@dataclass(frozen=True)
class ReturnOrigin:
    """Where records come from that a flow would bring back to their cluster.

    Args:
        way: from the flow that writes the source topic to the one that reads from that cluster.
        copy: how the latter calls what it copies.
    """

    way: Way
    copy: str

    @property
    def first(self) -> Hop:
        """The flow that reads from that cluster, and what."""
        return self.way[-1]

    @property
    def alias(self) -> str | None:
        """How that flow calls that cluster, as its copy's name tells; None where it does not."""
        topic = f"{SEPARATOR}{self.first.topic}"
        return self.copy.removesuffix(topic) if self.copy.endswith(topic) else None


def origin(way: Way, topic: str, cluster: str) -> ReturnOrigin | None:
    """Return where on ``cluster`` a topic's records come from; None when they have not been there.

    Args:
        way: of ``topic``.
    """
    copy = topic
    for number, hop in enumerate(way):
        if hop.cluster == cluster:
            return ReturnOrigin(way[: number + 1], copy)
        copy = hop.topic
    return None


def changed_upstream(
    state: Mapping[str, Any], ways: Mapping[str, Way], copied: Mapping[str, str], *, whole: bool
) -> dict[str, dict[str, Any] | None]:
    """Return the records that have to be written so that a flow's state tells where its topics come from.

    Args:
        state: its first partition's values.
        ways: of source topics that other flows write.
        copied: source topics that the flow copies, with their targets.
        whole: all flows that could write them were read; what is not known for now is not forgotten.
    """
    wanted = {names.upstream_key(t): upstream_json(ways[s]) for s, t in copied.items() if s in ways}
    gone = {key for key in state if key.startswith(names.UPSTREAM_PREFIX)} - wanted.keys()
    changed = {key: value for key, value in wanted.items() if state.get(key) != value}
    return {**changed, **dict.fromkeys(gone if whole else ())}
