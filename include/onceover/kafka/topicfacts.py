"""What one topic is, and what our own principal may do with it; the rules of ``kafka.calls``."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from onceover.kafka.cluster import Cluster, failure
from onceover.txn.classify import Action, Api, classify

# The last with the topic's operations and its name.
_VERSION: Final = 12
# AclOperation's codes.
_OPERATIONS: Final = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
}


class TopicFacts(NamedTuple):
    """A topic: its lowest replication factor, and the operations that we may do."""

    replication_factor: int
    operations: frozenset[str]


def topic_facts(cluster: Cluster, topic: str) -> TopicFacts:
    """Ask for one topic that exists. Try again with ``Cluster.retry``.

    Raises:
        Retriable: the cluster is away, or the topic has no leader yet.
        UsageError: not authorized to describe the topic.
        NeedsOperator: there is no such topic.
    """
    request = MetadataRequest(
        version=_VERSION,
        topics=[(UUID(int=0), topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    error_code, facts = cluster.control().call(request, MetadataResponse, _read)
    action = classify(Api.METADATA, error_code)
    if action is not Action.OK:
        raise failure(cluster.alias, Api.METADATA, action, error_code, topic)
    return facts


def _read(answer: Any) -> tuple[int, TopicFacts]:
    [topic] = answer.topics
    replicas = [len(partition.replica_nodes) for partition in topic.partitions]
    # The codec has taken the bit field apart.
    codes = set(topic.authorized_operations or ())
    allowed = frozenset(name for code, name in _OPERATIONS.items() if code in codes)
    return topic.error_code, TopicFacts(min(replicas, default=-1), allowed)
