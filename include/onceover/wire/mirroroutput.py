"""Records as MirrorMaker 2 writes them about offsets and itself: key and value bytes. Pure.

Formats of Kafka 4.x (big-endian; STRING is an int16 length and UTF-8), which Kafka's ``MirrorClient`` and
MirrorMaker's own tasks read. No text here can be too long for its length field: the broker keeps
group names and metadata in fields of the same size.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from onceover.model import TopicPartition

Pair: TypeAlias = tuple[bytes, bytes]

_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")
_TIMESTAMP: Final = struct.Struct(">q")
# Of checkpoints and heartbeats; offset syncs have none.
_VERSION: Final = struct.pack(">h", 0)


def encode_checkpoint(
    group: str, target: TopicPartition, upstream: int, downstream: int, metadata: str
) -> Pair:
    """Return the record that says: ``group`` is at ``upstream`` there, which is ``downstream`` here.

    Args:
        target: partition under its name on the target.
        metadata: what the group committed beside its offset; empty if nothing.
    """
    key = _string(group) + _partition(target)
    return key, _VERSION + _OFFSETS.pack(upstream, downstream) + _string(metadata)


def encode_offset_sync(source: TopicPartition, upstream: int, downstream: int) -> Pair:
    """Return the record that says: the record at ``upstream`` of the source is at ``downstream`` here."""
    return _partition(source), _OFFSETS.pack(upstream, downstream)


def encode_heartbeat(source_alias: str, target_alias: str, at_ms: int) -> Pair:
    """Return the sign of life of a flow between two clusters at a time."""
    return _string(source_alias) + _string(target_alias), _VERSION + _TIMESTAMP.pack(at_ms)


def _partition(tp: TopicPartition) -> bytes:
    return _string(tp.topic) + _PARTITION.pack(tp.partition)


def _string(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data
