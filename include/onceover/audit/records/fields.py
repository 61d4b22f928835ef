"""What a record's bytes are made of: numbers, fields, headers.

Invariant: what does not lie within the bytes is an error, never a shorter field.
"""

from __future__ import annotations

from typing import Final

from onceover.audit.records.recordhash import Headers

_LAST_SHIFT: Final = 63


class MalformedError(Exception):
    """A number, length or count within a record that cannot be one."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint of up to 64 bits and where it ends.

    Raises:
        IndexError: the data end before.
        MalformedError: it is longer.
    """
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > _LAST_SHIFT:
            raise MalformedError
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), at + 1


def field(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return a key or value and where it ends; None is null.

    Raises:
        IndexError, MalformedError: as ``varint``.
    """
    length, at = varint(data, at)
    if length < 0:
        return None, at
    end = at + length
    if end > len(data):
        raise IndexError
    return data[at:end], end


def headers(data: bytes, at: int, count: int) -> tuple[Headers, int]:
    """Return so many headers and where they end.

    Raises:
        IndexError, MalformedError: as ``varint``.
    """
    found = []
    for _ in range(count):
        name, at = field(data, at)
        value, at = field(data, at)
        found.append((name or b"", value))
    return tuple(found), at
