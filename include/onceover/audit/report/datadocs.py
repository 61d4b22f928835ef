"""The Data Docs: what Great Expectations found, suite by suite, as pages that need nothing but themselves.

Its own site builds its index with scripts and takes its looks from the web; a page that is served beside
Airflow's session, or opened from an archive, can have neither.

Invariant: every answer and number on them is Great Expectations' own, read from the audit's document; its
full results lie beside them as JSON. Every text is escaped: it may hold names that other people chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from onceover.audit.checks.suites import SUITES
from onceover.audit.codes import AuditCode
from onceover.audit.report.htmlpage import render
from onceover.audit.report.jsonreport import summary
from onceover.audit.report.parts import SUITE_NAMES, sides_of
from onceover.audit.report.unwritten import unwritten
from onceover.replacing import put
from onceover.state.records.verdicts import Verdict

FOLDER: Final = "data_docs"
INDEX: Final = "index.html"
_REPORT: Final = "report.html"
_ABOUT: Final = {
    "topics": "One row for each partition: findings by kind, and offsets that nobody accounted for.",
    "digests": "One row for each range of offsets: number, sum and chain of its records on both sides.",
    "unverifiable": "One row for each stretch of offsets that could not be compared.",
    "positions": "One row for each position of the flow, held against the records.",
    "map": "One row for each place of the offset map that was held against the records.",
    "receipts": "One row for each receipt that was held against its neighbours and the target.",
    "groups": "One row for each position that the flow wrote for a consumer group.",
}


def results_file(home: Path, suite: str) -> Path:
    """Return where Great Expectations' own results of a suite lie."""
    return home / FOLDER / f"{suite}.json"


def write(told: Mapping[str, Any], home: Path) -> Path:
    """Write the pages; return the first one.

    Args:
        told: the audit's document.
        home: folder of the audit; a report that lies in it is linked.

    Raises:
        UsageError: a page cannot be written.
        NeedsOperator: there is no room for it.
    """
    folder = home / FOLDER
    has_report = (home / _REPORT).is_file()
    pages = {INDEX: index_page(told, has_report=has_report)} | {
        f"{suite}.html": suite_page(told, suite) for suite in SUITES
    }
    try:
        for name, text in pages.items():
            put(text, folder / name)
    except OSError as error:
        raise unwritten(AuditCode.DATA_DOCS, "Data Docs", folder, told, error) from error
    return folder / INDEX


def verdict_of(expectations: Sequence[Mapping[str, Any]]) -> Verdict:
    """Return what some expectations amount to: the worst of their answers."""
    answers = {each["answer"] for each in expectations}
    return next((v for v in (Verdict.FAIL, Verdict.UNVERIFIABLE) if v in answers), Verdict.PASS)


def index_page(told: Mapping[str, Any], *, has_report: bool) -> str:
    """Return the page that lists the suites, each with its verdict and counts."""
    return render(
        "index",
        told=told,
        title=f"{told['verdict']}: Data Docs",
        verdict=told["verdict"],
        sides=sides_of(told),
        heading=told["verdict"],
        answer=summary(told),
        report=_REPORT if has_report else None,
        suites=[_suite(suite, _of(told, suite)) for suite in SUITES],
    )


def suite_page(told: Mapping[str, Any], suite: str) -> str:
    """Return the page of one suite: every expectation, what was seen, and where it was not so."""
    expectations = _of(told, suite)
    verdict = verdict_of(expectations)
    return render(
        "suite",
        told=told,
        title=f"{verdict}: {SUITE_NAMES[suite]}",
        verdict=verdict,
        sides=sides_of(told),
        heading=SUITE_NAMES[suite],
        answer=f"{_met(expectations)} of {len(expectations)} expectations are met.",
        index=INDEX,
        suite=suite,
        suites={each: SUITE_NAMES[each] for each in SUITES},
        about=_ABOUT[suite],
        expectations=expectations,
        unmet=[_numbers(each) for each in expectations if each["answer"] != Verdict.PASS and each["numbers"]],
    )


def _of(told: Mapping[str, Any], suite: str) -> list[Mapping[str, Any]]:
    return [each for each in told["expectations"] if each["suite"] == suite]


def _met(expectations: Sequence[Mapping[str, Any]]) -> int:
    return sum(1 for each in expectations if each["answer"] == Verdict.PASS)


def _suite(suite: str, expectations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    unmet = (each["unexpected"] for each in expectations if each["answer"] != Verdict.PASS)
    return {
        "key": suite,
        "name": SUITE_NAMES[suite],
        "verdict": verdict_of(expectations),
        "met": _met(expectations),
        "of": len(expectations),
        "unexpected": sum(unmet),
        "about": _ABOUT[suite],
    }


def _numbers(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows in which an expectation was not met."""
    rows = told["numbers"]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [["–" if row.get(column) is None else row[column] for column in columns] for row in rows]
    more = max(0, told["unexpected"] - len(rows))
    return {
        "expected": told["expected"],
        "observed": told["observed"],
        "columns": columns,
        "rows": cells,
        "more": more,
    }
