"""What is written, cut into what one request, or one batch, may hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
OwnRecord: TypeAlias = tuple[bytes, bytes | None]


def portions(records: Iterable[OwnRecord], limit_bytes: int) -> Iterator[list[OwnRecord]]:
    """Yield keys and values in portions of at most ``limit_bytes``, or of one record."""
    return portions_of(records, limit_bytes, lambda record: len(record[0]) + len(record[1] or b""))


def portions_of(items: Iterable[T], limit_bytes: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield items in portions of at most ``limit_bytes``, or of one; ``size_of`` says what each takes."""
    portion: list[T] = []
    filled = 0
    for item in items:
        size = size_of(item)
        if portion and filled + size > limit_bytes:
            yield portion
            portion, filled = [], 0
        portion.append(item)
        filled += size
    if portion:
        yield portion
