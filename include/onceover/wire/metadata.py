"""Metadata responses, version 12, decoded by hand: of all topics, several times for each start of a flow.

The library builds an object for every field of every partition: that was most of what it cost us to look at a
cluster with a thousand topics.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from uuid import UUID

from onceover.errors import Fatal
from onceover.wire.batches.varint import decode_uvarint

_INT32: Final = struct.Struct(">i")
_ERROR: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">hiii")
_ID_BYTES: Final = 16
# Replicas, those in sync, those that are offline: nobody here asks for them.
_LISTS_OF_NODES: Final = 3
_ONE_BYTE: Final = 0x80


class BrokerMetadata(NamedTuple):
    """A broker as the metadata names it."""

    node_id: int
    host: str
    port: int


class PartitionMetadata(NamedTuple):
    """A partition; leader -1 while there is none."""

    partition_index: int
    leader_id: int
    leader_epoch: int


class TopicMetadata(NamedTuple):
    """A topic, or why there is none; then its id is zero."""

    error_code: int
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]


class Metadata(NamedTuple):
    """What a broker knows of its cluster."""

    cluster_id: str
    brokers: tuple[BrokerMetadata, ...]
    topics: tuple[TopicMetadata, ...]


def decode_metadata(frame: memoryview) -> Metadata:
    """Decode a Metadata v12 response (behind the correlation id).

    Raises:
        Fatal: the frame is not such a response.
    """
    data = bytes(frame)
    try:
        at = _skip_tags(data, 0) + _INT32.size  # the header's tags, and how long we are throttled
        brokers, at = _brokers(data, at)
        cluster_id, at = _text(data, at)
        topics, at = _topics(data, at + _INT32.size)  # behind the controller's id
        end = _skip_tags(data, at)
    except (struct.error, IndexError, ValueError) as error:
        raise Fatal("a Metadata response is cut off or not of version 12") from error
    if end > len(data):
        raise Fatal("a Metadata response is cut off", seen=f"{len(data)} bytes of {end}")
    return Metadata(cluster_id, brokers, topics)


def _brokers(data: bytes, at: int) -> tuple[tuple[BrokerMetadata, ...], int]:
    count, at = _count(data, at)
    found: list[BrokerMetadata] = []
    for _ in range(count):
        (node_id,) = _INT32.unpack_from(data, at)
        host, at = _text(data, at + _INT32.size)
        (port,) = _INT32.unpack_from(data, at)
        rack_bytes, at = decode_uvarint(data, at + _INT32.size)
        at = _skip_tags(data, at + max(0, rack_bytes - 1))
        found.append(BrokerMetadata(node_id, host, port))
    return tuple(found), at


def _topics(data: bytes, at: int) -> tuple[tuple[TopicMetadata, ...], int]:
    count, at = _count(data, at)
    found: list[TopicMetadata] = []
    for _ in range(count):
        (error_code,) = _ERROR.unpack_from(data, at)
        name, at = _text(data, at + _ERROR.size)
        topic_id = UUID(bytes=data[at : at + _ID_BYTES])
        is_internal = data[at + _ID_BYTES] != 0
        partitions, at = _partitions(data, at + _ID_BYTES + 1)
        at = _skip_tags(data, at + _INT32.size)  # behind what we may do with it
        found.append(TopicMetadata(error_code, name, topic_id, is_internal, partitions))
    return tuple(found), at


def _partitions(data: bytes, at: int) -> tuple[tuple[PartitionMetadata, ...], int]:
    count, at = _count(data, at)
    found: list[PartitionMetadata] = []
    for _ in range(count):
        # A partition's own error says that it has no leader, or too few replicas; the leader's id tells.
        _, index, leader_id, leader_epoch = _PARTITION.unpack_from(data, at)
        at += _PARTITION.size
        for _ in range(_LISTS_OF_NODES):
            nodes = data[at]
            if nodes < _ONE_BYTE:  # almost always, and this is done for each partition: no call for it
                at += 1
            else:
                nodes, at = decode_uvarint(data, at)
            if nodes > 1:
                at += (nodes - 1) * 4
        at = at + 1 if data[at] == 0 else _skip_tags(data, at)
        found.append(PartitionMetadata(index, leader_id, leader_epoch))
    return tuple(found), at


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of a list that must not be null."""
    size, at = decode_uvarint(data, at)
    if size == 0:
        raise ValueError("null where a list has to be")
    return size - 1, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    """Return a text that must not be null."""
    size, at = _count(data, at)
    end = at + size
    if end > len(data):
        raise IndexError
    return data[at:end].decode(), end


def _skip_tags(data: bytes, at: int) -> int:
    tags, at = decode_uvarint(data, at)
    for _ in range(tags):
        _, at = decode_uvarint(data, at)
        size, at = decode_uvarint(data, at)
        at += size
    return at
