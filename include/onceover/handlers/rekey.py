"""``onceover.handlers.rekey:Repartition``: spread a topic over another number of partitions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceover.errors import UsageError
from onceover.handlers.murmur2 import partitions_of
from onceover.wire.batches.columns import HEADERS, KEY, PARTITION, SCHEMA, VALUE


class Repartition:
    """Place records by the hash of their key, as Kafka's default partitioner does.

    Records with a null key keep the number of their source partition, so their order. The order of
    records of one key is kept when they were in one source partition before.

    Args:
        partitions: of the target topic; at least as many as the source has.
        key_from: take the key from ``header:<name>`` or from a JSON value, ``value:<dotted.path>``, and
            write it into the record. Texts become UTF-8, other JSON values their JSON text.

    A record without that header or field, or whose value is no JSON, is a handler error.
    """

    def __init__(self, partitions: int, key_from: str | None = None) -> None:
        if type(partitions) is not int or partitions < 1:
            raise UsageError(
                "partitions is not a count", expected="1 or more", resolve="correct handler_args"
            )
        kind, _, name = (key_from or "").partition(":")
        if key_from is not None and (kind not in ("header", "value") or not name):
            raise UsageError(
                "key_from names neither a header nor a field",
                expected="header:<name> or value:<dotted.path>",
                resolve="correct handler_args",
            )
        self._partitions = partitions
        self._from = kind
        self._name = name

    def target_partitions(self, source_partitions: int) -> int:
        """Return the count that was asked for; a smaller one than the source's is refused by the flow."""
        return self._partitions

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same rows with their new partitions."""
        columns = list(batch.columns)
        if self._from:
            columns[KEY] = self._keys(batch)
        keys = columns[KEY]
        known = pc.is_valid(keys)
        hashed = partitions_of(pc.fill_null(keys, b""), self._partitions)
        kept = columns[PARTITION].to_numpy()
        chosen = np.where(known.to_numpy(zero_copy_only=False), hashed, kept)
        columns[PARTITION] = pa.array(chosen, pa.int32())
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _keys(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        if self._from == "header":
            name = self._name.encode()
            return pa.array([_last(row, name) for row in batch.column(HEADERS).to_pylist()], pa.binary())
        path = self._name.split(".")
        return pa.array([_field(value, path) for value in batch.column(VALUE).to_pylist()], pa.binary())


def _last(headers: list[dict[str, Any]], name: bytes) -> bytes | None:
    for header in reversed(headers):
        if header["key"] == name:
            value: bytes | None = header["value"]
            return value
    raise LookupError("a record without the header of key_from")


def _field(value: bytes | None, path: list[str]) -> bytes:
    found = None if value is None else json.loads(value)
    for step in path:
        if not isinstance(found, dict) or step not in found:
            raise LookupError("a record without the field of key_from")
        found = found[step]
    return found.encode() if isinstance(found, str) else json.dumps(found, separators=(",", ":")).encode()
