"""What one topic is, and what our own principal may do with it; the rules of ``kafka.calls``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.ports import Cluster
from onceover.txn.classify import Action, Api, classify

# The last with the topic's operations and its name.
_VERSION: Final = 12
# The oldest that brokers of today serve; topics have names in it, not ids.
_FETCH_VERSION: Final = 4
_PRODUCE_VERSION: Final = 7
_PRODUCE_MS: Final = 10_000
_TOPIC_AUTHORIZATION_FAILED: Final = 29


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
    [(_, error_code, facts)] = cluster.control().call(_about([topic]), MetadataResponse, _read)
    action = classify(Api.METADATA, error_code)
    if action is not Action.OK:
        raise failure(cluster.alias, Api.METADATA, action, error_code, topic)
    return facts


def may_not_read(cluster: Cluster, topics: Collection[str]) -> frozenset[str]:
    """Return which of these topics we may not READ, whether they are there or not. Changes nothing.

    Who may not READ a topic may commit no position of it either. Try again with ``Cluster.retry``.

    Raises:
        Retriable: the cluster is away.
    """
    if not topics:
        return frozenset()
    found, absent = set(), []
    for name, code, facts in cluster.control().call(_about(sorted(topics)), MetadataResponse, _read):
        action = classify(Api.METADATA, code)
        if action is Action.MISSING:
            absent.append(name)
        elif action is Action.UNAUTHORIZED or (action is Action.OK and "READ" not in facts.operations):
            found.add(name)
    codes = _ask_to_read(cluster, absent) if absent else {}
    return frozenset(found | {name for name, code in codes.items() if code == _TOPIC_AUTHORIZATION_FAILED})


def may_on_absent(cluster: Cluster, topic: str, operation: str) -> bool:
    """Tell whether we might READ from or WRITE to a topic that does not exist.

    Brokers look at the right before they look for the topic. Try again with ``Cluster.retry``.

    Raises:
        Retriable: the cluster is away.
    """
    code = _ask_to_write(cluster, topic) if operation == "WRITE" else _ask_to_read(cluster, [topic])[topic]
    return code != _TOPIC_AUTHORIZATION_FAILED


def _ask_to_read(cluster: Cluster, topics: Sequence[str]) -> dict[str, int]:
    """Ask to read from topics that do not exist; return the error codes."""
    request = FetchRequest(
        version=_FETCH_VERSION,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=0,
        topics=[(topic, [(0, 0, 1)]) for topic in topics],
    )
    return cluster.control().call(request, FetchResponse, _read_codes)


def _ask_to_write(cluster: Cluster, topic: str) -> int:
    """Ask to write nothing to a topic that does not exist; return the error code."""
    request = ProduceRequest(
        version=_PRODUCE_VERSION,
        transactional_id=None,
        acks=1,
        timeout_ms=_PRODUCE_MS,
        topic_data=[(topic, [(0, None)])],
    )
    return cluster.control().call(request, ProduceResponse, _written_code)


def _about(topics: Sequence[str]) -> MetadataRequest:
    return MetadataRequest(
        version=_VERSION,
        topics=[(UUID(int=0), topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def _read_codes(answer: Any) -> dict[str, int]:
    return {t.topic: int(partition.error_code) for t in answer.responses for partition in t.partitions}


def _written_code(answer: Any) -> int:
    [topic] = answer.responses
    [partition] = topic.partition_responses
    return int(partition.error_code)


def _read(answer: Any) -> list[tuple[str, int, TopicFacts]]:
    return [(topic.name, topic.error_code, _facts(topic)) for topic in answer.topics]


def _facts(topic: Any) -> TopicFacts:
    replicas = [len(partition.replica_nodes) for partition in topic.partitions]
    # The codec has taken the bit field apart.
    codes = set(topic.authorized_operations or ())
    allowed = frozenset(operation.name for operation in calls.AclOperation if operation in codes)
    return TopicFacts(min(replicas, default=-1), allowed)
