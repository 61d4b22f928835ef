"""What a zstd stream asks of whoever reads it (RFC 8878): the window that has to be kept.

A decoder allocates and fills the window that a frame's head asks for, up to 128 MiB by default, however
little of the output is taken at once.
"""

from __future__ import annotations

import struct
from typing import Final

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_INT32 = struct.Struct("<I")
_SINGLE_SEGMENT: Final = 0x20
_CHECKSUM: Final = 0x04
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)
_RLE: Final = 1


def window_bytes(stream: memoryview) -> int:
    """Return the largest window that a frame of the stream asks for; 0 where it is no zstd stream.

    Only heads of frames and blocks are read. Damage ends the reading: the decoder will find it, too.
    """
    largest = at = 0
    try:
        while at < len(stream):
            window, at = _frame(stream, at)
            largest = max(largest, window)
    except (struct.error, IndexError):
        pass
    return largest


def _frame(stream: memoryview, at: int) -> tuple[int, int]:
    """Return the window of the frame at ``at``, and where it ends."""
    (magic,) = _INT32.unpack_from(stream, at)
    if magic in _SKIPPABLE:
        return 0, at + 8 + _INT32.unpack_from(stream, at + 4)[0]
    if magic != _MAGIC:
        raise IndexError
    descriptor = stream[at + 4]
    at += 5
    window = 0
    if not descriptor & _SINGLE_SEGMENT:
        exponent, mantissa = divmod(stream[at], 8)
        window = (1 << 10 + exponent) // 8 * (8 + mantissa)
        at += 1
    at += _DICTIONARY_BYTES[descriptor & 3]
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if descriptor & _SINGLE_SEGMENT else 0)
    if descriptor & _SINGLE_SEGMENT:
        # The content itself is the window.
        window = int.from_bytes(stream[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    return window, _behind_blocks(stream, at + size_bytes) + (4 if descriptor & _CHECKSUM else 0)


def _behind_blocks(stream: memoryview, at: int) -> int:
    while True:
        head = stream[at] | stream[at + 1] << 8 | stream[at + 2] << 16
        at += 3 + (1 if head >> 1 & 3 == _RLE else head >> 3)
        if head & 1:
            return at
