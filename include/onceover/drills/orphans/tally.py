"""What is met in a stretch of a log: how much counts, and the transactions around it. Pure."""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from onceover.drills.orphans.torn import SpanState, TransactionSpan
from onceover.wire.batches.batch import BatchHeader
from onceover.wire.batches.records import DecodedRecord, encode_body

_PLACE: Final = struct.Struct(">qq")


@dataclass
class OrphanTally:
    """Counts records, in their order, and what is in them.

    Attributes:
        first: offset of the first record; ``last`` of the last one; None without any.
        first_ms: the earliest timestamp; ``last_ms`` the latest one.
        content_bytes: keys, values and headers, as they are in the log once it is decompressed.
    """

    records: int = 0
    first: int | None = None
    last: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    content_bytes: int = 0
    _hash: Any = field(default_factory=hashlib.sha256, repr=False, compare=False)

    def add(self, record: DecodedRecord) -> None:
        """Count a record."""
        body = encode_body(record.key, record.value, record.headers)
        self.records += 1
        self.first = record.offset if self.first is None else self.first
        self.last = record.offset
        at_ms = record.timestamp
        self.first_ms = at_ms if self.first_ms is None else min(self.first_ms, at_ms)
        self.last_ms = at_ms if self.last_ms is None else max(self.last_ms, at_ms)
        self.content_bytes += len(body)
        self._hash.update(_PLACE.pack(record.offset, at_ms))
        self._hash.update(len(body).to_bytes(8))
        self._hash.update(body)

    @property
    def digest(self) -> str:
        """Of offset, timestamp, key, value and headers of all records, in their order."""
        return str(self._hash.hexdigest())


class MetBatch(NamedTuple):
    """A batch of a transaction, or the marker of one, as a reader of committed records meets it."""

    header: BatchHeader
    aborted: bool


class SpanReader:
    """Makes spans of batches and markers, met in the order of a log. Not thread-safe.

    Args:
        most: how many spans are kept; others are left out, and ``is_short`` says so.
        newest: keep those that end last, and not those that end first.
    """

    def __init__(self, most: int, *, newest: bool = False) -> None:
        self._most, self._newest = most, newest
        self._begun: dict[int, TransactionSpan] = {}
        self._spans: deque[TransactionSpan] = deque()
        # Of a producer that was met first by a marker: its transaction began before this stretch.
        self._bare: dict[int, BatchHeader] = {}
        self._known: set[int] = set()
        self.is_short = False

    def feed(self, met: MetBatch) -> None:
        """Take the next batch."""
        header = met.header
        if header.is_control:
            begun = self._begun.pop(header.producer_id, None)
            if begun is not None:
                self._keep(_ended(begun, header))
            elif header.producer_id not in self._known:
                self._bare[header.producer_id] = header
        elif header.is_transactional and header.count:
            begun = self._begun.get(header.producer_id)
            self._begun[header.producer_id] = TransactionSpan(
                header.producer_id,
                header.producer_epoch,
                header.base_offset if begun is None else begun.first,
                header.last_offset,
                SpanState.ABORTED if met.aborted else SpanState.COMMITTED,
                first_ms=header.base_timestamp if begun is None else begun.first_ms,
            )
        self._known.add(header.producer_id)

    def spans(self) -> list[TransactionSpan]:
        """Return them in the order of their ends; last those whose end lies behind the stretch."""
        return [*self._spans, *self._begun.values()]

    def behind(self, before: SpanReader) -> list[TransactionSpan]:
        """Return the spans of the stretch that ends where this one begins, and of this one."""
        begun = dict(before._begun)
        joined = [_ended(begun.pop(pid), header) for pid, header in self._bare.items() if pid in begun]
        mine = []
        for span in self.spans():
            early = begun.pop(span.producer_id, None)
            first = span if early is None else span._replace(first=early.first, first_ms=early.first_ms)
            mine.append(first)
        # The end of what is left lies behind this stretch, too.
        return [*before._spans, *joined, *mine, *begun.values()]

    def _keep(self, span: TransactionSpan) -> None:
        if len(self._spans) < self._most:
            self._spans.append(span)
            return
        self.is_short = True
        if self._newest:
            self._spans.popleft()
            self._spans.append(span)


def _ended(begun: TransactionSpan, marker: BatchHeader) -> TransactionSpan:
    return begun._replace(marker_ms=marker.max_timestamp, marker_epoch=marker.producer_epoch)
