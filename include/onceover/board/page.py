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
from onceover.board.samples import LagSample
from onceover.config import values
from onceover.groups.standing import describe_standing
from onceover.operate.states import PartitionState
from onceover.operate.stuck import stuck_need, transaction_words
from onceover.state.records.runstate import describe_run
from onceover.state.records.verdicts import describe_audit
from onceover.state.records.verified import describe_verified

_TEMPLATES: Final = Path(__file__).with_name("templates")
_ROWS: Final = 100
# Six looks that failed, or nobody was there.
STALE_S: Final = 60.0
# Of a text that somebody's file has made long.
_LETTERS: Final = 1_500
_NEEDS: Final = 20
_NOTES: Final = 20
_DRILLS: Final = 8
_GROUPS: Final = 20
_GOOD, _UNKNOWN, _BAD = "PASS", "UNVERIFIABLE", "FAIL"
# Exit codes of ``status`` as colours: 0 in order, 5 not fully known; everything else waits for somebody.
_COLOURS: Final = {0: _GOOD, 5: _UNKNOWN}
_ORDER: Final = {str(state): place for place, state in enumerate(PartitionState)}
# What Kafka takes for a name; what is in no address has no page.
TOPIC: Final = r"^[a-zA-Z0-9._-]{1,249}$"


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
    rows.sort(key=lambda row: (_GOOD, _UNKNOWN, _BAD).index(row["colour"]), reverse=True)
    colour = rows[0]["colour"] if rows else _GOOD
    return render(
        "overview",
        beside=_TEMPLATES,
        colour=_UNKNOWN if colour == _GOOD and _is_stale(look) else colour,
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
    if row["colour"] == _GOOD and _is_stale(look):
        row["colour"] = _UNKNOWN
    return render(
        "flow",
        beside=_TEMPLATES,
        told=entry,
        row=row,
        still=still,
        look=look,
        seen=seen_words(look),
        tiles=_tiles(entry),
        lag=_lag_chart(samples),
        age=_age_chart(samples),
        speed=_speed_chart(samples),
        needs=[_cut(need) for need in entry["needs"][:_NEEDS]],
        more_needs=max(0, len(entry["needs"]) - _NEEDS),
        notes=entry["notes"][:_NOTES],
        partitions=_partitions(entry),
        outside=_outside(entry),
        groups=_groups(entry),
        drills=_drills(entry, links),
        links=links,
        report=links.reports.get((entry["flow"], "audit"), ""),
        audit=describe_audit(entry["audit"]) if entry["audit"] else None,
        verified=describe_verified(entry["verified"]),
        run=describe_run(entry["run"]),
    )


def no_such_flow(flow: str, links: Links, up: str = "../") -> str:
    """Return the page for a flow of which nobody has heard; ``up`` leads from there to the page of all."""
    return render("noflow", beside=_TEMPLATES, flow=flow, links=links, up=up)


def _is_stale(look: Look) -> bool:
    """Tell whether things may have become worse since: old news are no good news."""
    return look.is_old or look.problem is not None


def _heading(look: Look, rows: Sequence[Mapping[str, Any]]) -> str:
    bad = [row for row in rows if row["colour"] == _BAD]
    unknown = [row for row in rows if row["colour"] == _UNKNOWN]
    if look.age_s is None:
        return "Asking the clusters"
    if _is_stale(look) and not bad:
        return "Asking the clusters again"
    if not rows:
        return "No flows yet"
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
        "colour": _COLOURS.get(entry["exit"], _BAD),
        "state": str(entry["state"]).replace("_", " "),
        "route": f"{entry['source']['alias'] or '?'} → {entry['target']['alias'] or '?'}",
        "lag": "unknown" if entry["lag_offsets"] is None else f"{entry['lag_offsets']:,}",
        "oldest": _age(entry["oldest_missing_s"]),
        "committed": _age(entry["last_commit_s"]),
        "verified": describe_verified(entry["verified"]),
        "audit": None if entry["audit"] is None else entry["audit"]["verdict"],
        "report": links.reports.get((entry["flow"], "audit"), ""),
        "first": _cut(needs[0]) if needs else None,
        "more": max(0, len(needs) - 1),
        "spark": _spark(samples),
    }


