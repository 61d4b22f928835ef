"""Great Expectations over audits made by hand, in a real Spark session."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from onceover.audit import tables
from onceover.audit.datadocs import results_file
from onceover.audit.model import FindingKind, Reason, Verdict
from onceover.audit.result import Area, AuditResult
from onceover.audit.suites import RULES, SUITES
from onceover.audit.verdict import Outcome, QualityVerdict
from onceover.spark.frames import comparison, topics, unaccounted
from onceover.spark.quality import judge
from tests.support import audits

pytestmark = [
    # pyspark leaves the pipe to its JVM for the end of the process.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    # Great Expectations imports modules and calls functions that are deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session of its own, as small as can be."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[1]").appName("quality")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    gateway: Any = session.sparkContext._gateway
    yield session
    session.stop()
    # The JVM would stay until this process ends; the next one to want a session gets a JVM of its own.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


def frames(spark: SparkSession, result: AuditResult) -> dict[str, DataFrame]:
    """Return an audit's tables as the driver hands them over."""
    return {
        name: spark.createDataFrame([tuple(row.values()) for row in rows], tables.SCHEMAS[name])
        for name, rows in tables.rows(result).items()
    }


def outcomes(quality: QualityVerdict) -> dict[str, Outcome]:
    """Return the outcomes of rules that were not met, by name."""
    return {each.rule.name: each for each in quality.outcomes if each.met is not True}


