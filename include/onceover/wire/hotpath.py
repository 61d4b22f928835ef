"""The messages that carry payload, without copying it: Fetch responses and Produce requests.

The library's codec copies the record bytes once on the way in and twice on the way out (0.17 and
0.5 s of CPU per GB, measured), and hands them out read-only. Here the batches stay in the receive
buffer, are stamped there and leave through scatter-gather I/O. Both are checked against the
library's codec in the tests. Layouts: Fetch v13 (KIP-516), Produce v9 to v13 (KIP-516, KIP-890).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from onceover.errors import Fatal
from onceover.wire.batches.batch import Buffer
from onceover.wire.batches.varint import encode_uvarint
from onceover.wire.batches.visibility import AbortedTransaction

FETCH_VERSION = 13
_FETCH_TOP = struct.Struct(">ihi")
_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_INT32 = struct.Struct(">i")
_DIVERGING = struct.Struct(">iq")
_TAG_DIVERGING_EPOCH = 0
_PRODUCE_KEY = 0
_FETCH_KEY = 1
_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqib")
_NO_OFFSET = -1
_TOPIC_IDS_FROM = 13
# Lengths and tags have at most 32 bits, five bytes of seven: of 64, as a varint may have elsewhere, `struct`
# takes no offset.
_LAST_SHIFT = 28


class DivergingEpoch(NamedTuple):
    """The broker's log no longer contains what we fetched last: it ends our epoch here (KIP-595)."""

    epoch: int
    end_offset: int


class FetchPosition(NamedTuple):
    """Where to fetch one partition from, and how much at most, where that is not what holds for all.

    -1 where a leader epoch is not known.
    """

    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int | None = None


class FetchedPartition(NamedTuple):
    """One partition of a Fetch response; ``records`` is a view into the receive buffer."""

    topic_id: UUID
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]
    records: memoryview
    diverging: DivergingEpoch | None


class FetchResponse(NamedTuple):
    """A decoded Fetch response."""

    throttle_ms: int
    error_code: int
    partitions: list[FetchedPartition]


class ProduceData(NamedTuple):
    """One stamped batch for one partition; at most one per partition and request (docs/facts.md)."""

    topic: str
    topic_id: UUID
    partition: int
    batch: Buffer


def _varint(buffer: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift <= _LAST_SHIFT:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number of more than 32 bits")


def _skip_tags(buffer: memoryview, at: int) -> int:
    tags, at = _varint(buffer, at)
    for _ in range(tags):
        _, at = _varint(buffer, at)
        size, at = _varint(buffer, at)
        at += size
    return at


def encode_fetch(
    positions: Iterable[FetchPosition],
    *,
    correlation_id: int,
    client_id: str,
    isolation: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
) -> bytes:
    """Encode a Fetch v13 request without a session: every partition named each time.

    Args:
        positions: in the order in which the broker is to fill its answer. It is kept, and a topic named again
            where others lie in between: gathered by topic, some would come last for ever.
        isolation: 1 cuts the answer at the last stable offset.
        max_wait_ms: how long the broker gathers ``min_bytes``.
        max_bytes: of the whole answer; a first batch that is larger still comes. For each partition likewise.
    """
    topics: list[tuple[bytes, list[bytes]]] = []
    for p in positions:
        most_bytes = partition_max_bytes if p.max_bytes is None else p.max_bytes
        entry = _FETCH_PARTITION.pack(
            p.partition, p.leader_epoch, p.offset, p.last_fetched_epoch, _NO_OFFSET, most_bytes, 0
        )
        if not topics or topics[-1][0] != p.topic_id.bytes:
            topics.append((p.topic_id.bytes, []))
        topics[-1][1].append(entry)
    name = client_id.encode()
    parts = [
        struct.pack(">hhih", _FETCH_KEY, FETCH_VERSION, correlation_id, len(name)) + name + b"\0",
        # Replica -1: a client. Session 0 with epoch -1: none, and none is wanted.
        _FETCH_HEAD.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation, 0, -1),
        encode_uvarint(len(topics) + 1),
    ]
    for topic_id, entries in topics:
        parts += (topic_id, encode_uvarint(len(entries) + 1), *entries, b"\0")
    # No forgotten topics, no rack, no tags.
    parts.append(b"\1\1\0")
    frame = b"".join(parts)
    return _INT32.pack(len(frame)) + frame


