"""The Data Docs: what Great Expectations found, suite by suite, as pages that need nothing but themselves.

Its own site builds its index with scripts and takes its looks from the web; a page that is served beside
Airflow's session, or opened from an archive, can have neither.

Invariant: every answer and number on them is Great Expectations' own, read from the audit's document; its
full results lie beside them as JSON. Every text is escaped: it may hold names that other people chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from onceover.audit.htmlpage import frame, put
from onceover.audit.jsonreport import summary
from onceover.audit.model import Verdict
from onceover.audit.reportparts import SUITE_NAMES
from onceover.audit.reportstyle import sign
from onceover.audit.suites import SUITES
from onceover.errors import UsageError
from onceover.shown import html

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
        raise UsageError(
            f"the audit's Data Docs cannot be written: {error.strerror}",
            code="DATA_DOCS",
            where=str(folder),
            expected="a directory that this user may write, with room",
            resolve="set ONCEOVER_HOME to such a directory; the verdict stands either way",
        ) from error
    return folder / INDEX


def verdict_of(expectations: Sequence[Mapping[str, Any]]) -> Verdict:
    """Return what some expectations amount to: the worst of their answers."""
    answers = {each["answer"] for each in expectations}
    return next((v for v in (Verdict.FAIL, Verdict.UNVERIFIABLE) if v in answers), Verdict.PASS)


def index_page(told: Mapping[str, Any], *, has_report: bool) -> str:
    """Return the page that lists the suites, each with its verdict and counts."""
    rows = "".join(_suite_row(suite, _of(told, suite)) for suite in SUITES)
    head = "<tr><th></th><th>suite</th><th>expectations met</th><th>rows not so</th><th></th></tr>"
    link = f' <a href="../{_REPORT}">The audit\'s report</a> has the findings by name.' if has_report else ""
    about = (
        "Great Expectations evaluates these suites over the audit's tables; the verdict is read off its "
        f"results.{link}"
    )
    body = f"<section><h2>Suites</h2><p>{about}</p><table>{head}{rows}</table></section>"
    return frame(
        f"{told['verdict']}: Data Docs of {told['flow']}",
        _header(told, told["verdict"], told["verdict"], summary(told)) + f'<main class="plain">{body}</main>',
    )


def suite_page(told: Mapping[str, Any], suite: str) -> str:
    """Return the page of one suite: every expectation, what was seen, and where it was not so."""
    expectations = _of(told, suite)
    verdict = verdict_of(expectations)
    rows = "".join(_expectation_row(each) for each in expectations)
    head = "<tr><th></th><th>expectation</th><th>observed</th></tr>"
    unmet = "".join(
        _numbers(each, suite) for each in expectations if each["answer"] != Verdict.PASS and each["numbers"]
    )
    body = (
        f'<nav><a href="{INDEX}">All suites</a> {_neighbours(suite)}</nav>'
        f"<section><h2>Expectations</h2><p>{html(_ABOUT[suite])} "
        f'<a href="{suite}.json">All results as JSON</a></p><table>{head}{rows}</table></section>{unmet}'
    )
    met = sum(1 for each in expectations if each["answer"] == Verdict.PASS)
    return frame(
        f"{verdict}: {SUITE_NAMES[suite]} of {told['flow']}",
        _header(told, verdict, SUITE_NAMES[suite], f"{met} of {len(expectations)} expectations are met.")
        + f'<main class="plain">{body}</main>',
    )


def _of(told: Mapping[str, Any], suite: str) -> list[Mapping[str, Any]]:
    return [each for each in told["expectations"] if each["suite"] == suite]


def _header(told: Mapping[str, Any], verdict: str, title: str, text: str) -> str:
    sides = " → ".join(told.get(side, {}).get("alias", side) for side in ("source", "target"))
    at = datetime.fromtimestamp(told["started_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f'<header class="{verdict} plain"><div><div class="about">'
        f"<span>Data Docs of flow <b>{html(told['flow'])}</b> ({html(sides)})</span>"
        f"<span>audit of {at}</span></div>"
        f'<div class="answer">{sign(verdict)}<div><h1>{html(title)}</h1><p>{html(text)}</p></div></div>'
        "</div></header>"
    )


def _suite_row(suite: str, expectations: Sequence[Mapping[str, Any]]) -> str:
    verdict = verdict_of(expectations)
    met = sum(1 for each in expectations if each["answer"] == Verdict.PASS)
    unexpected = sum(each["unexpected"] for each in expectations if each["answer"] != Verdict.PASS)
    return (
        f'<tr id="{suite}"><td><span class="pill {verdict}">{verdict}</span></td>'
        f'<td><a href="{suite}.html">{html(SUITE_NAMES[suite])}</a></td>'
        f'<td class="number">{met} of {len(expectations)}</td>'
        f'<td class="number">{unexpected:,}</td><td>{html(_ABOUT[suite])}</td></tr>'
    )


def _neighbours(suite: str) -> str:
    links = (
        f'<b aria-current="page">{html(SUITE_NAMES[each])}</b>'
        if each == suite
        else f'<a href="{each}.html">{html(SUITE_NAMES[each])}</a>'
        for each in SUITES
    )
    return " ".join(links)


def _expectation_row(told: Mapping[str, Any]) -> str:
    answer = told["answer"]
    asked = f'<div class="code">{html(told["expectation"])}</div>' if told["expectation"] else ""
    return (
        f'<tr><td><span class="pill {answer}">{answer}</span></td>'
        f"<td>{html(told['expected'])}{asked}</td><td>{html(told['observed'])}</td></tr>"
    )


def _numbers(told: Mapping[str, Any], suite: str) -> str:
    """Return the rows in which an expectation was not met."""
    rows = told["numbers"]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    head = "".join(f"<th>{html(column)}</th>" for column in columns)
    lines = "".join(
        "<tr>" + "".join(f"<td>{_cell(row.get(column))}</td>" for column in columns) + "</tr>" for row in rows
    )
    left = told["unexpected"] - len(rows)
    more = (
        f'<p><small>{left:,} more rows are in <a href="{suite}.json">the results</a>.</small></p>'
        if left > 0
        else ""
    )
    return (
        f"<section><h2>Not so: {html(told['expected'])}</h2><p>{html(told['observed'])}</p>"
        f'<div class="wide"><table class="numbers"><tr>{head}</tr>{lines}</table></div>{more}</section>'
    )


def _cell(value: Any) -> str:
    return "–" if value is None else html(str(value))
