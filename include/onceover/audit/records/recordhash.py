"""A record, and the hash that stands for it.

Invariant: two records have the same hash exactly when a reader could not tell them apart. The encoding
below is the audit's own; the replicator never computes it (G9).
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

HASH_BYTES: Final = 16
# Names are bytes as they are on the wire: two names that are no UTF-8 must not become the same text.
Headers: TypeAlias = tuple[tuple[bytes, bytes | None], ...]

_LENGTH = struct.Struct("<q")
_OUTLINE = struct.Struct("<qqqq")
_NULL: Final = _LENGTH.pack(-1)
# Takes the place of a timestamp that is not compared (a target that stamps records itself).
_UNTIMED: Final = -1


class AuditedRecord(NamedTuple):
    """A record as a reader of committed records sees it.

    Args:
        offset: on its side.
        key: None is null, which differs from empty; ``value`` likewise.
        value: see ``key``.
        headers: in their order, repeated names included.
        timestamp_ms: as readers see it (of the batch, with LogAppendTime).
        hash: of everything but the offset, 16 bytes: ``record_hash``.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    hash: bytes


def encode_field(data: bytes | None) -> bytes:
    """Return a key or value with its length in front, which tells null from empty."""
    return _NULL if data is None else _LENGTH.pack(len(data)) + data


def encode_headers(headers: Headers) -> bytes:
    """Return headers such that order, repeats, null and empty all tell."""
    parts = [_LENGTH.pack(len(headers))]
    for name, value in headers:
        parts += (encode_field(name), encode_field(value))
    return b"".join(parts)


def field_hash(data: bytes | None) -> bytes:
    """Return 16 bytes that stand for a key or a value; null and empty differ."""
    return blake2b(encode_field(data), digest_size=HASH_BYTES).digest()


def record_hash(key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int) -> bytes:
    """Return 16 bytes that stand for a record's content.

    Two records have the same exactly when key, value, headers (order, repeats) and timestamp are equal,
    but for a chance of 2**-64 among 2**32 records (blake2b of 128 bits over lengths and bytes).
    """
    # All lengths first, so that no two ways to cut the same bytes are the same record.
    outline = _OUTLINE.pack(
        timestamp_ms,
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        len(headers),
    )
    encoded = b"".join((outline, key or b"", value or b"", encode_headers(headers) if headers else b""))
    return blake2b(encoded, digest_size=HASH_BYTES).digest()


def make_rec(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    timestamp_ms: int,
    *,
    timed: bool = True,
) -> AuditedRecord:
    """Return a record with its hash; with ``timed`` False the hash leaves the timestamp out."""
    content = record_hash(key, value, headers, timestamp_ms if timed else _UNTIMED)
    return AuditedRecord(offset, key, value, headers, timestamp_ms, content)
