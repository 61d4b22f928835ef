"""A record as a handler of the per-record form sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from onceover.errors import UsageError
from onceover.handlers.codes import HandlerCode

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

_MAY_CHANGE = frozenset({"partition", "timestamp_ms", "key", "value", "headers"})


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the source; also what a handler returns.

    Args:
        topic: of the source; the copy goes to its counterpart, so it cannot be changed.
        partition: of the source; in a returned record, of the target.
        offset: of the source; it says which record a returned one comes from and cannot be changed.
        timestamp_ms: as readers of the source see it.
        key: None is null, which differs from empty; ``value`` likewise.
        headers: in their order, repeated names included. A name that is no UTF-8 comes with Python's
            ``surrogateescape`` and goes back as the bytes it was.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def replace(self, **changes: Any) -> Record:
        """Return the record with other contents: partition, timestamp_ms, key, value or headers.

        Raises:
            UsageError: topic or offset, which a handler cannot change.
        """
        fixed = sorted(changes.keys() - _MAY_CHANGE)
        if fixed:
            raise UsageError(
                f"a handler cannot change {', '.join(fixed)} of a record",
                code=HandlerCode.HANDLER_OUTPUT,
                expected=f"one of {', '.join(sorted(_MAY_CHANGE))}",
            )
        return replace(self, **changes)

    def header(self, name: str) -> bytes | None:
        """Return the last value of a header, as Kafka's ``lastHeader`` does; None when there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)
