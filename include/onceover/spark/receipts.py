"""Receipts as rows for Spark: one schema, used by the query, the table and its rebuilding.

A row is one or more neighbouring map records of a (source partition, target partition) pair; several
commits within the flush interval become one row. Everything in it is also in the offset map, so the
table is a projection that can be rebuilt at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from onceover.arrowrows import record_batch
from onceover.wire.offsetlookup import merge
from onceover.wire.offsetmap import MapRecord, receipt

COLUMNS: Final = (
    ("flow", "string"),
    ("generation", "bigint"),
    ("lane", "int"),
    ("source_topic", "string"),
    ("source_partition", "int"),
    ("source_start", "bigint"),
    ("source_end", "bigint"),
    ("target_topic", "string"),
    ("target_partition", "int"),
    ("target_start", "bigint"),
    ("target_end", "bigint"),
    ("records", "bigint"),
    ("bytes", "bigint"),
    ("begin_ms", "bigint"),
    ("commit_ms", "bigint"),
    # Transactions are counted per lane, not per row: they stand in the first row of each flush.
    ("transactions", "bigint"),
)
DDL: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
_ARROW: Final = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
# Rows must match the declared schema exactly.
ARROW_SCHEMA: Final = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS])


def rows(flow: str, records: Iterable[MapRecord], transactions: int) -> pa.RecordBatch:
    """Return the receipts of what a lane committed since the last flush.

    Args:
        flow: name of the flow.
        records: map records in commit order.
        transactions: how many transactions they were.
    """
    listed: list[dict[str, Any]] = [dict(receipt(flow, record)) for record in merge(list(records))]
    for index, row in enumerate(listed):
        row["transactions"] = transactions if index == 0 else 0
    return record_batch(listed, ARROW_SCHEMA)
