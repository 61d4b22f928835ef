"""Receipts as rows for Spark: one schema, used by the data source, the table and its rebuilding.

A row is one or more neighbouring map records of a (source partition, target partition) pair; several
commits within the flush interval become one row. Everything in it is also in the offset map, so the
table is a projection that can be rebuilt at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from onceover.wire.offsetlookup import merge
from onceover.wire.offsetmap import MapRecord, receipt

# Column, Spark type, Arrow type: a reader's rows must match the schema exactly.
_COLUMNS: Final = (
    ("flow", "string", pa.string()),
    ("generation", "bigint", pa.int64()),
    ("lane", "int", pa.int32()),
    ("source_topic", "string", pa.string()),
    ("source_partition", "int", pa.int32()),
    ("source_start", "bigint", pa.int64()),
    ("source_end", "bigint", pa.int64()),
    ("target_topic", "string", pa.string()),
    ("target_partition", "int", pa.int32()),
    ("target_start", "bigint", pa.int64()),
    ("target_end", "bigint", pa.int64()),
    ("records", "bigint", pa.int64()),
    ("bytes", "bigint", pa.int64()),
    ("begin_ms", "bigint", pa.int64()),
    ("commit_ms", "bigint", pa.int64()),
)
# Transactions are counted per lane, not per row: they stand in the first row of each flush.
TRANSACTIONS: Final = "transactions"
DDL: Final = ", ".join(f"{name} {kind}" for name, kind, _ in _COLUMNS) + f", {TRANSACTIONS} bigint"
ARROW_SCHEMA: Final = pa.schema([(name, kind) for name, _, kind in _COLUMNS] + [(TRANSACTIONS, pa.int64())])


def rows(flow: str, records: Iterable[MapRecord], transactions: int) -> pa.RecordBatch:
    """Return the receipts of what a lane committed since the last flush.

    Args:
        flow: name of the flow.
        records: map records in commit order.
        transactions: how many transactions they were.
    """
    listed: list[dict[str, Any]] = [dict(receipt(flow, record)) for record in merge(list(records))]
    for index, row in enumerate(listed):
        row[TRANSACTIONS] = transactions if index == 0 else 0
    return pa.RecordBatch.from_pylist(listed, schema=ARROW_SCHEMA)