def _cut(need: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what has to be done, no longer than anybody reads."""
    text = need["message"]
    return need if len(text) <= _LETTERS else {**need, "message": f"{text[:_LETTERS]} ..."}


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else age_text(seconds)


def _spark(samples: Sequence[LagSample]) -> Any:
    """Return the lag as a line without words."""
    points = [ChartPoint(s.at_ms, s.lag_offsets) for s in samples[-60:]]
    return drawn(spark_line(points)) if len(points) > 1 else ""


def _tiles(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    lag = entry["lag_offsets"]
    states = [p["state"] for p in entry["partitions"]]
    stopped = states.count("stopped")
    return [
        ("unknown" if lag is None else f"{lag:,}", "offsets that the target lacks"),
        (_age(entry["oldest_missing_s"]), "age of the oldest of them"),
        (_age(entry["last_commit_s"]), "since the last commit"),
        (f"{len(states):,}", f"partitions, {stopped:,} stopped"),
        (str(entry["generation"] or "-"), f"starts so far; {entry['lanes'] or '-'} lanes"),
    ]


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
    shown = [{**p, "why": why_words(entry["flow"], p), **_topic_page(entry, p)} for p in rows[:_ROWS]]
    return {"rows": shown, "more": max(0, len(rows) - _ROWS)}


def why_words(flow: str, partition: Mapping[str, Any]) -> dict[str, str]:
    """Return what keeps a partition, in words, with the code and what to do; nothing where nothing does."""
    told: Mapping[str, Any] = {}
    if partition["stop"]:
        told = partition["stop"]
    elif partition["state"] == PartitionState.STUCK:
        told = stuck_need(flow, partition)
    elif partition["open_offsets"]:
        whose = transaction_words(partition["open_transaction"])
        told = {"message": f"{partition['open_offsets']} offsets wait for {whose}"}
    return {name: str(told.get(name) or "") for name in ("code", "message", "resolve")}


def _topic_page(entry: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, str]:
    topic = named["topic"]
    return {"page": f"{entry['flow']}/topics/{topic}" if re.match(TOPIC, topic) else ""}


def _outside(entry: Mapping[str, Any]) -> dict[str, Any]:
    rows = [topic for topic in entry["topics"] if not topic["in"]]
    shown = [{**topic, **_topic_page(entry, topic)} for topic in rows[:_ROWS]]
    return {"rows": shown, "more": max(0, len(rows) - _ROWS)}


def _groups(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how the groups stand; None before the first start."""
    told = entry["groups"]
    if told is None:
        return None
    more = told["more"] + max(0, len(told["groups"]) - _GROUPS)
    words = describe_standing(told, entry["flow"])
    return {**told, "groups": told["groups"][:_GROUPS], "more": more, "words": words}


def _drills(entry: Mapping[str, Any], links: Links) -> dict[str, Any]:
    told = entry.get("drills")
    rows = [
        {**each, "report": links.reports.get((entry["flow"], each["drill"]), "")}
        for each in (told or {}).get("drills", ())[:_DRILLS]
    ]
    told = told or {}
    schedule, due_ms = told.get("schedule"), told.get("next_ms")
    return {
        "rows": rows,
        "problem": entry.get("drills_error"),
        "trend": _drill_chart(told),
        "objective": None if told.get("objective_s") is None else age_text(told["objective_s"]),
        "schedule": schedule,
        "next_ms": due_ms,
    }


def _drill_chart(told: Mapping[str, Any]) -> Any:
    """Return how long clients waited in the last drills that have ended, the oldest first."""
    ended = [each for each in told.get("drills", ()) if each["result"] is not None]
    bars = [ChartBar(each["began_ms"], each["rto_s"], each["result"] == _GOOD) for each in reversed(ended)]
    if not bars:
        return ""
    title = "seconds that clients would have waited in the last drills"
    return drawn(bar_chart(bars, told.get("objective_s"), age_text, title))
