"""One function per Kafka request: plain values in, plain values out, error codes untouched.

Which codes mean what is decided by the callers through ``txn.classify``. Versions are fixed, not
negotiated: the oldest that carry what the guarantees need (topic ids, leader epochs, stable offset
fetches), served by every broker from 3.1 on. Nested structures are given as tuples in the order of
the protocol's schema.

What is made of an answer is made by a function that the connection calls: an answer that lacks what the
protocol promises is damaged, and ends the connection (``kafka.link.connection``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from onceover.kafka.link.channel import Channel
from onceover.model import TopicPartition
from onceover.wire.metadata import Metadata, decode_metadata

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
EARLIEST = -2
LATEST = -1
GROUP = 0
TRANSACTION = 1
NO_EPOCH = -1
_NO_TOPIC_ID = UUID(int=0)


class AclOperation(IntEnum):
    """What a broker says that we may do with a topic, a group or the cluster, by the protocol's codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


class CommittedOffset(NamedTuple):
    """One partition's answer of OffsetFetch; ``offset`` is -1 where nothing is committed."""

    error_code: int
    offset: int
    leader_epoch: int
    metadata: str


class OffsetToCommit(NamedTuple):
    """A position to commit: next offset to read, leader epoch of the last record read, metadata."""

    offset: int
    leader_epoch: int
    metadata: str


class ApiVersions(NamedTuple):
    """The newest version that a broker speaks of each request, and the cluster's finalized features."""

    newest: Mapping[int, int]
    features: Mapping[str, int]


class InitResult(NamedTuple):
    """Answer of InitProducerId."""

    error_code: int
    producer_id: int
    producer_epoch: int


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    ordered = sorted(partitions)
    return [(topic, [tp.partition for tp in group]) for topic, group in groupby(ordered, lambda tp: tp.topic)]


def text(value: Any) -> str:
    """Return a string of an answer that must not be null; for the functions that read one."""
    if not isinstance(value, str):
        raise TypeError("null where a text has to be")
    return value


def _place(topic: Any, partition: int) -> TopicPartition:
    return TopicPartition(text(topic), partition)


def api_versions(connection: Channel) -> ApiVersions:
    """ApiVersions v3: what the broker serves, and the cluster's finalized features (KIP-584)."""

    def read(answer: Any) -> ApiVersions:
        return ApiVersions(
            {key.api_key: key.max_version for key in answer.api_keys},
            {text(f.name): f.max_version_level for f in answer.finalized_features or ()},
        )

    request = ApiVersionsRequest(version=3, client_software_name="onceover", client_software_version="1")
    return connection.call(request, ApiVersionsResponse, read)


def metadata(connection: Channel, topics: Sequence[str] | None) -> Metadata:
    """Metadata v12: brokers, cluster id, and the topics named (None: all). Never creates a topic."""
    named = None if topics is None else [(_NO_TOPIC_ID, name) for name in topics]
    request = MetadataRequest(
        version=12,
        topics=named,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return connection.ask(request, decode_metadata)


def find_coordinators(
    connection: Channel, keys: Collection[str], key_type: int
) -> dict[str, tuple[int, int]]:
    """FindCoordinator v4 for groups (0) or transactional.ids (1): error code, and the broker, of each."""

    def read(answer: Any) -> dict[str, tuple[int, int]]:
        found = {text(one.key): (one.error_code, one.node_id) for one in answer.coordinators}
        return {key: found[key] for key in keys}

    request = FindCoordinatorRequest(version=4, coordinator_keys=list(keys), key_type=key_type)
    return connection.call(request, FindCoordinatorResponse, read)


def list_offsets(
    connection: Channel, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int
) -> dict[TopicPartition, tuple[int, int, int]]:
    """ListOffsets v6: (error code, offset, leader epoch) of each partition at ``timestamp_ms``.

    ``EARLIEST`` gives the log start; ``LATEST`` the LSO when reading committed, else the high
    watermark; a time gives the first record at or after it, -1 where there is none.
    """
    return connection.call(*list_offsets_request(partitions, timestamp_ms, isolation), offsets_listed)


def list_offsets_request(
    partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int
) -> tuple[Any, Any]:
    """ListOffsets v6: request and response type, for who does not wait for the answer."""
    topics = [(t, [(p, NO_EPOCH, timestamp_ms) for p in ps]) for t, ps in _by_topic(partitions)]
    request = ListOffsetsRequest(version=6, replica_id=-1, isolation_level=isolation, topics=topics)
    return request, ListOffsetsResponse


def offsets_listed(answer: Any) -> dict[TopicPartition, tuple[int, int, int]]:
    """Read (error code, offset, leader epoch) of each partition out of an answer to it."""
    return {
        _place(t.name, p.partition_index): (p.error_code, p.offset, p.leader_epoch)
        for t in answer.topics
        for p in t.partitions
    }


def end_offsets_for_epochs(
    connection: Channel, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int, int]]:
    """OffsetForLeaderEpoch v4: (error code, epoch, end offset of that epoch) (KIP-320)."""

    def read(answer: Any) -> dict[TopicPartition, tuple[int, int, int]]:
        return {
            _place(t.topic, p.partition): (p.error_code, p.leader_epoch, p.end_offset)
            for t in answer.topics
            for p in t.partitions
        }

    topics = [
        (topic, [(p, NO_EPOCH, epochs[TopicPartition(topic, p)]) for p in ps])
        for topic, ps in _by_topic(epochs)
    ]
    request = OffsetForLeaderEpochRequest(version=4, replica_id=-1, topics=topics)
    return connection.call(request, OffsetForLeaderEpochResponse, read)


