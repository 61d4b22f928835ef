"""What one topic is, and what our own principal may do with it; the rules of ``kafka.calls``."""

from __future__ import annotations

from typing import Final, NamedTuple
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
    answer = cluster.control().call(request, MetadataResponse).topics[0]
    action = classify(Api.METADATA, answer.error_code)
    if action is not Action.OK:
        raise failure(cluster.alias, Api.METADATA, action, answer.error_code, topic)
    replicas = [len(partition.replica_nodes) for partition in answer.partitions]
    # The codec has taken the bit field apart.
    codes = set(answer.authorized_operations)
    allowed = frozenset(name for code, name in _OPERATIONS.items() if code in codes)
    return TopicFacts(min(replicas, default=-1), allowed)
