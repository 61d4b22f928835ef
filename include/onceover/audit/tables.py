"""The tables of an audit as Spark has them: one schema for each, beside the rows that fill it.

Invariant: a schema has exactly the columns of the rows' ``as_row``, in that order; Spark matches by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onceover.audit.model import Row
from onceover.audit.result import AuditResult

DIGESTS: Final = "digests"
FINDINGS: Final = "findings"
UNVERIFIABLE: Final = "unverifiable"
PARTITIONS: Final = "partitions"
CHECKS: Final = "checks"

# What names a range on both sides; the digests of the two are joined by it.
RANGE_COLUMNS: Final = (
    "source_topic",
    "partition",
    "source_from",
    "source_to",
    "target_topic",
    "target_partition",
    "target_from",
    "target_to",
    "mode",
)
_RANGE: Final = (
    "source_topic string, partition int, source_from bigint, source_to bigint, "
    "target_topic string, target_partition int, target_from bigint, target_to bigint, mode string"
)
SCHEMAS: Final[Mapping[str, str]] = {
    DIGESTS: f"{_RANGE}, side string, records bigint, sum string, chain string, bytes bigint, "
    "first_timestamp_ms bigint, last_timestamp_ms bigint, compared string",
    FINDINGS: "kind string, source_topic string, source_partition int, source_offset bigint, "
    "target_topic string, target_partition int, target_offset bigint, field string, detail string, "
    "payload string, findings bigint",
    UNVERIFIABLE: "reason string, source_topic string, partition int, offset_from bigint, offset_to bigint, "
    "offsets bigint, message string",
    PARTITIONS: "source_topic string, partition int, target_topic string, target_partition int, mode string, "
    "source_from bigint, source_to bigint, target_from bigint, target_to bigint, source_records bigint, "
    "target_records bigint, source_bytes bigint, target_bytes bigint, findings bigint, unverifiable bigint, "
    "verified_before bigint, verified_to bigint, verified_timestamp_ms bigint, complete boolean",
    CHECKS: "area string, name string, source_topic string, partition int, group string, offset bigint, "
    "expected string, seen string, ok boolean, skipped bigint, repeated bigint, detail string",
}


def rows(result: AuditResult) -> dict[str, list[Row]]:
    """Return the rows of every table, by the table's name.

    Args:
        result: what the audit saw.
    """
    return {
        DIGESTS: result.digest_rows(),
        FINDINGS: result.finding_rows(),
        UNVERIFIABLE: result.unverifiable_rows(),
        PARTITIONS: result.partition_rows(),
        CHECKS: result.check_rows(),
    }


def columns(table: str) -> list[str]:
    """Return a table's columns in their order."""
    return [column.split()[0] for column in SCHEMAS[table].split(", ")]
