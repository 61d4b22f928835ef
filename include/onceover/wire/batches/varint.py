"""Variable-length integers: zigzag as in record batches (KIP-98) and plain as in the offset map.

Invariant: what is decoded never reaches past the buffer, and never exceeds 64 bits.
"""

from __future__ import annotations

from typing import Final

from onceover.wire.batches.batch import Buffer

_MAX_BYTES: Final = 10
_MASK_64: Final = (1 << 64) - 1
_SIGN_64: Final = 1 << 63


class MalformedVarint(ValueError):
    """No integer starts here: the buffer ends first, or more than 64 bits follow.

    Never leaves the wire package: the caller knows what it was reading and raises its own error.
    """


def wrap_int64(value: int) -> int:
    """Return ``value`` as Java's 64-bit arithmetic would leave it."""
    return ((value + _SIGN_64) & _MASK_64) - _SIGN_64


def encode_uvarint(value: int) -> bytes:
    """Return a number in ``range(2**64)``, seven bits a byte, lowest first.

    Raises:
        ValueError: negative, or above 64 bits.
    """
    if value >> 64:
        raise ValueError(f"no unsigned 64-bit number: {value}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buffer: Buffer, at: int) -> tuple[int, int]:
    """Return the number at ``at`` and the position after it.

    Raises:
        MalformedVarint: the buffer ends inside it, or it exceeds 64 bits.
    """
    try:
        value = buffer[at]
        if value < 0x80:
            return value, at + 1
        # Most lengths and deltas take two bytes, and this is called for each record: no loop for them.
        byte = buffer[at + 1]
        if byte < 0x80:
            return value & 0x7F | byte << 7, at + 2
        return _decode_long(buffer, at)
    except IndexError as error:
        raise MalformedVarint(f"the buffer ends in the varint at byte {at}") from error


def _decode_long(buffer: Buffer, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_BYTES):
        byte = buffer[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value > _MASK_64:
                break
            return value, at + index + 1
    raise MalformedVarint(f"the varint at byte {at} exceeds 64 bits")


def zigzag(value: int) -> int:
    """Return the unsigned number that stands for a signed 64-bit one: 0, -1, 1, -2 become 0, 1, 2, 3.

    Raises:
        ValueError: outside the signed 64-bit range.
    """
    if not -_SIGN_64 <= value < _SIGN_64:
        raise ValueError(f"no signed 64-bit number: {value}")
    return (value << 1) ^ (value >> 63)


def unzigzag(value: int) -> int:
    """Return the signed number that :func:`zigzag` made into ``value``."""
    return (value >> 1) ^ -(value & 1)


def encode_varint(value: int) -> bytes:
    """Return a signed 64-bit number as Kafka's records hold it.

    Raises:
        ValueError: outside the signed 64-bit range.
    """
    return encode_uvarint(zigzag(value))


def decode_varint(buffer: Buffer, at: int) -> tuple[int, int]:
    """Return the signed number at ``at`` and the position after it.

    Raises:
        MalformedVarint: the buffer ends inside it, or it exceeds 64 bits.
    """
    value, after = decode_uvarint(buffer, at)
    return unzigzag(value), after
