"""The Fetch request and its answer as the audit speaks them: one partition at a time, by topic id.

Pure. Written afresh beside the replicator's own: a wrong idea of one about an answer is not shared by the
other. Layout: Kafka protocol, Fetch version 13 (flexible; topics by id since KIP-516, so that a topic that
was deleted and created anew is answered with an error instead of another topic's records).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from uuid import UUID

from onceover.errors import Fatal

_API_KEY: Final = 1
_VERSION: Final = 13
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_NONE: Final = -1
_UVARINT_BITS: Final = 35

_HEADER = struct.Struct(">hhih")
_BEGIN = struct.Struct(">iiiibii")
_PARTITION = struct.Struct(">iiqiqi")
_ANSWER = struct.Struct(">ihi")
_ANSWERED_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_INT32 = struct.Struct(">i")


class Wanted(NamedTuple):
    """Where to read.

    Args:
        topic_id: of the topic that is meant.
        leader_epoch: of the leader that the metadata named; the broker refuses when it knows better.
    """

    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int


class Fetched(NamedTuple):
    """One partition's answer; ``records`` is a view into the frame.

    ``aborted`` holds (producer id, first offset) of the aborted transactions among the records.
    """

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]
    records: memoryview


def encode_fetch(
    wanted: Wanted,
    *,
    correlation_id: int,
    client_id: str,
    max_bytes: int,
    max_wait_ms: int,
    committed: bool = True,
) -> bytes:
    """Return the frame of a Fetch of one partition, its length in front.

    Args:
        committed: only what a reader of committed records sees; otherwise all up to the high watermark.
    """
    name = client_id.encode()
    isolation = _READ_COMMITTED if committed else _READ_UNCOMMITTED
    body = b"".join(
        (
            _HEADER.pack(_API_KEY, _VERSION, correlation_id, len(name)),
            name,
            b"\0",  # tagged fields of the header
            _BEGIN.pack(_NONE, max_wait_ms, 1, max_bytes, isolation, 0, _NONE),
            b"\2",  # one topic: compact arrays count from 1
            wanted.topic_id.bytes,
            b"\2",
            _PARTITION.pack(wanted.partition, wanted.leader_epoch, wanted.offset, _NONE, _NONE, max_bytes),
            b"\0\0",  # tagged fields of partition and topic
            b"\1",  # no forgotten topics
            b"\1",  # no rack
            b"\0",
        )
    )
    return _INT32.pack(len(body)) + body


def decode_fetch(frame: memoryview) -> Fetched:
    """Return the answer about the one partition that was asked for; ``frame`` follows the correlation id.

    Raises:
        Fatal: the answer does not follow the protocol.
    """
    try:
        return _decode(frame)
    except (struct.error, IndexError, ValueError) as error:
        raise Fatal(
            "a broker's answer to fetch is shorter than it says", seen=f"{len(frame)} bytes"
        ) from error


def _decode(frame: memoryview) -> Fetched:
    at = _skip_tags(frame, 0)
    _, error_code, _ = _ANSWER.unpack_from(frame, at)
    topics, at = _uvarint(frame, at + _ANSWER.size)
    if error_code or topics != 2:
        return Fetched(error_code or _NONE, _NONE, _NONE, _NONE, (), frame[:0])
    partitions, at = _uvarint(frame, at + 16)
    if partitions != 2:
        raise Fatal("a broker answers about other partitions than asked for", seen=str(partitions - 1))
    _, error_code, high_watermark, stable, log_start = _ANSWERED_PARTITION.unpack_from(frame, at)
    aborted, at = _aborted(frame, at + _ANSWERED_PARTITION.size)
    size, at = _uvarint(frame, at + _INT32.size)  # behind the preferred replica
    size = max(0, size - 1)
    if at + size > len(frame):
        raise IndexError
    return Fetched(error_code, high_watermark, stable, log_start, aborted, frame[at : at + size])


def _aborted(frame: memoryview, at: int) -> tuple[tuple[tuple[int, int], ...], int]:
    count, at = _uvarint(frame, at)
    found = []
    for _ in range(count - 1):  # null (0) and empty (1) both are none
        found.append(_ABORTED.unpack_from(frame, at))
        at = _skip_tags(frame, at + _ABORTED.size)
    return tuple(found), at


def _skip_tags(frame: memoryview, at: int) -> int:
    count, at = _uvarint(frame, at)
    for _ in range(count):
        _, at = _uvarint(frame, at)
        size, at = _uvarint(frame, at)
        at += size
    return at


def _uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < _UVARINT_BITS:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number that is too long")
