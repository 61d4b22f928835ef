"""Kafka's default partitioner: murmur2 over the key, for whole columns at once.

The same numbers as ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``; librdkafka's
default partitioner is another one (docs/facts.md).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)

Hashes = npt.NDArray[np.uint32]


def partitions_of(keys: Any, count: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key of a ``pa.binary()`` array without nulls, in ``range(count)``."""
    borders = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    content = keys.buffers()[2]
    data = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(1, np.uint8)
    hashes = murmur2(data, borders[:-1].astype(np.int64), np.diff(borders).astype(np.int64))
    return ((hashes & _POSITIVE) % np.uint32(count)).astype(np.int32)


def murmur2(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], size: npt.NDArray[np.int64]) -> Hashes:
    """Return the hash of every ``data[at : at + size]``; 32-bit arithmetic wraps around on purpose."""
    with np.errstate(over="ignore"):
        hashes: Hashes = np.uint32(_SEED) ^ size.astype(np.uint32)
        words = size // 4
        chosen = np.flatnonzero(words > 0)
        done = 0
        while chosen.size:
            first = at[chosen] + 4 * done
            word = _little_endian(data, first, 4) * _M
            word ^= word >> np.uint32(24)
            hashes[chosen] = (hashes[chosen] * _M) ^ (word * _M)
            done += 1
            chosen = chosen[words[chosen] > done]
        for left in (1, 2, 3):
            rows = np.flatnonzero(size % 4 == left)
            if rows.size:
                tail = _little_endian(data, at[rows] + 4 * words[rows], left)
                hashes[rows] = (hashes[rows] ^ tail) * _M
        hashes ^= hashes >> np.uint32(13)
        hashes *= _M
        hashes ^= hashes >> np.uint32(15)
    return hashes


def _little_endian(data: npt.NDArray[np.uint8], first: npt.NDArray[np.int64], count: int) -> Hashes:
    word: Hashes = data[first].astype(np.uint32)
    for index in range(1, count):
        word |= data[first + index].astype(np.uint32) << np.uint32(8 * index)
    return word
