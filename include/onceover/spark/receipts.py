"""Receipts as rows for Spark: one schema, used by the data source, the table and its rebuilding.

A row is one or more neighbouring map records of a (source partition, target partition) pair; several
commits within the flush interval become one row. Everything in it is also in the offset map, so the
table is a projection that can be rebuilt at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from onceover.spark.schema import COLUMNS
from onceover.wire.offsetlookup import merge
from onceover.wire.offsetmap import MapRecord, receipt

_ARROW: Final = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
# A reader's rows must match the declared schema exactly.
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
    return pa.RecordBatch.from_pylist(listed, schema=ARROW_SCHEMA)