def test_audit_in_which_all_is_right_passes_and_keeps_its_results(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every rule is evaluated by Great Expectations, and met."""
    quality = judge(spark, frames(spark, audits.result()), tmp_path)

    assert (quality.verdict, outcomes(quality)) == (Verdict.PASS, {})
    # Its own results of each suite, and nothing of its own pages.
    assert sorted(path.name for path in (tmp_path / "data_docs").rglob("*")) == sorted(
        f"{suite}.json" for suite in SUITES
    )
    kept = json.loads(results_file(tmp_path, "digests").read_text())
    assert (kept["success"], kept["suite_name"]) == (True, "digests")
    assert {each.expectation for each in quality.outcomes if each.rule.suite == "digests"} == {
        "expect_column_pair_values_to_be_equal(column_A=source_records, column_B=target_records)",
        "expect_column_pair_values_to_be_equal(column_A=source_sum, column_B=target_sum)",
        "expect_column_pair_values_to_be_equal(column_A=source_chain, column_B=target_chain)",
        "expect_column_values_to_not_be_null(column=both_sides)",
    }


def test_everything_that_can_be_wrong_is_named_with_its_numbers(spark: SparkSession, tmp_path: Path) -> None:
    """Each rule fails by its own fault, and its result keeps the values that failed."""
    wrong = audits.partition_result(
        0,
        (
            *audits.digests(0, 0, 100, target_records=99, target_sum=5, target_chain=6),
            audits.digests(0, 100, 150)[0],
        ),
        findings=[audits.finding(kind) for kind in FindingKind],
        unverifiable=[audits.stretch(Reason.RETENTION, 0, 150, 190)],
    )
    checks = [audits.check(area, ok=ok) for area in Area for ok in (False, None)]
    checks.append(audits.check(Area.GROUPS, ok=False, skipped=3, repeated=4))
    quality = judge(spark, frames(spark, audits.result([wrong, audits.good_partition(1)], checks)), tmp_path)

    assert quality.verdict is Verdict.FAIL
    found = outcomes(quality)
    # Nothing can be missing altogether and be wrong at the same time.
    assert {rule.name for rule in RULES} - found.keys() == {
        "topics.nothing_audited",
        "positions.nothing_audited",
    }
    assert all(each.met is False and each.numbers for each in found.values())
    assert found["topics.lost"].numbers == ({"what": "orders:0", "code": "records", "lost": 1},)
    assert found["topics.phantom"].unexpected == 1
    assert found["topics.not_accounted"].numbers[0]["unaccounted"] == 10
    assert found["digests.records"].numbers == (
        {"what": "orders:0 [0, 100)", "code": "records", "source_records": 100, "target_records": 99},
        {"what": "orders:0 [100, 150)", "code": "records", "source_records": 50, "target_records": None},
    )
    assert found["unverifiable.offsets"].numbers[0]["code"] == Reason.RETENTION
    assert found["groups.skipped"].numbers[0]["skipped"] == 3


@pytest.mark.soak
def test_nothing_and_what_cannot_be_evaluated_are_unverifiable(spark: SparkSession, tmp_path: Path) -> None:
    """Empty tables meet every expectation about rows; a rule that raises an exception was not met."""
    given = frames(spark, audits.result([], []))
    stretch = audits.stretch(Reason.RETENTION, 0, 0, 10)
    given[tables.UNVERIFIABLE] = spark.createDataFrame(
        [{**stretch.as_row(), "offsets": [1]}],
        tables.SCHEMAS[tables.UNVERIFIABLE].replace("offsets bigint", "offsets array<int>"),
    )

    quality = judge(spark, given, tmp_path)

    assert quality.verdict is Verdict.UNVERIFIABLE
    found = outcomes(quality)
    assert set(found) == {"topics.nothing_audited", "positions.nothing_audited", "unverifiable.offsets"}
    assert found["unverifiable.offsets"].met is None
    assert found["unverifiable.offsets"].problem


@pytest.mark.parametrize(
    ("stretches", "ranges", "left_out"),
    [
        ([], [(0, 100), (100, 200)], 0),
        ([], [(0, 100)], 100),
        ([], [(10, 100), (120, 200)], 30),
        ([(150, 220)], [(0, 150)], 0),
        ([(0, 120), (90, 100)], [(100, 200)], 0),
        ([(20, 30), (0, 90)], [(100, 200)], 10),
        ([], [], 200),
    ],
    ids=["tiled", "end", "middle", "beyond the end", "overlapping", "inside another", "nothing"],
)
def test_offsets_that_nobody_speaks_of_are_counted(
    spark: SparkSession, stretches: list[tuple[int, int]], ranges: list[tuple[int, int]], left_out: int
) -> None:
    """Compared, or named as unverifiable: what is neither was forgotten."""
    result = audits.partition_result(
        0,
        [digest for begin, end in ranges for digest in audits.digests(0, begin, end)],
        unverifiable=[audits.stretch(Reason.RETENTION, 0, *each) for each in stretches],
    )

    (row,) = unaccounted(frames(spark, audits.result([result]))).collect()

    assert row["unaccounted"] == left_out


def test_sample_leaves_out_what_it_likes(spark: SparkSession) -> None:
    """Nobody claims that a sample covers everything."""
    result = audits.partition_result(0, audits.digests(0, 0, 100), complete=False)

    (row,) = topics(frames(spark, audits.result([result]))).collect()

    assert row["unaccounted"] is None


def test_phantom_counts_where_it_is_and_stray_ones_get_a_row(spark: SparkSession) -> None:
    """A finding without a source partition, or one that is counted only, must not get lost on its way."""
    inside = audits.partition_result(
        1,
        audits.digests(1, 0, 200),
        findings=[audits.finding(FindingKind.PHANTOM, 1)],
        unlisted=[audits.more(FindingKind.PHANTOM, 12, 1), audits.more(FindingKind.LOST, 3, 1)],
    )
    stray = [audits.finding(FindingKind.PHANTOM, 7)]

    rows = topics(frames(spark, audits.result([audits.good_partition(0), inside], stray=stray))).collect()

    assert {row["what"]: row["phantom"] for row in rows} == {"orders:0": 0, "orders:1": 13, "orders:7": 1}
    assert sum(row["lost"] for row in rows) == 3


def test_comparison_has_both_sides_in_a_row(spark: SparkSession) -> None:
    """A side that was not read is null, not equal."""
    whole, half = audits.digests(0, 0, 100), audits.digests(0, 100, 200)[:1]
    given = frames(spark, audits.result([audits.partition_result(0, (*whole, *half))]))

    rows = comparison(given[tables.DIGESTS]).orderBy("source_from").collect()

    assert [(row["source_records"], row["target_records"], row["both_sides"]) for row in rows] == [
        (100, 100, True),
        (100, None, None),
    ]
