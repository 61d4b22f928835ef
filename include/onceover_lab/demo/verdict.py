"""What the judge looks at and what it concludes: records as digests, logs of them, findings, the verdict.

A log is the visible records of one partition, in order, each reduced to four field digests (key, value,
headers, timestamp). Pure: how logs are read is in ``judge``, how they are compared in ``compare``.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

FIELDS = ("key", "value", "headers", "timestamp")
_FIELD_BYTES = 8
DIGEST_BYTES = _FIELD_BYTES * len(FIELDS)
_NULL = b"\xff" * _FIELD_BYTES
_NO_HEADERS = b"\x00" * _FIELD_BYTES

# Examples kept per kind and partition: enough to start an investigation, few enough to print.
EXAMPLES = 3

Headers = Sequence[tuple[str, bytes | None]]


class Partition(NamedTuple):
    """A partition as the judge names it."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


class CopyFaultKind(StrEnum):
    """Everything that may be wrong with a copied partition."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    ALTERED = "altered"
    MISROUTED = "misrouted"
    ABORTED_VISIBLE = "aborted_visible"
    PHANTOM = "phantom"


def _hashed(data: bytes | None) -> bytes:
    return _NULL if data is None else hashlib.blake2b(data, digest_size=_FIELD_BYTES).digest()


def _encode_headers(headers: Headers) -> bytes:
    out = bytearray()
    for name, value in headers:
        encoded = name.encode()
        out += len(encoded).to_bytes(4, "big") + encoded
        out += b"\xff" * 4 if value is None else len(value).to_bytes(4, "big") + value
    return bytes(out)


def digest_record(
    key: bytes | None, value: bytes | None, headers: Headers | None, timestamp_ms: int
) -> bytes:
    """Return the 32 bytes that stand for a record; null and empty differ, header order and repeats count."""
    return b"".join(
        (
            _hashed(key),
            _hashed(value),
            _hashed(_encode_headers(headers)) if headers else _NO_HEADERS,
            timestamp_ms.to_bytes(_FIELD_BYTES, "big", signed=True),
        )
    )


def fields_of(digest: bytes) -> tuple[bytes, ...]:
    """Return the four field digests, in the order of ``FIELDS``."""
    return tuple(digest[at : at + _FIELD_BYTES] for at in range(0, DIGEST_BYTES, _FIELD_BYTES))


@dataclass(slots=True)
class Log:
    """The visible records of one partition, in log order: 40 bytes of memory a record."""

    partition: Partition
    offsets: array[int] = field(default_factory=lambda: array("q"))
    digests: bytearray = field(default_factory=bytearray)
    # True when the broker stamped records itself (message.timestamp.type=LogAppendTime).
    broker_stamped: bool = False
    notes: list[str] = field(default_factory=list)

    def append(self, offset: int, digest: bytes) -> None:
        self.offsets.append(offset)
        self.digests += digest

    def __len__(self) -> int:
        return len(self.offsets)

    def items(self) -> list[bytes]:
        """Return the digests one by one."""
        return [
            bytes(self.digests[at : at + DIGEST_BYTES]) for at in range(0, len(self.digests), DIGEST_BYTES)
        ]

    def without_timestamps(self) -> Log:
        """Return a copy in which all timestamps are equal."""
        blank = bytes(_FIELD_BYTES)
        digests = b"".join(item[: 3 * _FIELD_BYTES] + blank for item in self.items())
        return Log(self.partition, self.offsets, bytearray(digests), self.broker_stamped, self.notes)


class CopyFault(NamedTuple):
    """One record that is not as it should be; an offset is None where the record does not exist."""

    kind: CopyFaultKind
    source: Partition
    source_offset: int | None
    target: Partition
    target_offset: int | None
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        source = "" if self.source_offset is None else f" source {self.source} offset {self.source_offset}"
        target = "" if self.target_offset is None else f" target {self.target} offset {self.target_offset}"
        changed = f" ({', '.join(self.fields)})" if self.fields else ""
        return f"{self.kind}{changed}:{source}{target}"


@dataclass(slots=True)
class PartitionVerdict:
    """What was found in one pair of partitions."""

    source: Partition
    target: Partition
    source_records: int
    target_records: int
    counts: Counter[CopyFaultKind] = field(default_factory=Counter)
    altered_fields: Counter[str] = field(default_factory=Counter)
    examples: list[CopyFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.counts

    def add(self, finding: CopyFault) -> None:
        self.counts[finding.kind] += 1
        self.altered_fields.update(finding.fields)
        if self.counts[finding.kind] <= EXAMPLES:
            self.examples.append(finding)

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.source.topic,
            "partition": self.source.number,
            "target_topic": self.target.topic,
            "source_records": self.source_records,
            "target_records": self.target_records,
            **{kind.value: self.counts[kind] for kind in CopyFaultKind},
            "altered_fields": dict(self.altered_fields),
            "examples": [str(example) for example in self.examples],
            "notes": self.notes,
        }


@dataclass(frozen=True, slots=True)
class CopyVerdict:
    """The comparison of all partitions."""

    partitions: tuple[PartitionVerdict, ...]

    @property
    def ok(self) -> bool:
        return all(partition.ok for partition in self.partitions)

    @property
    def source_records(self) -> int:
        return sum(partition.source_records for partition in self.partitions)

    @property
    def target_records(self) -> int:
        return sum(partition.target_records for partition in self.partitions)

    def count(self, kind: CopyFaultKind) -> int:
        return sum(partition.counts[kind] for partition in self.partitions)

    def explain(self) -> str:
        """Say in words what was compared and name the first offending records of every kind."""
        head = (
            f"{self.source_records} records in {len(self.partitions)} partitions of the source, "
            f"{self.target_records} on the target: "
        )
        if self.ok:
            lines = [head + "each once, in order, unchanged"]
        else:
            found = ", ".join(f"{self.count(kind)} {kind}" for kind in CopyFaultKind if self.count(kind))
            lines = [head + found]
        for partition in self.partitions:
            lines += [f"  {example}" for example in partition.examples]
            lines += [f"  note: {partition.source}: {note}" for note in partition.notes]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "source_records": self.source_records,
            "target_records": self.target_records,
            **{kind.value: self.count(kind) for kind in CopyFaultKind},
            "partitions": [partition.as_dict() for partition in self.partitions],
        }
