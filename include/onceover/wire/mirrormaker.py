"""What MirrorMaker 2 writes about itself: source offsets (Connect's JSON) and offset syncs (binary).

Invariant: a record of another connector or another kind is told apart from a damaged one: the first is
none of ours, the second is an error.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any, Final, NamedTuple

from onceover.errors import NeedsOperator
from onceover.wire.codes import WireCode

_TASK_KEY: Final = re.compile(r"task-(.+)-([0-9]+)")
_FENCING_KEY: Final = re.compile(r"tasks-fencing-(.+)")
_CONNECTOR_KEY: Final = b"connector-"
_SOURCE_CLASS: Final = "MirrorSourceConnector"
_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")


class SourceOffset(NamedTuple):
    """A source partition's entry; ``offset`` is the last one copied, None where it was forgotten."""

    connector: str
    cluster: str
    topic: str
    partition: int
    offset: int | None


class SourceConnector(NamedTuple):
    """What a MirrorSourceConnector is told: its aliases of both clusters, and which has its offset syncs.

    ``syncs_on`` is ``source`` or ``target``, as MirrorMaker calls them, or what stands for one of them.
    """

    source: str
    target: str
    syncs_on: str


class OffsetSync(NamedTuple):
    """A record of ``topic`` (on the source) at ``upstream`` is at ``downstream`` on the target."""

    topic: str
    partition: int
    upstream: int
    downstream: int


def decode_source_offset(key: bytes, value: bytes | None) -> SourceOffset | None:
    """Return a MirrorSourceConnector's entry, None for another connector's.

    The key is ``["<connector>", {"cluster": ..., "partition": ..., "topic": ...}]``, its fields in any order.

    Raises:
        NeedsOperator: the entry's value is no offset.
    """
    match _json(key):
        case [str(connector), {"cluster": str(cluster), "topic": str(topic), "partition": int(number)}]:
            return SourceOffset(connector, cluster, topic, number, _offset(key, value))
        case _:
            return None


def decode_task(key: bytes, value: bytes | None) -> tuple[str, int] | None:
    """Return connector and the least number of tasks that a record of Connect's config topic tells of."""
    name = key.decode("utf-8", "replace")
    task, fencing = _TASK_KEY.fullmatch(name), _FENCING_KEY.fullmatch(name)
    if task is not None:
        return task.group(1), int(task.group(2)) + 1
    if fencing is not None and value is not None:
        fields = _json(value)
        counts = [n for n in fields.values() if type(n) is int] if isinstance(fields, dict) else []
        return fencing.group(1), max(counts, default=0)
    return None


def decode_source_connector(key: bytes, value: bytes | None) -> SourceConnector | None:
    """Return a MirrorSourceConnector's configuration out of a record of Connect's config topic.

    None for every other record, and for that of a connector that was deleted.
    """
    if value is None or not key.startswith(_CONNECTOR_KEY):
        return None
    match _json(value):
        case {"properties": {"connector.class": str(name), "source.cluster.alias": str(source), **others}}:
            # Connect takes a class's simple name, too.
            if name.rpartition(".")[2] != _SOURCE_CLASS:
                return None
            target = others.get("target.cluster.alias", "target")
            return SourceConnector(
                source, str(target), str(others.get("offset-syncs.topic.location", "source"))
            )
        case _:
            return None


def decode_offset_sync(key: bytes, value: bytes) -> OffsetSync:
    """Read a record of the offset-syncs topic.

    Raises:
        NeedsOperator: it is of another form.
    """
    try:
        (length,) = _LENGTH.unpack_from(key)
        topic = key[_LENGTH.size : _LENGTH.size + length].decode()
        (number,) = _PARTITION.unpack_from(key, _LENGTH.size + length)
        upstream, downstream = _OFFSETS.unpack(value)
    except (struct.error, UnicodeDecodeError) as error:
        raise _foreign("an offset sync", error) from error
    return OffsetSync(topic, number, upstream, downstream)


def _offset(key: bytes, value: bytes | None) -> int | None:
    if value is None:
        return None
    match _json(value):
        case {"offset": int(offset)}:
            return offset
        case None:
            return None
        case other:
            raise _foreign(f"a source offset under key {key!r}", type(other).__name__)


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _foreign(what: str, seen: object) -> NeedsOperator:
    return NeedsOperator(
        f"a record of MirrorMaker's own topics is not {what}",
        code=WireCode.MM2_UNREADABLE,
        seen=str(seen),
        resolve="check that the topic is MirrorMaker's; see docs/adopting-mirrormaker.md",
    )
