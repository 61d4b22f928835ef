"""The HTML report of an audit: one file that stands alone, to be looked at, kept and sent.

Invariant: it is made from the audit's document alone, loads nothing, runs nothing, and holds no payload that
the document does not hold. A reader finds the old file or the new one, never half of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from onceover.audit import reportparts as parts
from onceover.audit.htmlpage import frame, put
from onceover.audit.jsonreport import summary
from onceover.audit.plots import ages_svg, commits_svg, records_svg
from onceover.audit.reportstyle import sign
from onceover.errors import UsageError
from onceover.shown import html

_DAY_MS: Final = 86_400_000
_LEGEND: Final = (
    ("before", "proven by an earlier audit"),
    ("done", "proven now"),
    ("open", "cannot be compared"),
    ("pending", "not proven"),
    ("bad", "not as it should be"),
)


def write(told: Mapping[str, Any], path: Path) -> None:
    """Write the report.

    Args:
        told: the audit's document (``jsonreport.document``).
        path: the file; its folder is created, an older file replaced.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        put(page(told), path)
    except OSError as error:
        raise UsageError(
            f"the audit's report cannot be written: {error.strerror}",
            code="REPORT",
            where=str(path),
            expected="a file in a directory that this user may write, with room",
            resolve="give another path with --report, or set ONCEOVER_HOME; the verdict stands either way",
        ) from error


def page(told: Mapping[str, Any]) -> str:
    """Return the report as HTML."""
    title = f"{told['verdict']}: audit of {told['flow']}"
    return frame(
        title,
        f"{_header(told)}<main>"
        f'<div class="tiles">{parts.tiles(told)}</div>{"".join(_sections(told))}{_footer(told)}</main>',
    )


def _header(told: Mapping[str, Any]) -> str:
    verdict = told["verdict"]
    sides = " → ".join(told.get(side, {}).get("alias", side) for side in ("source", "target"))
    scope = "" if told["complete"] else ", a sample"
    return (
        f'<header class="{verdict}"><div><div class="about">'
        f"<span>Audit of flow <b>{html(told['flow'])}</b> ({html(sides)})</span>"
        f"<span>{_time(told['started_ms'])}, since {html(told['since'])}{scope}</span></div>"
        f'<div class="answer">{sign(verdict)}<div><h1>{verdict}</h1><p>{html(summary(told))}</p></div>'
        "</div></div></header>"
    )


def _sections(told: Mapping[str, Any]) -> Iterator[str]:
    if told["findings"]["total"]:
        which = "The first records by name." if told["findings"]["more"] else "Each record by name."
        about = f"{parts.kinds(told)}. {which}"
        yield _section("What is not as it should be", about, parts.findings(told))
    legend = "".join(f'<span><i class="{kind}"></i>{text}</span>' for kind, text in _LEGEND)
    about = "One bar for each partition, from the first offset in scope to the last."
    yield _section("What is proven", about, f'<div class="legend">{legend}</div>{parts.strips(told)}')
    if told["records_over_time"] is not None:
        about = (
            "By record time, the target mirrored below the source. Red where the two differ; within a range "
            "records are spread evenly."
        )
        yield _section("Records over time", about, records_svg(told["records_over_time"]))
    if len(told["age_at_commit"]) > 1:
        yield _lag(told)
    if told["unverifiable"]["by_reason"]:
        about = "Counted, and never called right."
        yield _section("What could not be compared", about, parts.reasons(told))
    yield _section("What was expected", _asked(told), parts.expectations(told))


def _lag(told: Mapping[str, Any]) -> str:
    ages_ms = sorted(age_ms for _, age_ms in told["age_at_commit"])
    if ages_ms[len(ages_ms) // 2] <= _DAY_MS:
        about = "How old the newest record was when its transaction was committed on the target."
        return _section("Lag", about, ages_svg(told["age_at_commit"]))
    # Such records carry the time of what they tell of, not of their arrival: their age is no lag.
    about = "When records were committed on the target. Their own times are days older, and tell no lag."
    return _section("Copied over time", about, commits_svg(told["committed_over_time"]))


def _asked(told: Mapping[str, Any]) -> str:
    met = sum(1 for each in told["expectations"] if each["answer"] == "PASS")
    return (
        f"{met} of {len(told['expectations'])} expectations are met. The verdict is read off them, "
        "and off nothing else."
    )


def _section(title: str, about: str, body: str) -> str:
    return f"<section><h2>{html(title)}</h2><p>{html(about)}</p>{body}</section>"


def _footer(told: Mapping[str, Any]) -> str:
    flow = html(told["flow"])
    return (
        f"<footer>Bounds were fixed at {_time(told['started_ms'])}; read_committed on both sides; key, "
        "value, headers and timestamp compared, null told from empty. "
        f"Again: <code>onceover audit {flow}</code>; "
        f"everything anew: <code>onceover audit {flow} --full</code>.</footer>"
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