def decode_fetch(frame: memoryview) -> FetchResponse:
    """Decode a Fetch v13 response (behind the correlation id); records stay views into ``frame``.

    Raises:
        Fatal: the frame is not such a response.
    """
    try:
        at = _skip_tags(frame, 0)
        throttle_ms, error_code, _session = _FETCH_TOP.unpack_from(frame, at)
        at += _FETCH_TOP.size
        topics, at = _varint(frame, at)
        partitions: list[FetchedPartition] = []
        for _ in range(topics - 1):
            topic_id = UUID(bytes=bytes(frame[at : at + 16]))
            count, at = _varint(frame, at + 16)
            for _ in range(count - 1):
                partition, at = _decode_partition(frame, at, topic_id)
                partitions.append(partition)
            at = _skip_tags(frame, at)
    except (struct.error, IndexError, ValueError) as error:
        raise Fatal("a Fetch response is cut off or not of version 13") from error
    return FetchResponse(throttle_ms, error_code, partitions)


def _decode_partition(frame: memoryview, at: int, topic_id: UUID) -> tuple[FetchedPartition, int]:
    index, error_code, high_watermark, lso, log_start = _PARTITION.unpack_from(frame, at)
    entries, at = _varint(frame, at + _PARTITION.size)
    aborted: list[AbortedTransaction] = []
    for _ in range(entries - 1):  # 0 is null: -1 iterations, none
        producer_id, first_offset = _ABORTED.unpack_from(frame, at)
        aborted.append(AbortedTransaction(first_offset, producer_id))
        at = _skip_tags(frame, at + _ABORTED.size)
    size, at = _varint(frame, at + _INT32.size)  # behind the preferred read replica
    size = max(0, size - 1)
    if at + size > len(frame):
        raise IndexError
    records = frame[at : at + size]
    diverging, at = _partition_tags(frame, at + size)
    return (
        FetchedPartition(
            topic_id, index, error_code, high_watermark, lso, log_start, aborted, records, diverging
        ),
        at,
    )


def _partition_tags(frame: memoryview, at: int) -> tuple[DivergingEpoch | None, int]:
    diverging = None
    tags, at = _varint(frame, at)
    for _ in range(tags):
        tag, at = _varint(frame, at)
        size, at = _varint(frame, at)
        if tag == _TAG_DIVERGING_EPOCH:
            diverging = DivergingEpoch(*_DIVERGING.unpack_from(frame, at))
        at += size
    return diverging, at


def encode_produce(
    data: Sequence[ProduceData],
    *,
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str | None,
    timeout_ms: int,
) -> list[Buffer]:
    """Encode a Produce request with acks=all as a list of buffers for ``sendmsg``.

    The batches are in the list as they are, uncopied; they must not change until they are sent.

    Args:
        data: at most one batch per partition; entries of one topic must be neighbours.
        version: 9 to 13; from 13 on topics go by id, so a recreated topic is refused (100).
        timeout_ms: how long the broker may wait for the in-sync replicas.
    """
    name = client_id.encode()
    head = bytearray(struct.pack(">hhih", _PRODUCE_KEY, version, correlation_id, len(name)))
    head += name + b"\0"
    txn = transactional_id.encode() if transactional_id is not None else None
    head += b"\0" if txn is None else encode_uvarint(len(txn) + 1) + txn
    head += struct.pack(">hi", -1, timeout_ms)
    topics = _by_topic(data)
    head += encode_uvarint(len(topics) + 1)
    parts: list[Buffer] = []
    for entries in topics:
        first = entries[0]
        topic = first.topic.encode()
        head += first.topic_id.bytes if version >= _TOPIC_IDS_FROM else encode_uvarint(len(topic) + 1) + topic
        head += encode_uvarint(len(entries) + 1)
        for entry in entries:
            head += _INT32.pack(entry.partition) + encode_uvarint(len(entry.batch) + 1)
            parts += (bytes(head), entry.batch)
            head = bytearray(b"\0")
        head += b"\0"
    parts.append(bytes(head + b"\0"))
    return [_INT32.pack(sum(map(len, parts))), *parts]


def _by_topic(data: Iterable[ProduceData]) -> list[list[ProduceData]]:
    topics: list[list[ProduceData]] = []
    for entry in data:
        if topics and topics[-1][0].topic == entry.topic:
            topics[-1].append(entry)
        else:
            topics.append([entry])
    return topics
