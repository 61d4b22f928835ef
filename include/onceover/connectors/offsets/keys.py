"""Keys and values of an offsets topic, as bytes and as what they say. Pure.

Invariant: nothing here makes a key out of parsed JSON: the same partition written in another order of fields
is a key that no task looks up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np

from onceover.connectors.model import OffsetKey
from onceover.connectors.offsets.ordering import order, position
from onceover.handlers.murmur2 import murmur2

_POSITIVE: Final = 0x7FFFFFFF
SENTINEL_VALUE: Final = b'{"migrated":true}'
# HashMap's table: doubled when more than three quarters full.
_TABLE: Final = 16
_NAMED: Final = 3
_LONGEST_POSITION: Final = 120


def parse_key(key: bytes | None) -> OffsetKey | None:
    """Return what a key says, None when it is neither an offset's nor a sentinel's."""
    match parsed_json(key):
        case [str(connector)]:
            return OffsetKey(connector, None)
        case [str(connector), partition]:
            return OffsetKey(connector, json.dumps(partition, ensure_ascii=False))
        case _:
            return None


def sentinel_key(connector: str) -> bytes:
    """Return the key of KIP-618's record that says "migrated, and there was nothing"."""
    return json.dumps([connector], ensure_ascii=False, separators=(",", ":")).encode()


def partition_of(key: bytes, count: int) -> int:
    """Return the partition that Kafka's default partitioner gives a key, in ``range(count)``.

    A key anywhere else is in two partitions after the next commit, and which of them a worker believes at
    its start is left to chance.
    """
    data = np.frombuffer(key or b"\0", np.uint8)
    start, size = np.zeros(1, np.int64), np.array([len(key)], np.int64)
    return (int(murmur2(data, start, size)[0]) & _POSITIVE) % count


def holds_null(key: bytes, value: bytes | None) -> bool:
    """Tell whether a record that is no tombstone says null where Connect wants a map.

    Null fields inside an offset are a connector's own business.
    """
    if value is None:
        return False
    parsed = parsed_json(key)
    partition = parsed[1] if isinstance(parsed, list) and len(parsed) > 1 else parsed
    return not isinstance(partition, dict) or not isinstance(parsed_json(value), dict)


def in_snapshot(value: bytes) -> bool:
    """Tell whether an offset was written in the middle of a first snapshot, as Debezium says it."""
    fields = parsed_json(value)
    if not isinstance(fields, dict):
        return False
    if "snapshot_completed" in fields:
        return fields["snapshot_completed"] is False
    # Until 2.x: true, or "INITIAL" since 3.0; null or missing once it streams.
    return bool(fields.get("snapshot")) and fields.get("last_snapshot_record") is not True


def snapshot_state(value: bytes) -> str | None:
    """Return how far a snapshot is, as Debezium says it in an offset; None where nothing is said of one."""
    fields = parsed_json(value)
    if not isinstance(fields, dict):
        return None
    if in_snapshot(value):
        return "running"
    if fields.get("incremental_snapshot_collections"):
        # Asked for by a signal; it goes on where it was.
        return "incremental, under way"
    return "through" if "snapshot_completed" in fields or "snapshot" in fields else None


def is_unusual_order(key: bytes) -> bool:
    """Tell whether the workers' REST API would write this partition under another key.

    It takes the fields through a ``java.util.HashMap``, whose order depends on the names' hashes only.
    """
    parsed = parsed_json(key)
    if not (isinstance(parsed, list) and len(parsed) == 2 and isinstance(parsed[1], dict)):
        return False
    names = list(parsed[1])
    return names != hash_map_order(names)


def hash_map_order(names: Sequence[str]) -> list[str]:
    """Return names in the order in which a ``java.util.HashMap`` that was filled with them lists them."""
    size = _TABLE
    while len(names) > size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _bucket(name, size))


class OffsetMove(StrEnum):
    """How an offset stands to an earlier one of its key; ``ENDED`` where a tombstone stands in its place."""

    SAME = "same"
    FORWARD = "forward"
    CHANGED = "changed"
    ENDED = "ended"
    BACK = "back"


def compare(before: bytes, after: bytes | None) -> OffsetMove:
    """Return how an offset has moved.

    ``BACK`` when it is gone, or lies before the other; ``CHANGED`` where its shape has no order that is known
    (``connectors.offsets.ordering``).
    """
    if before == after:
        return OffsetMove.SAME
    if after is None or holds_null(b"[0,{}]", after):
        return OffsetMove.BACK
    first, second = parsed_json(before), parsed_json(after)
    step = order(first, second) if isinstance(first, dict) and isinstance(second, dict) else None
    return {-1: OffsetMove.BACK, 1: OffsetMove.FORWARD}.get(step or 0, OffsetMove.CHANGED)


def is_place(value: bytes | None) -> bool:
    """Tell whether an offset is a place in an order that is known: who writes it again stands there.

    The very first place is none: who begins anew stands there, too, as MirrorMaker's heartbeats ever do.
    """
    fields = parsed_json(value)
    return isinstance(fields, dict) and order(fields, fields) == 0 and any(position(fields).values())


def step_of(before: bytes, after: bytes | None) -> tuple[str, str]:
    """Return two offsets of a key as people know them: by their position where that is known, in short."""
    return _position(before), _position(after)


def _position(value: bytes | None) -> str:
    fields = parsed_json(value)
    if not isinstance(fields, dict):
        return "-"
    text = ", ".join(f"{name} {field}" for name, field in position(fields).items())
    return text if len(text) <= _LONGEST_POSITION else f"{text[:_LONGEST_POSITION]} ..."


def differing(first: Mapping[bytes, bytes], second: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the keys that are not the same on both sides, in order."""
    return sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))


def shown(key: bytes) -> str:
    """Return a key as a person reads it; partitions name files, tables, topics: no secrets."""
    return key.decode("utf-8", "backslashreplace")


def named(keys: Iterable[bytes]) -> str:
    """Return the first keys as people read them, and how many more there are."""
    some = sorted(keys)
    more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
    return ", ".join(map(shown, some[:_NAMED])) + more


def _bucket(name: str, size: int) -> int:
    number = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFFFFFF
    return (number ^ number >> 16) & (size - 1)


def parsed_json(text: bytes | None) -> Any:
    """Return what a key or value says as JSON, None where it is none."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
