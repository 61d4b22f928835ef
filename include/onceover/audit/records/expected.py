"""What the target should hold of a flow with a handler: the handler is applied again, to the source.

Invariant: the handler is called as the flow calls it (docs/handlers.md), on the audit's own decoding of the
source, and nothing of how the copy took it apart or put it together is used. A handler is a function of the
record; one that is not is named by what differs.

Foreign code runs here. What it raises becomes ``HandlerFailed`` with the exception's type and place; its text
may quote a record and is never shown (G10). So does a call that does not come back: its record was skipped,
as the flow had advised, and is still on the source.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from onceover.audit.records.recordhash import AuditedRecord, make_rec
from onceover.handlers.calling import CallFailed, NotBack, attempt, limited, told
from onceover.handlers.load import Handler
from onceover.handlers.record import Record
from onceover.model import TopicPartition

log = logging.getLogger(__name__)

# The columns that docs/handlers.md promises.
_PAIR: Final = pa.struct([("key", pa.binary()), ("value", pa.binary())])
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(_PAIR)),
        ("timestamp", pa.int64()),
        ("partition", pa.int32()),
        ("source_offset", pa.int64()),
    ]
)
# Records of one call of a handler of columns: enough to make the call cheap. And their bytes: a record more.
_TOGETHER: Final = 2_000
_TOGETHER_BYTES: Final = 4 << 20
# Records that a handler of single ones is given under one alarm: to set it costs as much as the call. Few, so
# that a slow handler gets through them in time.
_UNDER_ONE_ALARM: Final = 100


class Expected(NamedTuple):
    """A record that the target should hold; ``record.offset`` is of the source record it comes from."""

    partition: int
    record: AuditedRecord


class HandlerFailed(NamedTuple):
    """The handler fails on the source's record at this offset; ``message`` quotes nothing."""

    offset: int
    message: str


Outcome: TypeAlias = Expected | HandlerFailed


