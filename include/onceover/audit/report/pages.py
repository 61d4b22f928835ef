"""The HTML report of an audit: one file that stands alone, to be looked at, kept and sent.

Invariant: it is made from the audit's document alone, loads nothing, runs nothing, and holds no payload that
the document does not hold. A reader finds the old file or the new one, never half of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from onceover.audit.codes import AuditCode
from onceover.audit.report import parts
from onceover.audit.report.htmlpage import drawn, render
from onceover.audit.report.jsonreport import summary
from onceover.audit.report.nextsteps import first_wrong, next_steps
from onceover.audit.report.plots import ages_svg, commits_svg, records_svg
from onceover.audit.report.unwritten import unwritten
from onceover.replacing import put
from onceover.state.records.verdicts import Verdict

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
        NeedsOperator: there is no room for it.
    """
    try:
        put(page(told), path)
    except OSError as error:
        raise unwritten(AuditCode.REPORT, "report", path, told, error) from error


def page(told: Mapping[str, Any]) -> str:
    """Return the report as HTML."""
    return render(
        "report",
        told=told,
        sides=parts.sides_of(told),
        summary=summary(told),
        tiles=parts.tiles(told),
        kinds=parts.kinds(told),
        findings=parts.findings(told),
        legend=_LEGEND,
        strips=parts.strips(told),
        plots=list(_plots(told)),
        meaning=parts.MEANING,
        asked=_asked(told),
        suites=parts.expectations(told),
        steps=next_steps(told),
        first=_first(told),
        about=parts.about(told),
        earlier=told.get("earlier", ()),
    )


def _first(told: Mapping[str, Any]) -> str:
    """Return where it went wrong first, as a sentence."""
    found = first_wrong(told)
    return "" if found is None else f"The first record that is not as it should be: {found}."


def _plots(told: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    over_time, ages = told["records_over_time"], told["age_at_commit"]
    if over_time is not None:
        about = (
            "By record time, the target mirrored below the source. Red where the two differ; within a range "
            "records are spread evenly."
        )
        yield _plot("Records over time", about, records_svg(over_time))
    if len(ages) <= 1:
        return
    ages_ms = sorted(age_ms for _, age_ms in ages)
    if ages_ms[len(ages_ms) // 2] <= _DAY_MS:
        about = "How old the newest record was when its transaction was committed on the target."
        yield _plot("Lag", about, ages_svg(ages))
    else:
        # Such records carry the time of what they tell of, not of their arrival: their age is no lag.
        about = "When records were committed on the target. Their own times are days older, and tell no lag."
        yield _plot("Copied over time", about, commits_svg(told["committed_over_time"]))


def _plot(title: str, about: str, svg: str) -> dict[str, str]:
    return {"title": title, "about": about, "svg": drawn(svg)}


def _asked(told: Mapping[str, Any]) -> str:
    met = sum(1 for each in told["expectations"] if each["answer"] == Verdict.PASS)
    return (
        f"{met} of {len(told['expectations'])} expectations are met. The verdict is read off them, "
        "and off nothing else."
    )
