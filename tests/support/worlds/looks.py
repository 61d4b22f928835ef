"""Two logs in memory, looked at as the audit's checks do."""

from __future__ import annotations

from collections.abc import Iterable

from onceover.audit.model import Side
from onceover.audit.records.recordhash import AuditedRecord, make_rec
from onceover.model import TopicPartition


def rec(offset: int, text: str) -> AuditedRecord:
    """Return a record with ``text`` as its value."""
    return make_rec(offset, b"k", text.encode(), (), 1_700_000_000_000)


class Logs:
    """What a reader of committed records sees on both sides; the same for every partition."""

    def __init__(self, source: Iterable[tuple[int, str]], target: Iterable[tuple[int, str]]) -> None:
        self.start = {Side.SOURCE: 0, Side.TARGET: 0}
        self._records = {
            Side.SOURCE: [rec(*each) for each in source],
            Side.TARGET: [rec(*each) for each in target],
        }

    def first(self, side: Side, tp: TopicPartition, offset: int) -> AuditedRecord | None:
        """Return the first record at or after ``offset``."""
        return next((each for each in self._records[side] if each.offset >= offset), None)

    def begins(self, side: Side, tp: TopicPartition) -> int:
        """Return the first offset of the log."""
        return self.start[side]

    def last_before(self, side: Side, tp: TopicPartition, offset: int) -> AuditedRecord | None:
        """Return the last record before ``offset``."""
        return next((each for each in reversed(self._records[side]) if each.offset < offset), None)
