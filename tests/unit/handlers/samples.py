"""Handlers as a user writes them, good and bad; named in flow files by the tests."""

from __future__ import annotations

import json
import time
from array import array
from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceover.handlers import SCHEMA, Record
from onceover.model import TopicPartition

SECRET = b"never-to-be-shown"
BAD = b"bad"


def same(record: Record) -> Iterable[Record]:
    """Keep every record."""
    return (record,)


def slow(record: Record, seconds: float) -> Iterable[Record]:
    """Return the record unchanged, after a while."""
    time.sleep(seconds)
    yield record


class Panic(BaseException):
    """What an extension in another language raises: no ``Exception``."""


def _raised(kind: str) -> None:
    raise {"exit": SystemExit, "cancelled": CancelledError}.get(kind, Panic)(SECRET)


def panics(record: Record, kind: str = "panic", bad: str = "bad") -> Iterable[Record]:
    """Raise what is no ``Exception`` at a bad record."""
    if record.value is not None and record.value.startswith(bad.encode()):
        _raised(kind)
    return (record,)


def panics_batch(batch: pa.RecordBatch, kind: str = "panic", bad: str = "bad") -> pa.RecordBatch:
    """The same as ``panics``, for columns."""
    if pc.any(pc.starts_with(pc.fill_null(batch.column(1), b""), bad)).as_py():
        _raised(kind)
    return batch


def panics_later(record: Record, kind: str = "panic") -> Iterable[Record]:
    """Raise it from within what is returned: a header's value is made when it is asked for."""

    def headers() -> Iterator[tuple[str, bytes]]:
        if record.value == BAD:
            _raised(kind)
        yield "h", b"v"

    return (record.replace(headers=headers()),)


def hanging(record: Record, bad: str = "v7") -> Iterable[Record]:
    """Wait for ever at a bad record, and try to hold on to that."""
    while record.value is not None and record.value.startswith(bad.encode()):
        with suppress(Exception):
            Event().wait(600)
    return (record,)


def hanging_batch(batch: pa.RecordBatch, bad: str = "v7") -> pa.RecordBatch:
    """The same as ``hanging``, for columns."""
    while pc.any(pc.starts_with(pc.fill_null(batch.column(1), b""), bad)).as_py():
        with suppress(Exception):
            Event().wait(600)
    return batch


