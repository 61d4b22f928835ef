"""The columns of a receipt as Spark sees them. Without imports: Spark loads this in many short-lived
processes while it plans."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "onceover"
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
