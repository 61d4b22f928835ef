"""The two forms of handlers: whole columns, or one record at a time.

Foreign code runs here. Whatever it raises, and whatever it returns that cannot be written, becomes a
``BadRecord`` with the exception's type and place; its text may quote a record and is never shown (G10).
Not imported without a handler: pyarrow takes a while to load.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from onceover.errors import Fatal
from onceover.handlers.calling import CallFailed, attempt, told
from onceover.handlers.load import Handler
from onceover.handlers.record import Record
from onceover.handling.handling import BadRecord, Group, Handled, Output, Request
from onceover.handling.lanehandler import HandlerUse
from onceover.handling.obstacles import RecordProblem
from onceover.model import TopicPartition
from onceover.stops.codes import StopCode
from onceover.stops.contents import handler_failed
from onceover.stops.record import Stop
from onceover.wire.batches import records as wire
from onceover.wire.batches.columns import (
    HEADERS,
    KEY,
    PARTITION,
    SCHEMA,
    SOURCE_OFFSET,
    TIMESTAMP,
    VALUE,
    decode_columns,
)
from onceover.wire.batches.columns_encode import encode_columns
from onceover.wire.batches.unpack import Ceiling

_INT64 = range(-(1 << 63), 1 << 63)
_WRITABLE = (bytes, NoneType, bytearray)
_NO_BYTES = "key, value and headers have to be bytes or None, header names text"


class RowFailure(NamedTuple):
    """The handler fails on the record in this row."""

    row: int
    reason: RecordProblem


@dataclass(frozen=True)
class _Form:
    """What both forms know of their partition.

    Args:
        handler: shared by the lane's partitions.
        flow: name of the flow, for messages.
        source: whose records these are.
        target_partitions: of the target topic.
        group_bytes: how much is handled at once.
    """

    handler: Handler
    flow: str
    source: TopicPartition
    target_partitions: int
    group_bytes: int

    def stop_at(self, bad: BadRecord) -> Stop:
        """Return the stop of the partition at a record that the handler fails on."""
        if bad.reason.code != StopCode.HANDLER_FAILED:
            raise Fatal(f"{self.source}: a record that the target refused was not diverted")
        offset = bad.record.offset
        return handler_failed(self.flow, self.source, offset, self.handler.name, bad.reason.message)

    def too_slow(self, offset: int, seconds: float) -> Stop:
        """Return the stop of the partition at a record that the handler has been too long about."""
        seen = f"{seconds:.0f} s for it, several times; a transaction may not stay open for longer than 15 s"
        return handler_failed(self.flow, self.source, offset, self.handler.name, seen)


def handler_use(handler: Handler, flow: str, group_bytes: int) -> HandlerUse:
    """Return how a lane uses ``handler``.

    Args:
        flow: name of the flow, for messages.
        group_bytes: how much is handled at once, decompressed.
    """
    kind = ColumnHandling if handler.vectorised else RecordHandling

    def form(source: TopicPartition, target_partitions: int) -> ColumnHandling | RecordHandling:
        return kind(handler, flow, source, target_partitions, group_bytes)

    return HandlerUse(handler.name, form, partial(told, handler.gained), partial(told, handler.lost))


class ColumnHandling(_Form):
    """A partition's way through a handler of the vectorised form."""

    def process(self, group: Group, request: Request) -> Handled:
        """Return what the handler makes of ``group``; see ``Handling``."""
        handled = Handled()
        batches = decode_columns(
            group.batches,
            partition=self.source.partition,
            from_offset=request.from_offset,
            to_offset=request.to_offset,
            ceiling=Ceiling(self.group_bytes, request.record_bytes),
        )
        for batch in batches:
            self._add(handled, batch, group.codec, request)
            if handled.bad and request.stop_at_bad:
                break
        return handled

    def _add(self, handled: Handled, batch: Any, codec: int, request: Request) -> None:
        """Add what comes of some rows, packed: columns take a multiple of their bytes."""
        outputs: list[Any] = []
        for part in self._pieces(batch, request):
            if isinstance(part, RowFailure):
                handled.bad.append(BadRecord(_row(batch, part.row), part.reason))
                if request.stop_at_bad:
                    break
            elif part.num_rows:
                outputs.append(part)
        for partition, rows in _by_partition(outputs):
            for encoded in encode_columns(rows, codec, max_batch_bytes=request.max_batch_bytes):
                handled.outputs.append(Output(partition, encoded))

    def _pieces(self, batch: Any, request: Request) -> Iterator[Any]:
        """Go through the rows, around those that are known to be bad."""
        first = 0
        for row, reason in _known_rows(batch, request):
            yield from self._apply(batch, first, row)
            yield RowFailure(row, reason)
            first = row + 1
        yield from self._apply(batch, first, batch.num_rows)

    def _apply(self, batch: Any, first: int, end: int) -> Iterator[Any]:
        """Hand rows over; where that fails, halve until the row is found that it fails on."""
        if first >= end:
            return
        rows = batch.slice(first, end - first)
        try:
            yield self._checked(attempt(lambda: self.handler.call(rows)), rows)
        except CallFailed as error:
            if end - first == 1:
                yield RowFailure(first, RecordProblem(StopCode.HANDLER_FAILED, str(error)))
                return
            middle = (first + end) // 2
            yield from self._apply(batch, first, middle)
            yield from self._apply(batch, middle, end)

    def _checked(self, out: Any, rows: Any) -> Any:
        if not isinstance(out, pa.RecordBatch):
            raise CallFailed(f"it returns {type(out).__name__} instead of a RecordBatch")
        if not out.schema.equals(SCHEMA):
            raise CallFailed(f"the columns it returns differ: {_difference(out.schema)}")
        for number in (HEADERS, TIMESTAMP, PARTITION, SOURCE_OFFSET):
            if out.column(number).null_count:
                raise CallFailed(f"column {SCHEMA.names[number]} of what it returns holds nulls")
        pairs = out.column(HEADERS).flatten()
        if pairs.null_count or pairs.field(0).null_count:
            raise CallFailed("a header without a name")
        self._check_places(out, rows)
        return out

    def _check_places(self, out: Any, rows: Any) -> None:
        partitions = out.column(PARTITION).to_numpy()
        if partitions.size and not (partitions.min() >= 0 and partitions.max() < self.target_partitions):
            raise CallFailed(f"a partition outside 0 to {self.target_partitions - 1}")
        offsets, known = out.column(SOURCE_OFFSET).to_numpy(), rows.column(SOURCE_OFFSET).to_numpy()
        if (np.diff(offsets) < 0).any():
            raise CallFailed("source_offset runs backwards, so the order would be lost")
        at = np.minimum(np.searchsorted(known, offsets), len(known) - 1)
        if (known[at] != offsets).any():
            raise CallFailed("a source_offset that was not among those handed over")


