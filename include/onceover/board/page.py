"""The pages themselves: what ``status`` says of flows, for people who would rather look than read. Pure.

Invariant: a page loads nothing and runs nothing (``onceover.audit.report.htmlpage``), and its size is bounded
however many partitions a flow has: what is not in order is shown first, the rest is counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceover.ages import age_text
from onceover.audit.report.htmlpage import drawn, render
from onceover.board.charts import ChartBar, ChartPoint, bar_chart, line_chart, spark_line
from onceover.board.known import (
    all_shortened,
    audit_words,
    committed_words,
    drills_unknown_why,
    groups_unknown_why,
    oldest_words,
    partition_row,
    shortened,
    state_words,
    tiles,
    topics_unknown_why,
    unknown_why,
    verified_words,
)
from onceover.board.samples import LagSample
from onceover.config import values
from onceover.config.faults import message_lines
from onceover.drills.chain import DrillResult
from onceover.drills.looks.rpo import Loss, rpo_text
from onceover.drills.modes import PLANNED
from onceover.exitstatus import OK, TEMPORARY
from onceover.groups.standing import describe_standing
from onceover.operate.states import PartitionState
from onceover.state.records.runstate import describe_run
from onceover.state.records.verdicts import Verdict

_TEMPLATES: Final = Path(__file__).with_name("templates")
_ROWS: Final = 100
# Three looks that failed, or nobody was there. A driver that is silent counts as gone after 20.
STALE_S: Final = 30.0
_NEEDS: Final = 20
_NOTES: Final = 20
_DRILLS: Final = 8
_GROUPS: Final = 20
# Colours, and exit codes of ``status`` as such: everything else waits for somebody.
_BY_COLOUR: Final = (Verdict.PASS, Verdict.UNVERIFIABLE, Verdict.FAIL)
_COLOURS: Final = {OK: Verdict.PASS, TEMPORARY: Verdict.UNVERIFIABLE}
_ORDER: Final = {str(state): place for place, state in enumerate(PartitionState)}
# What Kafka takes for a name; what is in no address has no page.
NAMED: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Of a page's address: whatever stands there has a page, which says where it can be no topic.
TOPIC: Final = r"^(?s:.+)$"


@dataclass(frozen=True)
class Look:
    """What was seen last, and how old that is.

    Args:
        entries: as ``wiring.board.read_board`` returns them.
        age_s: how long ago it was seen; None where nothing was seen yet.
        problem: why it cannot be seen anew; None where it can.
    """

    entries: Sequence[Mapping[str, Any]]
    age_s: float | None
    problem: str | None = None

    @property
    def is_old(self) -> bool:
        """Tell whether nothing was seen yet, or that was too long ago."""
        return self.age_s is None or self.age_s > STALE_S

    @property
    def is_stale(self) -> bool:
        """Tell whether things may have become worse since: old news are no good news."""
        return self.is_old or self.problem is not None

    def dated(self, words: str, of: str = "") -> str:
        """Return a headline about something, which says itself how old it is where it is not of now."""
        when = f"{age_text(self.age_s)} ago" if self.is_stale and self.age_s is not None else ""
        return ": ".join(filter(None, (", ".join(filter(None, (of, when))), words)))


@dataclass(frozen=True)
class Links:
    """Where a page leads to.

    Args:
        home: address of Airflow's own first page.
        forms: address of the form that starts a DAG, by what it does.
        reports: address of a report, by flow and what it is of; empty where it is not at hand.
    """

    home: str
    forms: Mapping[str, str]
    reports: Mapping[tuple[str, str], str]


def all_flows(
    look: Look, samples: Mapping[str, Sequence[LagSample]], links: Links, *, still: bool = False
) -> str:
    """Return the page of all flows; ``still`` where it does not load itself anew."""
    rows = [_row(entry, samples.get(entry["flow"], ()), links) for entry in look.entries]
    rows.sort(key=lambda row: _BY_COLOUR.index(row["colour"]), reverse=True)
    colour = rows[0]["colour"] if rows else Verdict.PASS
    return render(
        "overview",
        beside=_TEMPLATES,
        colour=Verdict.UNVERIFIABLE if colour == Verdict.PASS and look.is_stale else colour,
        heading=_heading(look, rows),
        still=still,
        rows=rows,
        look=look,
        seen=seen_words(look),
        links=links,
    )


def one_flow(
    look: Look,
    entry: Mapping[str, Any],
    samples: Sequence[LagSample],
    links: Links,
    *,
    still: bool = False,
) -> str:
    """Return the page of one flow; ``still`` as above."""
    row = _row(entry, samples, links)
    if row["colour"] == Verdict.PASS and look.is_stale:
        row["colour"] = Verdict.UNVERIFIABLE
    return render(
        "flow",
        beside=_TEMPLATES,
        told=entry,
        row=row,
        still=still,
        look=look,
        seen=seen_words(look),
        heading=look.dated(row["state"], entry["flow"]),
        tiles=tiles(entry),
        lag=_lag_chart(samples),
        age=_age_chart(samples),
        speed=_speed_chart(samples),
        needs=[_need(need) for need in entry["needs"][:_NEEDS]],
        more_needs=max(0, len(entry["needs"]) - _NEEDS),
        notes=[all_shortened(note) for note in entry["notes"][:_NOTES]],
        partitions=_partitions(entry),
        outside=_outside(entry),
        groups=_groups(entry),
        drills=_drills(entry, links),
        links=links,
        report=links.reports.get((entry["flow"], "audit"), ""),
        data_docs=_data_docs(entry, links),
        unknown=unknown_why(entry),
        audit=shortened(audit_words(entry)),
        verified=verified_words(entry),
        run=describe_run(entry["run"]),
    )


def no_such_flow(flow: str, links: Links, up: str = "../") -> str:
    """Return the page for a flow of which nobody has heard; ``up`` leads from there to the page of all."""
    return render("noflow", beside=_TEMPLATES, flow=flow, links=links, up=up)


def _heading(look: Look, rows: Sequence[Mapping[str, Any]]) -> str:
    bad = [row for row in rows if row["colour"] == Verdict.FAIL]
    unknown = [row for row in rows if row["colour"] == Verdict.UNVERIFIABLE]
    if look.age_s is None:
        return "Asking the clusters"
    if not rows:
        return look.dated("No flows yet")
    return look.dated(_answer(rows, bad, unknown))


def _answer(
    rows: Sequence[Mapping[str, Any]], bad: Sequence[Mapping[str, Any]], unknown: Sequence[Mapping[str, Any]]
) -> str:
    """Return how all flows are, in one line."""
    if len(rows) == 1:
        return f"The flow {'needs somebody' if bad else 'is not fully known' if unknown else 'is in order'}"
    if bad:
        return f"{len(bad)} of {len(rows)} flows need{'s' if len(bad) == 1 else ''} somebody"
    if unknown:
        return f"{len(unknown)} of {len(rows)} flows not fully known"
    return "All flows are in order"


def seen_words(look: Look) -> str:
    """Return how long ago the clusters were asked."""
    return "not seen yet" if look.age_s is None else f"seen {age_text(look.age_s)} ago"


def _row(entry: Mapping[str, Any], samples: Sequence[LagSample], links: Links) -> dict[str, Any]:
    needs = entry["needs"]
    return {
        "flow": entry["flow"],
        # A file that no flow can be called after has an entry, which says so, and no page of its own.
        "page": f"flows/{entry['flow']}" if values.NAME.fullmatch(entry["flow"]) else None,
        "colour": _COLOURS.get(entry["exit"], Verdict.FAIL),
        "state": state_words(entry),
        "route": f"{entry['source']['alias'] or '?'} → {entry['target']['alias'] or '?'}",
        "lag": "unknown" if entry["lag_offsets"] is None else f"{entry['lag_offsets']:,}",
        "oldest": oldest_words(entry),
        "committed": committed_words(entry),
        "verified": verified_words(entry),
        "is_known": unknown_why(entry) is None,
        "audit": None if entry["audit"] is None else entry["audit"]["verdict"],
        "report": links.reports.get((entry["flow"], "audit"), ""),
        "first": _need(needs[0]) if needs else None,
        "more": max(0, len(needs) - 1),
        "spark": _spark(samples),
    }


def _need(need: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what has to be done, no longer than anybody reads, with the lines of its message."""
    shown = all_shortened(need)
    return {**shown, "lines": message_lines(shown["code"], shown["message"])}


