"""Great Expectations over audits made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceover.audit.checks.result import Area
from onceover.audit.checks.suiterows import suite_rows
from onceover.audit.checks.suites import RULES, SUITES, UNVERIFIABLE
from onceover.audit.checks.verdict import QualityVerdict, RuleOutcome
from onceover.audit.model import FindingKind, Reason
from onceover.audit.report.datadocs import results_file
from onceover.spark.auditing.quality import judge
from onceover.state.records.verdicts import Verdict
from tests.support.worlds import audits

# Great Expectations imports modules and calls functions that are deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def outcomes(quality: QualityVerdict) -> dict[str, RuleOutcome]:
    """Return the outcomes of rules that were not met, by name."""
    return {each.rule.name: each for each in quality.outcomes if each.met is not True}


def test_audit_in_which_all_is_right_passes_and_keeps_its_results(tmp_path: Path) -> None:
    """Every rule is evaluated by Great Expectations, and met."""
    quality = judge(suite_rows(audits.result()), tmp_path)

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


def test_everything_that_can_be_wrong_is_named_with_its_numbers(tmp_path: Path) -> None:
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
    quality = judge(suite_rows(audits.result([wrong, audits.good_partition(1)], checks)), tmp_path)

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


def test_nothing_and_what_cannot_be_evaluated_are_unverifiable(tmp_path: Path) -> None:
    """Empty tables meet every expectation about rows; a rule that raises an exception was not met."""
    given = suite_rows(audits.result([], []))
    given[UNVERIFIABLE] = [{"what": "orders:0", "code": str(Reason.RETENTION), "offsets": [1]}]

    quality = judge(given, tmp_path)

    assert quality.verdict is Verdict.UNVERIFIABLE
    found = outcomes(quality)
    assert set(found) == {"topics.nothing_audited", "positions.nothing_audited", "unverifiable.offsets"}
    assert found["unverifiable.offsets"].met is None
    assert found["unverifiable.offsets"].problem


def test_large_numbers_and_missing_ones_are_kept_as_they_are(tmp_path: Path) -> None:
    """Offsets beyond 2**53 are not floats: beside a missing value pandas would round two of them to equal."""
    big = 2**53
    rows = suite_rows(audits.result())
    names = ("source_records", "target_records", "source_sum", "target_sum", "source_chain", "target_chain")
    same = {"what": "t:0", "code": "records", "both_sides": True, **dict.fromkeys(names, "0")}
    rows["digests"] = [
        {**same, "source_records": big, "target_records": big + 1},
        {**same, "source_records": None, "target_records": None},
    ]

    found = outcomes(judge(rows, tmp_path))

    (number,) = found["digests.records"].numbers
    assert (number["source_records"], number["target_records"]) == (big, big + 1)