def same_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keep every row."""
    return batch


def spread(record: Record, partitions: int, bad: str | None = None) -> Iterable[Record]:
    """Zero, one or two records, anywhere: decided by the offset."""
    if bad is not None and record.value is not None and record.value.startswith(bad.encode()):
        raise ValueError(f"cannot take {SECRET!r} in {record.value!r}")
    for copy in range(record.offset % 3):
        yield record.replace(
            partition=(record.offset + copy) % partitions, headers=(*record.headers, ("copy", b"%d" % copy))
        )


def spread_batch(batch: pa.RecordBatch, partitions: int, bad: str | None = None) -> pa.RecordBatch:
    """The same as ``spread``, for columns."""
    values = batch.column(1)
    if bad is not None and pc.any(pc.starts_with(pc.fill_null(values, b""), bad)).as_py():
        raise ValueError(f"cannot take {SECRET!r} in {values!r}")
    rows = batch.to_pylist()
    return pa.RecordBatch.from_pylist(
        [
            {
                **row,
                "partition": (row["source_offset"] + copy) % partitions,
                "headers": [*row["headers"], {"key": b"copy", "value": b"%d" % copy}],
            }
            for row in rows
            for copy in range(row["source_offset"] % 3)
        ],
        schema=SCHEMA,
    )


spread.target_partitions = lambda _: 5  # pyrefly: ignore[missing-attribute]
spread_batch.target_partitions = lambda _: 5  # pyrefly: ignore[missing-attribute]


class Wider:
    """A class that wants more partitions, and notes what it is told."""

    told: list[tuple[str, list[TopicPartition]]] = []  # noqa: RUF012 - shared by the tests on purpose

    def __init__(self, partitions: int, fail_on: str = "") -> None:
        self._partitions = partitions
        self._fail_on = fail_on

    def target_partitions(self, source_partitions: int) -> int:
        """Return a fixed count."""
        return self._partitions

    def partitions_gained(self, partitions: Sequence[TopicPartition]) -> None:
        """Note, or fail."""
        self._note("gained", partitions)

    def partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Note, or fail."""
        self._note("lost", partitions)

    def _note(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        Wider.told.append((what, list(partitions)))
        if self._fail_on == f"panic {what}":
            raise Panic(SECRET)
        if self._fail_on == what:
            raise RuntimeError(SECRET.decode())

    def __call__(self, record: Record) -> Iterable[Record]:
        """Move every record to the highest partition."""
        return (record.replace(partition=self._partitions - 1),)


class Tables:
    """Loads a table for each partition that it is told of, and knows nothing of others."""

    def __init__(self, bad: int = -1) -> None:
        self._tables: dict[tuple[str, int], bytes] = {}
        self._bad = bad

    def partitions_gained(self, partitions: Sequence[TopicPartition]) -> None:
        """Load them; there is none for a bad one."""
        for tp in partitions:
            if tp.partition == self._bad:
                raise LookupError(SECRET)
            self._tables[tp.topic, tp.partition] = b"table"

    def partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop them."""
        for tp in partitions:
            del self._tables[tp.topic, tp.partition]

    def __call__(self, record: Record) -> Iterable[Record]:
        """Look something up."""
        return (record.replace(key=self._tables[record.topic, record.partition]),)


class Panics(Tables):
    """The same, and raises what is no ``Exception`` at a bad record."""

    def __init__(self, bad: str) -> None:
        super().__init__()
        self._text = bad.encode()

    def __call__(self, record: Record) -> Iterable[Record]:
        """Look something up, or raise."""
        if record.value == self._text:
            _raised("panic")
        return super().__call__(record)


class Counts:
    """Asks somebody who does not answer how many partitions there should be."""

    def target_partitions(self, source_partitions: int) -> int:
        """Wait for ever."""
        Event().wait(600)
        return source_partitions

    def __call__(self, record: Record) -> Iterable[Record]:
        """Keep every record."""
        return (record,)


class Doubled:
    """Wants twice the partitions, and fills the odd ones."""

    def target_partitions(self, source_partitions: int) -> int:
        """Return twice the count."""
        return 2 * source_partitions

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Move all rows."""
        placed = pc.add(pc.multiply(batch.column(4), 2), 1).cast(pa.int32())
        return batch.set_column(4, "partition", placed)


class Keyed:
    """Takes an argument that is a secret."""

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key

    def __call__(self, record: Record) -> Iterable[Record]:
        """Keep every record."""
        return (record,)


class Fails:
    """Fails while it is made."""

    def __init__(self, text: str) -> None:
        raise RuntimeError(text)

    def __call__(self, record: Record) -> Iterable[Record]:
        """Never reached."""
        return (record,)


class NotCallable:
    """Has no ``__call__``."""


def untyped(record):  # pyrefly: ignore[implicit-any-parameter,unannotated-return]  # what the check is for
    """Does not say what it takes."""
    return (record,)


def narrow(record: Record) -> Iterable[Record]:
    """Wants fewer partitions."""
    return (record,)


narrow.target_partitions = lambda count: count - 1  # pyrefly: ignore[missing-attribute]

NUMBER = 7


def _released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


def unwritable(record: Record) -> dict[str, Any]:
    """Return what is no list of records, by what is wrong with it."""
    numbers = np.array([1, 2, 3], np.int32)
    return {
        "none": None,
        "text": ["a"],
        "topic": [Record("other", record.partition, record.offset, 0, None, None)],
        "offset": [Record(record.topic, record.partition, record.offset + 1, 0, None, None)],
        "partition": [record.replace(partition=2)],
        "negative": [record.replace(partition=-1)],
        "numpy partition": [record.replace(partition=np.int64(1))],
        "timestamp": [record.replace(timestamp_ms=1 << 63)],
        "float": [record.replace(timestamp_ms=5.0)],
        "bool timestamp": [record.replace(timestamp_ms=True)],
        "numpy timestamp": [record.replace(timestamp_ms=np.int64(5))],
        "bool": [record.replace(partition=True)],
        "value": [record.replace(value="text")],
        "array value": [record.replace(value=numbers)],
        "array key": [record.replace(key=array("i", [1]))],
        "view": [record.replace(value=memoryview(array("i", [1, 2])))],
        "gaps": [record.replace(value=memoryview(b"abcd")[::2])],
        "table": [record.replace(value=np.zeros((2, 2), np.uint8))],
        "released": [record.replace(value=_released())],
        "number": [record.replace(value=7)],
        "numpy number": [record.replace(value=np.uint8(7))],
        "headers": [record.replace(headers=(("h", "text"),))],
        "array header": [record.replace(headers=(("h", numbers),))],
        "no headers": [record.replace(headers=None)],
        "three of a header": [record.replace(headers=(("h", b"v", b"w"),))],
        "header name": [record.replace(headers=((b"h", b"v"),))],
        "surrogate": [record.replace(headers=(("\ud800", b"v"),))],
    }


def much_the_same(record: Record) -> Iterable[Record]:
    """Return what can be written, though it is not quite of the type."""
    headers = (("h", bytearray()),)
    return (Record(record.topic, 1, float(record.offset), 5, np.bytes_(b"k"), bytearray(b"v\0"), headers),)  # pyrefly: ignore[bad-argument-type]  # as untyped code does


def buffers(record: Record) -> Iterable[Record]:
    """Return single bytes that belong to something else: a part of a value, Arrow's, NumPy's."""
    key = np.array([107, 0xFF], np.uint8)
    headers = (("h", pa.py_buffer(b"\0w")), ("n", None))
    yield Record(record.topic, 1, record.offset, 5, key, memoryview(b"magicabc")[5:], headers)  # pyrefly: ignore[bad-argument-type]  # as untyped code does


def outcome(record: Record, what: Any) -> Any:
    """Return something that is no list of records."""
    return unwritable(record)[what]


def batch_outcome(batch: pa.RecordBatch, what: str) -> Any:
    """Return something that is no valid batch."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    count = batch.num_rows
    changed = {
        "schema": {"value": pc.cast(columns["value"], pa.string())},
        "null timestamp": {"timestamp": pa.nulls(count, pa.int64())},
        "partition": {"partition": pa.array([9] * count, pa.int32())},
        "offset": {"source_offset": pa.array([10**6] * count, pa.int64())},
        "header name": {"headers": pa.array([[{"key": None, "value": b"v"}]] * count, SCHEMA.field(2).type)},
        "order": {"source_offset": pa.array(columns["source_offset"].to_pylist()[::-1], pa.int64())},
    }
    if what == "none":
        return None
    if what == "columns":
        return batch.select(["key", "value"])
    return pa.RecordBatch.from_pydict({**columns, **changed[what]})


def value_of(document: Any) -> bytes:
    """Return a JSON value."""
    return json.dumps(document).encode()


def moody(record: Record) -> Iterable[Record]:
    """Fail on what counts as bad at the moment."""
    if record.value == BAD:
        raise ValueError("bad")
    return (record,)


def refuse(partitions: Sequence[TopicPartition]) -> None:
    """Take no partition."""
    raise RuntimeError("not now")