def _spark(samples: Sequence[LagSample]) -> Any:
    """Return the lag as a line without words."""
    points = [ChartPoint(s.at_ms, s.lag_offsets) for s in samples[-60:]]
    return drawn(spark_line(points)) if len(points) > 1 else ""


def _lag_chart(samples: Sequence[LagSample]) -> Any:
    return _chart([ChartPoint(s.at_ms, s.lag_offsets) for s in samples], _short, "lag in offsets")


def _age_chart(samples: Sequence[LagSample]) -> Any:
    points = [ChartPoint(s.at_ms, s.oldest_missing_s) for s in samples]
    return _chart(points, age_text, "age of the oldest missing record")


def _speed_chart(samples: Sequence[LagSample]) -> Any:
    points = [ChartPoint(s.at_ms, s.copied_per_s) for s in samples]
    return _chart(points, _short, "offsets copied a second")


def _chart(points: Sequence[ChartPoint], words: Any, title: str) -> Any:
    return drawn(line_chart(points, words, title)) if len(points) > 1 else ""


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def _partitions(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return those that are not in order first, then those that lack most."""

    def place(partition: Mapping[str, Any]) -> tuple[int, int]:
        return _ORDER.get(partition["state"], 0), -(partition["lag_offsets"] or 0)

    rows = sorted(entry["partitions"], key=place)
    shown = [{**partition_row(entry, p), **_topic_page(entry, p)} for p in rows[:_ROWS]]
    return {"rows": shown, "more": max(0, len(rows) - _ROWS)}


def _topic_page(entry: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, str]:
    topic = named["topic"]
    return {"page": f"{entry['flow']}/topics/{topic}" if NAMED.fullmatch(topic) else ""}


def _outside(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topics that are not copied, or why nobody knows them."""
    rows = [topic for topic in entry["topics"] if not topic["in"]]
    shown = [{**all_shortened(topic), **_topic_page(entry, topic)} for topic in rows[:_ROWS]]
    more = max(0, len(rows) - _ROWS)
    return {"rows": shown, "more": more, "unknown": topics_unknown_why(entry)}


def _data_docs(entry: Mapping[str, Any], links: Links) -> str:
    """Return the address of the last audit's Data Docs; empty where they are not at hand."""
    report = links.reports.get((entry["flow"], "audit"), "")
    return f"{report.rpartition('/')[0]}/{entry['data_docs']}" if report and entry.get("data_docs") else ""


def _groups(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how the groups stand, or why nobody knows; None before the first start."""
    told, unknown = entry["groups"], groups_unknown_why(entry)
    if unknown is not None:
        return {"groups": (), "unknown": shortened(unknown)}
    if told is None:
        return None
    more = told["more"] + max(0, len(told["groups"]) - _GROUPS)
    words = describe_standing(told, entry["flow"])
    shown = [all_shortened(group) for group in told["groups"][:_GROUPS]]
    return {**told, "groups": shown, "more": more, "words": words, "unknown": None}


def _drills(entry: Mapping[str, Any], links: Links) -> dict[str, Any]:
    told = entry.get("drills")
    rows = [
        {**each, "report": links.reports.get((entry["flow"], each["drill"]), ""), "lost": _lost(each)}
        for each in (told or {}).get("drills", ())[:_DRILLS]
    ]
    told = told or {}
    schedule, due_ms = told.get("schedule"), told.get("next_ms")
    return {
        "rows": rows,
        "unknown": drills_unknown_why(entry),
        "trend": _drill_chart(told),
        "losses": _loss_chart(told),
        "may_be_lost": rpo_text(told["rpo"]) if told else None,
        "objective": None if told.get("objective_s") is None else age_text(told["objective_s"]),
        "schedule": schedule,
        "next_ms": due_ms,
    }


def _lost(drill: Mapping[str, Any]) -> str:
    loss = Loss.of_drill(drill)
    return "-" if loss.offsets is None else loss.describe()


def _drill_chart(told: Mapping[str, Any]) -> Any:
    """Return how long clients waited in the last drills that have ended, the oldest first."""
    ended = [each for each in told.get("drills", ()) if each["result"] is not None]

    def bar(drill: Mapping[str, Any]) -> ChartBar:
        passed = drill["result"] == DrillResult.PASS
        # One that went on behind another one has passed, and has no seconds of its own.
        return ChartBar(
            drill["began_ms"], drill["rto_s"], None if passed and drill["rto_s"] is None else passed
        )

    bars = [bar(each) for each in reversed(ended)]
    if not bars:
        return ""
    title = "seconds that clients would have waited in the last drills"
    return drawn(bar_chart(bars, told.get("objective_s"), age_text, title))


def _loss_chart(told: Mapping[str, Any]) -> Any:
    """Return what was on the source alone in the last drills that have ended, measured as the objective."""
    ended = [each for each in told.get("drills", ()) if each["result"] is not None]
    if not ended:
        return ""
    in_seconds = told["rpo"]["seconds"] is not None
    limit = told["rpo"]["seconds" if in_seconds else "records"]

    def bar(drill: Mapping[str, Any]) -> ChartBar:
        loss = Loss.of_drill(drill)
        value = 0.0 if loss.offsets == 0 else loss.seconds if in_seconds else loss.offsets
        # Who may lose nothing is held to that where writers are kept off: by a planned one.
        is_held = limit > 0 or drill["mode"] == PLANNED
        is_good = None if value is None else value <= limit or not is_held
        return ChartBar(drill["began_ms"], value, is_good)

    words = age_text if in_seconds else _number
    title = (
        f"{'age of the oldest offset' if in_seconds else 'offsets'} on the source alone in the last drills"
    )
    return drawn(bar_chart([bar(each) for each in reversed(ended)], limit, words, title))


def _number(value: float) -> str:
    return f"{value:,.0f}"
