"""Records as numbers: what the comparer keeps of each record, 56 bytes, whatever its payload.

Invariant: two records have equal ``hash_high`` and ``hash_low`` exactly when their contents are
equal (``audit.records.recordhash``). The other hashes have 64 bits and only tell which field of two
records differs; they never make a difference or hide one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from onceover.audit.model import Field
from onceover.audit.records.recordhash import AuditedRecord, encode_headers, field_hash

DTYPE: Final = np.dtype(
    [
        ("offset", "<i8"),
        ("hash_high", "<u8"),
        ("hash_low", "<u8"),
        ("key", "<u8"),
        ("value", "<u8"),
        ("headers", "<u8"),
        ("timestamp", "<i8"),
    ]
)
Sketch: TypeAlias = npt.NDArray[Any]  # of DTYPE, in offset order
Ids: TypeAlias = npt.NDArray[np.int64]

_NULL_KEY: Final = int.from_bytes(field_hash(None)[:8], "little")
_NO_HEADERS: Final = int.from_bytes(field_hash(encode_headers(()))[:8], "little")
_FIELDS: Final = (Field.KEY, Field.VALUE, Field.HEADERS, Field.TIMESTAMP)
FIELD_COLUMNS: Final = ("key", "value", "headers", "timestamp")
# Many records of one piece of work, so that Python's lists never hold a whole range.
_CHUNK: Final = 1 << 14


class RecordMark(NamedTuple):
    """One record's hashes; ``content`` is the whole record's."""

    content: int
    key: int
    value: int
    headers: int
    timestamp_ms: int

    def __str__(self) -> str:
        return (
            f"{self.content:032x}:{self.key:016x}:{self.value:016x}:{self.headers:016x}:{self.timestamp_ms}"
        )

    @property
    def fields(self) -> tuple[int, int, int, int]:
        """In the order of ``Field``."""
        return self[1:]

    def tells(self, fields: Collection[int]) -> bool:
        """Return True when a key or a value is among these numbers of ``Field``, and is not null."""
        return (0 in fields and self.key != _NULL_KEY) or (1 in fields and self.value != _NULL_KEY)


def telling(numbers: Sketch) -> npt.NDArray[np.bool_]:
    """Return for each record which of its fields say anything, in the order of ``FIELD_COLUMNS``.

    No key, no value, no headers and no timestamp are what unrelated records share.
    """
    return np.column_stack(
        [
            numbers["key"] != _NULL_KEY,
            numbers["value"] != _NULL_KEY,
            numbers["headers"] != _NO_HEADERS,
            numbers["timestamp"] >= 0,
        ]
    )


def parse_mark(text: str) -> RecordMark:
    """Return the mark that ``str`` wrote."""
    content, key, value, headers, timestamp_ms = text.split(":")
    return RecordMark(int(content, 16), int(key, 16), int(value, 16), int(headers, 16), int(timestamp_ms))


def differing(one: RecordMark, other: RecordMark) -> str:
    """Return the names of the fields that differ, joined by a comma."""
    pairs = zip(_FIELDS, one.fields, other.fields, strict=True)
    return ",".join(str(name) for name, mine, theirs in pairs if mine != theirs)


def sketch(records: Iterable[AuditedRecord], *, timed: bool = True) -> Sketch:
    """Return the numbers of records; payloads are let go one by one.

    Args:
        records: decoded with the same ``timed``.
        timed: False when timestamps are not compared.
    """
    chunks = []
    rows: list[tuple[int, ...]] = []
    for record in records:
        rows.append(_row(record, timed))
        if len(rows) == _CHUNK:
            chunks.append(np.array(rows, DTYPE))
            rows = []
    chunks.append(np.array(rows, DTYPE))
    return np.concatenate(chunks)


def mark_at(numbers: Sketch, index: int) -> RecordMark:
    """Return the hashes of one record."""
    return _mark(numbers[index].item())


def identities(*sketches: Sketch) -> Iterator[Ids]:
    """Yield one array for each sketch, with equal numbers exactly where contents are equal."""
    count = sum(len(each) for each in sketches)
    high = np.concatenate([each["hash_high"] for each in sketches])
    low = np.concatenate([each["hash_low"] for each in sketches])
    order = np.lexsort((low, high))
    new = np.ones(count, bool)
    new[1:] = (high[order][1:] != high[order][:-1]) | (low[order][1:] != low[order][:-1])
    ids = np.empty(count, np.int64)
    ids[order] = np.cumsum(new) - 1
    begin = 0
    for each in sketches:
        yield ids[begin : begin + len(each)]
        begin += len(each)


def is_tombstone(numbers: Sketch) -> npt.NDArray[np.bool_]:
    """Return which records have no value."""
    found: npt.NDArray[np.bool_] = numbers["value"] == _NULL_KEY
    return found


def key_number(key: bytes | None) -> int:
    """Return a key as the column ``key`` has it."""
    return _short(key)


def _mark(row: tuple[int, ...]) -> RecordMark:
    _, high, low, key, value, headers, timestamp_ms = row
    return RecordMark(high << 64 | low, key, value, headers, timestamp_ms)


def _row(record: AuditedRecord, timed: bool) -> tuple[int, ...]:
    content = record.hash
    return (
        record.offset,
        int.from_bytes(content[:8], "big"),
        int.from_bytes(content[8:], "big"),
        _short(record.key),
        _short(record.value),
        _NO_HEADERS if not record.headers else _short(encode_headers(record.headers)),
        record.timestamp_ms if timed else -1,
    )


def _short(data: bytes | None) -> int:
    return _NULL_KEY if data is None else int.from_bytes(field_hash(data)[:8], "little")