class HandlerReplay(NamedTuple):
    """How one source partition goes through the handler.

    Args:
        handler: loaded anew for the audit.
        source: whose records these are.
        target_partitions: of the target topic.
        timed: False when timestamps are not compared.
    """

    handler: Handler
    source: TopicPartition
    target_partitions: int
    timed: bool = True

    def outcomes(self, records: Iterable[AuditedRecord]) -> Generator[Outcome]:
        """Yield what the handler makes of records, in their order; it has the partition for so long."""
        with self._held() as refusal:
            for together in _calls(records, _TOGETHER if self.handler.vectorised else _UNDER_ONE_ALARM):
                if refusal is None:
                    yield from self._in_time(together)
                else:
                    yield from (HandlerFailed(each.offset, refusal) for each in together)

    @contextmanager
    def _held(self) -> Iterator[str | None]:
        """Have the handler's listener told of the partition; yield why it does not take it."""
        seen = told(self.handler.gained, [self.source])
        if seen is not None:
            yield f"partitions_gained fails: {seen}"
            return
        try:
            yield None
        finally:
            if (seen := told(self.handler.lost, [self.source])) is not None:
                # There is nothing left to fail on it.
                log.error("partitions_lost of handler %s fails: %s", self.handler.name, seen)

    def _in_time(self, records: Sequence[AuditedRecord]) -> list[Outcome]:
        """Hand records over; where that does not come back, each alone, and the one that hangs has failed."""
        try:
            return limited(lambda: self._columns(records) if self.handler.vectorised else self._each(records))
        except NotBack as error:
            if len(records) == 1:
                return [HandlerFailed(records[0].offset, str(error))]
        return [outcome for record in records for outcome in self._in_time([record])]

    def _each(self, records: Sequence[AuditedRecord]) -> list[Outcome]:
        return [outcome for record in records for outcome in self._single(record)]

    def _single(self, record: AuditedRecord) -> list[Outcome]:
        given = Record(
            self.source.topic,
            self.source.partition,
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            tuple((name.decode("utf-8", "surrogateescape"), value) for name, value in record.headers),
        )
        try:
            return attempt(lambda: [self._expected(out, given) for out in self._called(given)])
        except CallFailed as error:
            return [HandlerFailed(record.offset, str(error))]

    def _called(self, given: Record) -> Iterable[Record]:
        returned: Iterable[Record] | None = self.handler.call(given)
        if returned is None:
            raise CallFailed("it returns None")
        return returned

    def _expected(self, out: Any, given: Record) -> Expected:
        """Return what the flow would write; it writes nothing that is objected to here."""
        if not isinstance(out, Record):
            raise CallFailed(f"it returns {type(out).__name__} instead of records")
        if out.topic != given.topic or out.offset != given.offset:
            raise CallFailed("topic or offset of a record was changed")
        stamp = out.timestamp_ms
        if type(stamp) is not int or not -(1 << 63) <= stamp < 1 << 63:
            raise CallFailed("a timestamp that is no 64-bit number")
        headers = tuple(
            (str.encode(name, "utf-8", "surrogateescape"), _written(value)) for name, value in out.headers
        )
        key, value = _written(out.key), _written(out.value)
        made = make_rec(given.offset, key, value, headers, stamp, timed=self.timed)
        return self._placed(out.partition, made)

    def _placed(self, partition: int, record: AuditedRecord) -> Expected:
        if type(partition) is not int or partition not in range(self.target_partitions):
            raise CallFailed("a partition that the target does not have")
        return Expected(partition, record)

    def _columns(self, records: Sequence[AuditedRecord]) -> list[Outcome]:
        """Hand records over together; where that fails, halve until the record is found that it fails on."""
        try:
            return attempt(lambda: list(self._rows(self.handler.call(self._batch(records)), records)))
        except CallFailed as error:
            if len(records) == 1:
                return [HandlerFailed(records[0].offset, str(error))]
        middle = len(records) // 2
        return [*self._columns(records[:middle]), *self._columns(records[middle:])]

    def _batch(self, records: Sequence[AuditedRecord]) -> Any:
        pairs = [[{"key": name, "value": value} for name, value in each.headers] for each in records]
        return pa.RecordBatch.from_arrays(
            [
                pa.array([each.key for each in records], pa.binary()),
                pa.array([each.value for each in records], pa.binary()),
                pa.array(pairs, pa.list_(_PAIR)),
                pa.array([each.timestamp_ms for each in records], pa.int64()),
                pa.array([self.source.partition] * len(records), pa.int32()),
                pa.array([each.offset for each in records], pa.int64()),
            ],
            schema=_SCHEMA,
        )

    def _rows(self, batch: Any, given: Sequence[AuditedRecord]) -> Iterator[Expected]:
        if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(_SCHEMA):
            raise CallFailed("it returns something else than a RecordBatch of the schema")
        known, last = {each.offset for each in given}, given[0].offset
        for row in batch.to_pylist():
            offset = row["source_offset"]
            if offset not in known or offset < last:
                raise CallFailed("a source_offset that was not handed over, or that runs backwards")
            last = offset
            headers = tuple((pair["key"], pair["value"]) for pair in row["headers"])
            if row["timestamp"] is None or any(name is None for name, _ in headers):
                raise CallFailed("a timestamp, or the name of a header, is missing")
            made = make_rec(offset, row["key"], row["value"], headers, row["timestamp"], timed=self.timed)
            yield self._placed(row["partition"], made)


def _written(content: Any) -> bytes | None:
    """Return a key or value as bytes; a buffer of anything but single bytes, one after the other, is none."""
    if content is None or isinstance(content, bytes):
        return content
    try:
        buffer = memoryview(content)
    except (TypeError, ValueError, BufferError):
        buffer = None
    if buffer is None or (buffer.ndim, buffer.itemsize) != (1, 1) or not buffer.contiguous:
        raise CallFailed("key, value and headers have to be bytes or None")
    return bytes(buffer)


def _calls(records: Iterable[AuditedRecord], most: int) -> Iterator[list[AuditedRecord]]:
    """Yield the records in portions that a handler is given at once."""
    together: list[AuditedRecord] = []
    size = 0
    for record in records:
        together.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if len(together) == most or size >= _TOGETHER_BYTES:
            yield together
            together, size = [], 0
    if together:
        yield together