def open_transactions(
    connection: Channel, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, Mapping[int, int]]]:
    """DescribeProducers v0: (error code, first offset of each producer id's open transaction) (KIP-664).

    What the leader's log holds, whatever the coordinators believe.
    """

    def read(answer: Any) -> dict[TopicPartition, tuple[int, Mapping[int, int]]]:
        return {
            _place(t.name, p.partition_index): (
                p.error_code,
                {
                    one.producer_id: one.current_txn_start_offset
                    for one in p.active_producers
                    if one.current_txn_start_offset >= 0
                },
            )
            for t in answer.topics
            for p in t.partitions
        }

    request = DescribeProducersRequest(version=0, topics=_by_topic(partitions))
    return connection.call(request, DescribeProducersResponse, read)


def offset_fetch(
    connection: Channel, asked: Mapping[str, Iterable[TopicPartition] | None], *, stable: bool
) -> dict[str, tuple[int, dict[TopicPartition, CommittedOffset]]]:
    """OffsetFetch v8: each group's error code, and what it has committed (None: for all partitions).

    ``stable`` waits for pending transactions instead of answering the value before them (KIP-447).
    """

    def read(answer: Any) -> dict[str, tuple[int, dict[TopicPartition, CommittedOffset]]]:
        found = {text(one.group_id): (one.error_code, _committed(one)) for one in answer.groups}
        return {group: found[group] for group in asked}

    groups = [(group, None if tps is None else _by_topic(tps)) for group, tps in asked.items()]
    request = OffsetFetchRequest(version=8, groups=groups, require_stable=stable)
    return connection.call(request, OffsetFetchResponse, read)


def _committed(group: Any) -> dict[TopicPartition, CommittedOffset]:
    return {
        _place(t.name, p.partition_index): CommittedOffset(
            p.error_code, p.committed_offset, p.committed_leader_epoch, p.metadata or ""
        )
        for t in group.topics or ()
        for p in t.partitions
    }


def _commit_topics(offsets: Mapping[TopicPartition, OffsetToCommit]) -> list[tuple[Any, ...]]:
    return [
        (topic, [(p, *offsets[TopicPartition(topic, p)]) for p in ps]) for topic, ps in _by_topic(offsets)
    ]


def partition_codes(answer: Any) -> dict[TopicPartition, int]:
    """Read the error code of each partition out of an answer to a commit or deletion of offsets."""
    return {_place(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}


def offset_commit_request(group: str, offsets: Mapping[TopicPartition, OffsetToCommit]) -> tuple[Any, Any]:
    """OffsetCommit v8 as a group without members (generation -1): request and response type.

    The coordinator refuses it for every partition while the group has members: checking and writing are
    one step there, which no check of ours beforehand can be.
    """
    request = OffsetCommitRequest(
        version=8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=_commit_topics(offsets),
    )
    return request, OffsetCommitResponse


def init_producer_id(connection: Channel, transactional_id: str | None, timeout_ms: int) -> InitResult:
    """InitProducerId v4: bumps the epoch, which fences every older holder and aborts what it left open.

    Without a transactional.id any broker hands out a fresh producer id, and nobody is fenced.
    """
    request = InitProducerIdRequest(
        version=4,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    return connection.call(
        request,
        InitProducerIdResponse,
        lambda answer: InitResult(answer.error_code, answer.producer_id, answer.producer_epoch),
    )


def add_partitions_to_txn(
    connection: Channel,
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, int]:
    """AddPartitionsToTxn v3 (older request set): error code of each partition."""

    def read(answer: Any) -> dict[TopicPartition, int]:
        return {
            _place(t.name, p.partition_index): p.partition_error_code
            for t in answer.results_by_topic_v3_and_below
            for p in t.results_by_partition
        }

    request = AddPartitionsToTxnRequest(
        version=3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=_by_topic(partitions),
    )
    return connection.call(request, AddPartitionsToTxnResponse, read)


def add_offsets_to_txn(
    connection: Channel, transactional_id: str, producer: tuple[int, int], group: str
) -> int:
    """AddOffsetsToTxn v3 (older request set): its error code."""
    request = AddOffsetsToTxnRequest(
        version=3,
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group,
    )
    return connection.call(request, AddOffsetsToTxnResponse, lambda answer: int(answer.error_code))


def txn_offset_commit(
    connection: Channel,
    transactional_id: str,
    producer: tuple[int, int],
    group: str,
    offsets: Mapping[TopicPartition, OffsetToCommit],
    *,
    version: int,
) -> dict[TopicPartition, int]:
    """TxnOffsetCommit v3 or v5 (v5 adds the group to the transaction by itself, KIP-890)."""
    request = TxnOffsetCommitRequest(
        version=version,
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=_commit_topics(offsets),
    )
    return connection.call(request, TxnOffsetCommitResponse, partition_codes)


def end_txn(
    connection: Channel,
    transactional_id: str,
    producer: tuple[int, int],
    *,
    commit: bool,
    version: int,
) -> InitResult:
    """EndTxn v3 or v5; v5 answers with the producer id and epoch of the next transaction (KIP-890)."""

    def read(answer: Any) -> InitResult:
        if version >= 5 and answer.error_code == 0:
            return InitResult(0, answer.producer_id, answer.producer_epoch)
        return InitResult(answer.error_code, *producer)

    request = EndTxnRequest(
        version=version,
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=commit,
    )
    return connection.call(request, EndTxnResponse, read)