def _difference(schema: Any) -> str:
    """Name the first column that is not as in ``SCHEMA``."""
    if schema.names != SCHEMA.names:
        return f"expected {', '.join(SCHEMA.names)}, seen {', '.join(map(str, schema.names))}"
    names = [name for name in SCHEMA.names if not schema.field(name).equals(SCHEMA.field(name))]
    return ", ".join(f"{n} is {schema.field(n).type} instead of {SCHEMA.field(n).type}" for n in names)


def _known_rows(batch: Any, request: Request) -> list[tuple[int, RecordProblem]]:
    if not request.known_bad:
        return []
    offsets = batch.column(SOURCE_OFFSET).to_numpy()
    return [(row, request.known_bad[o]) for row, o in enumerate(offsets.tolist()) if o in request.known_bad]


def _row(batch: Any, row: int) -> wire.DecodedRecord:
    """Return one row as the record that it was."""
    values = [batch.column(number)[row].as_py() for number in (SOURCE_OFFSET, TIMESTAMP, KEY, VALUE, HEADERS)]
    headers = tuple((pair["key"], pair["value"]) for pair in values[4])
    return wire.DecodedRecord(values[0], values[1], values[2], values[3], headers)


def _by_partition(outputs: list[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the rows of each target partition, in their order."""
    # Joined first: where a batch was handed over in parts, its output is many small ones.
    joined = outputs if len(outputs) < 2 else pa.Table.from_batches(outputs).combine_chunks().to_batches()
    for rows in joined:
        partitions = rows.column(PARTITION).to_numpy()
        if (partitions == partitions[0]).all():
            yield int(partitions[0]), rows
            continue
        order = np.argsort(partitions, kind="stable")
        ordered, found = rows.take(pa.array(order)), partitions[order]
        borders = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist(), len(found)]
        for first, end in pairwise(borders):
            yield int(found[first]), ordered.slice(first, end - first)


class RecordHandling(_Form):
    """A partition's way through a handler of the per-record form."""

    def process(self, group: Group, request: Request) -> Handled:
        """Return what the handler makes of ``group``; see ``Handling``."""
        handled = Handled()
        buckets: dict[int, list[tuple[int, int, bytes, int]]] = {}
        for record, result in self.results(group, request):
            if isinstance(result, RecordProblem):
                handled.bad.append(BadRecord(record, result))
                if request.stop_at_bad:
                    break
                continue
            for partition, plain in result:
                buckets.setdefault(partition, []).append(plain)
        for partition, plains in buckets.items():
            for encoded in wire.encode_bounded(plains, group.codec, request.max_batch_bytes):
                handled.outputs.append(Output(partition, encoded))
        return handled

    def results(
        self, group: Group, request: Request
    ) -> Iterator[tuple[wire.DecodedRecord, RecordProblem | list[tuple[int, tuple[int, int, bytes, int]]]]]:
        """Yield each record and what came of it: packed records by target partition, or why not."""
        for record in self._wanted(group, request):
            known = request.known_bad.get(record.offset)
            result = known if known is not None else self._apply(record)
            yield record, result

    @staticmethod
    def _wanted(group: Group, request: Request) -> Iterator[wire.DecodedRecord]:
        for unpacked in group.batches:
            yield from wire.decode_payload(unpacked, request.from_offset, request.to_offset)

    def _apply(
        self, record: wire.DecodedRecord
    ) -> RecordProblem | list[tuple[int, tuple[int, int, bytes, int]]]:
        given = Record(
            self.source.topic,
            self.source.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple([(name.decode("utf-8", "surrogateescape"), value) for name, value in record.headers]),
        )
        try:
            # What is packed may be foreign as well: headers that are made when they are asked for.
            return attempt(lambda: [self._packed(out, given) for out in self._called(given)])
        except CallFailed as error:
            return RecordProblem(StopCode.HANDLER_FAILED, str(error))

    def _called(self, given: Record) -> Iterable[Any]:
        returned: Iterable[Any] | None = self.handler.call(given)
        if returned is None:
            # A forgotten return would otherwise lose every record.
            raise CallFailed("it returns None; to drop a record it has to return an empty tuple")
        return returned

    def _packed(self, out: Any, given: Record) -> tuple[int, tuple[int, int, bytes, int]]:
        if not isinstance(out, Record):
            raise CallFailed(f"it returns {type(out).__name__} instead of records")
        if out.topic != given.topic or out.offset != given.offset:
            raise CallFailed("topic or offset of a record was changed")
        if type(out.partition) is not int or out.partition not in range(self.target_partitions):
            raise CallFailed(f"a partition outside 0 to {self.target_partitions - 1}")
        if type(out.timestamp_ms) is not int or out.timestamp_ms not in _INT64:
            raise CallFailed("a timestamp that is no 64-bit number")
        try:
            # By the class: whatever else has a method of that name is no text.
            headers = tuple([(str.encode(name, "utf-8", "surrogateescape"), v) for name, v in out.headers])
        except (TypeError, ValueError):
            raise CallFailed(_NO_BYTES) from None
        key, value = out.key, out.value
        if not _are_bytes(key, value, *[content for _, content in headers]):
            key, value = _as_bytes(key), _as_bytes(value)
            headers = tuple([(name, _as_bytes(content)) for name, content in headers])
        # The offset as it was handed over: `out` may have another number that is equal.
        body = wire.encode_body(key, value, headers)
        return out.partition, (given.offset, out.timestamp_ms, body, 0)


def _are_bytes(*contents: Any) -> bool:
    """Tell whether contents can be written as they are."""
    for content in contents:  # noqa: SIM110 - as a generator it takes twice the time, for each record
        if not isinstance(content, _WRITABLE):
            return False
    return True


def _as_bytes(content: Any) -> bytes | None:
    """Return what is written for a content; a buffer of anything but single bytes is none.

    Raises:
        CallFailed: it cannot be written.
    """
    if content is None or isinstance(content, bytes):
        return content
    try:
        view = memoryview(content)
    except (TypeError, ValueError, BufferError):
        raise CallFailed(_NO_BYTES) from None
    # A single number of NumPy's is a buffer as well, without a dimension.
    if view.itemsize != 1 or view.ndim != 1 or not view.contiguous:
        raise CallFailed(_NO_BYTES)
    return bytes(view)
