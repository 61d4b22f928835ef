"""Names that a flow's clusters know, for whoever completes a command: asked briefly, and only read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.topics.scope import in_scope
from onceover.wiring.flows import open_clusters, rules

# Somebody has pressed a key and waits.
_PATIENCE_S: Final = 2.0


def topics(ref: str, *, target: bool) -> Mapping[str, Collection[int]]:
    """Return the partitions of topics by name: those of the source that are in the flow, or the target's.

    Raises:
        OnceoverError: the flow is not in order, or the cluster does not answer at once.
    """
    with _asked(ref, target=target) as (flow, cluster):
        found = cluster.topics()
        wanted = _data(found) if target else in_scope(found, rules(flow))
        return {name: topic.partitions.keys() for name, topic in wanted.items()}


def groups(ref: str, *, target: bool) -> Collection[str]:
    """Return the groups of one of the clusters.

    Raises:
        OnceoverError: the flow is not in order, or the cluster does not answer at once.
    """
    with _asked(ref, target=target) as (_, cluster):
        return GroupAdmin(cluster, retry_s=_PATIENCE_S).groups().groups


def _data(topics: Mapping[str, TopicInfo]) -> dict[str, TopicInfo]:
    return {n: topic for n, topic in topics.items() if not topic.is_internal and not n.startswith("__")}


@contextmanager
def _asked(ref: str, *, target: bool) -> Iterator[tuple[Flow, Cluster]]:
    flow = load_flow(ref)
    source, wanted = open_clusters(flow)
    with (wanted if target else source).hasty(_PATIENCE_S) as cluster:
        yield flow, cluster
