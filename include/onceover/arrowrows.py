"""Rows as Arrow, made of buffers: for the few rows of a process that should start quickly and stay small.

``pyarrow.array`` and all that rests on it look first whether what they are given is of pandas, and load that
to find out: 0.4 s of CPU and 50 MB in each process, for three integers.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pyarrow as pa


def record_batch(rows: Sequence[Mapping[str, str | int]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of strings and integers, none of them missing.

    Raises:
        OverflowError: an integer is larger than its column.
    """
    columns = [_column(field.type, [row[field.name] for row in rows]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def texts(values: Sequence[str]) -> pa.Array:
    """Return strings as a column.

    Raises:
        UnicodeError: one holds half a character.
    """
    encoded = [value.encode() for value in values]
    ends = list(accumulate(map(len, encoded), initial=0))
    offsets = pa.py_buffer(struct.pack(f"={len(ends)}i", *ends))
    return pa.Array.from_buffers(pa.string(), len(encoded), [None, offsets, pa.py_buffer(b"".join(encoded))])


def _column(kind: pa.DataType, values: Sequence[str | int]) -> pa.Array:
    if kind == pa.string():
        return texts([str(value) for value in values])
    integers = array("i" if kind == pa.int32() else "q", [int(value) for value in values])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(integers)])
