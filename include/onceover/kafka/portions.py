"""Records of our own, cut into what one request, or one batch, may hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

OwnRecord: TypeAlias = tuple[bytes, bytes | None]


def portions(records: Iterable[OwnRecord], limit_bytes: int) -> Iterator[list[OwnRecord]]:
    """Yield keys and values in portions of at most ``limit_bytes``, or of one record."""
    portion: list[OwnRecord] = []
    filled = 0
    for key, value in records:
        size = len(key) + len(value or b"")
        if portion and filled + size > limit_bytes:
            yield portion
            portion, filled = [], 0
        portion.append((key, value))
        filled += size
    if portion:
        yield portion
