"""The DataFrames that the suites judge, made from an audit's tables.

Invariant: every frame has the columns ``what`` (which row it is, as people say it) and ``code``, so that a
result names what failed; nothing in them is payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from onceover.audit import suites, tables
from onceover.audit.model import COUNT, FindingKind, Side
from onceover.audit.result import Area

WHAT: Final = "what"
CODE: Final = "code"
_VALUES: Final = ("records", "sum", "chain", "bytes", "first_timestamp_ms", "last_timestamp_ms", "compared")
_PARTITION: Final = ["source_topic", "partition"]


def suite_frames(audited: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return one frame for every suite.

    Args:
        audited: the tables of ``audit.tables.SCHEMAS``.
    """
    checks = _checks(audited[tables.CHECKS])
    return {
        suites.DIGESTS: comparison(audited[tables.DIGESTS]),
        suites.TOPICS: topics(audited),
        suites.UNVERIFIABLE: _unverifiable(audited[tables.UNVERIFIABLE]),
        **{str(area): checks.where(F.col("area") == str(area)) for area in Area},
    }


def comparison(digests: DataFrame) -> DataFrame:
    """Return one row for each range with the digests of both sides; a side not read is null there."""
    keys = list(tables.RANGE_COLUMNS)
    values = [
        F.max(F.when(F.col("side") == str(side), F.col(value))).alias(f"{side}_{value}")
        for side in Side
        for value in _VALUES
    ]
    both = F.when(F.countDistinct("side") == len(Side), F.lit(True)).alias("both_sides")
    return digests.groupBy(*keys).agg(*values, both).select(*_named(_span(), F.col("mode")), "*")


def topics(audited: Mapping[str, DataFrame]) -> DataFrame:
    """Return one row for each partition: findings by kind, and the offsets that nobody accounted for."""
    partitions = audited[tables.PARTITIONS]
    kinds: list[Any] = [str(kind) for kind in FindingKind]
    placed = _placed(audited[tables.FINDINGS], partitions)
    counted = placed.groupBy(*_PARTITION).pivot("kind", kinds).agg(F.sum(COUNT))
    joined = partitions.join(counted, _PARTITION, "full_outer").join(unaccounted(audited), _PARTITION, "left")
    numbers = [F.coalesce(F.col(kind), F.lit(0)).cast("bigint").alias(kind.lower()) for kind in kinds]
    # Of a sample nobody claims that it covers everything: null is not judged.
    left_out = F.when(F.col("complete"), F.coalesce(F.col("unaccounted"), F.lit(0)).cast("bigint"))
    what = F.concat_ws(":", "source_topic", "partition")
    return joined.select(
        *_named(what, F.col("mode")), *_PARTITION, "source_from", "source_to", *numbers,
        left_out.alias("unaccounted"),
    )  # fmt: skip


def unaccounted(audited: Mapping[str, DataFrame]) -> DataFrame:
    """Return, by partition, how many offsets in scope are neither compared nor said to be unverifiable.

    Stretches may overlap: what is missing is what lies between the furthest end so far and the next start.
    """
    bounds = audited[tables.PARTITIONS].select(*_PARTITION, "source_from", "source_to")
    compared = audited[tables.DIGESTS].select(
        *_PARTITION, F.col("source_from").alias("begin"), F.col("source_to").alias("end")
    )
    refused = audited[tables.UNVERIFIABLE].select(
        *_PARTITION, F.col("offset_from").alias("begin"), F.col("offset_to").alias("end")
    )
    last = bounds.select(*_PARTITION, F.col("source_to").alias("begin"), F.col("source_to").alias("end"))
    stretches = compared.unionByName(refused).unionByName(last).join(bounds, _PARTITION)
    earlier = (
        Window.partitionBy(*_PARTITION).orderBy("begin", "end").rowsBetween(Window.unboundedPreceding, -1)
    )
    reached = F.greatest(F.coalesce(F.max("end").over(earlier), F.col("source_from")), F.col("source_from"))
    gap = F.greatest(F.lit(0), F.least("begin", "source_to") - reached)
    return stretches.withColumn("gap", gap).groupBy(*_PARTITION).agg(F.sum("gap").alias("unaccounted"))


def _placed(findings: DataFrame, partitions: DataFrame) -> DataFrame:
    """Give findings without a source partition (PHANTOM) the one whose counterpart they are in."""
    counterpart = partitions.select(
        F.col("source_topic").alias("topic_there"),
        F.col("partition").alias("partition_there"),
        "target_topic",
        "target_partition",
    )
    joined = findings.join(counterpart, ["target_topic", "target_partition"], "left")
    return joined.select(
        F.coalesce("source_topic", "topic_there", "target_topic").alias("source_topic"),
        F.coalesce("source_partition", "partition_there", "target_partition").alias("partition"),
        "kind",
        COUNT,
    )


def _unverifiable(stretches: DataFrame) -> DataFrame:
    what = F.format_string(
        "%s:%d [%d, %d): %s", "source_topic", "partition", "offset_from", "offset_to", "message"
    )
    return stretches.select(*_named(what, F.col("reason")), "offsets")


def _checks(checks: DataFrame) -> DataFrame:
    about = F.concat_ws(
        " ",
        F.concat_ws(":", "source_topic", "partition"),
        F.concat(F.lit("group "), F.col("group")),
        F.concat(F.lit("at "), F.col("offset")),
    )
    seen = F.format_string("expected %s, seen %s", "expected", "seen")
    detail = F.when(F.length("detail") > 0, F.concat(F.lit(": "), F.col("detail"))).otherwise("")
    what = F.concat(about, F.lit(": "), seen, detail)
    return checks.select(*_named(what, F.col("name")), "area", "ok", "skipped", "repeated")


def _span() -> Column:
    return F.format_string("%s:%d [%d, %d)", "source_topic", "partition", "source_from", "source_to")


def _named(what: Column, code: Column) -> tuple[Column, Column]:
    return what.alias(WHAT), code.alias(CODE)
