"""What a drill's report says of the drill itself: who, where, of what, with what, and what came before. Pure.

An auditor asks for it (DORA, SOC 2, ISO 22301): a test has an id, a type, participants, the exact
configuration that was tested, a date of the next one, and somebody who signs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from onceover.drills.looks.rpo import Loss

# Of earlier drills: enough for a trend.
EARLIER: Final = 12
# What rules of resilience (DORA) and audits (SOC 2) want such evidence kept for, at most.
KEPT_YEARS: Final = 5
SIGNERS: Final = ("prepared by", "reviewed by", "accepted by")


@dataclass(frozen=True)
class DrillAbout:
    """What is known when a drill begins.

    Args:
        started_by: whoever started it, as Airflow or this machine calls them.
        host: where it runs.
        flow_sha256: of the flow file; ``versions`` of what runs, by name.
        kind: what sort of test it is.
        clusters: ids of source and target.
        schedule: when the next one comes by itself; None for by hand.
        earlier: drills of the flow before this one, the newest first (``DrillHistory.drills``).
        today: when it began, by the calendar; the report is to be kept for ``KEPT_YEARS`` from there.
    """

    started_by: str
    host: str
    flow_sha256: str
    versions: Mapping[str, str]
    kind: str = ""
    clusters: tuple[str, str] = ("", "")
    schedule: str | None = None
    earlier: Sequence[Mapping[str, Any]] = ()
    today: date | None = None

    def document(self) -> dict[str, Any]:
        """Return it as it stands in a report."""
        return {
            "type": self.kind,
            "started_by": self.started_by,
            "host": self.host,
            "flow_sha256": self.flow_sha256,
            "clusters": {"source": self.clusters[0], "target": self.clusters[1]},
            "versions": dict(self.versions),
            "next": self.schedule,
            "keep_until": None if self.today is None else str(_years_on(self.today, KEPT_YEARS)),
            "earlier": [dict(each) for each in self.earlier[:EARLIER]],
            "sign_off": dict.fromkeys(SIGNERS),
        }


def _years_on(day: date, years: int) -> date:
    """Return the same day some years on; the 1st of March for a 29th of February that is none there."""
    try:
        return day.replace(year=day.year + years)
    except ValueError:
        return date(day.year + years, 3, 1)


@dataclass(frozen=True)
class TrendBar:
    """One drill in the picture of the last ones; ``width`` in percent of the longest, or of the objective.

    ``lost`` says in words what was on the source alone, empty where that is not known.
    """

    drill: str
    began_ms: int
    result: str
    seconds: float | None
    lost: str
    width: float


def trend(drills: Sequence[Mapping[str, Any]], objective_s: float) -> tuple[list[TrendBar], float]:
    """Return the bars of some drills, and where the objective is, in percent of the picture's width.

    Args:
        drills: each with ``drill``, ``began_ms``, ``result``; and ``rto_s``, ``rpo_offsets`` and ``rpo_s``,
            which may be None.
    """
    longest_s = max([objective_s, *(each["rto_s"] or 0.0 for each in drills)]) or 1.0
    # An objective of many minutes would make every bar a hair: the picture ends where the drills do.
    most_s = max((each["rto_s"] or 0.0 for each in drills), default=0.0)
    full_s = longest_s if most_s * 4 >= objective_s else (most_s or 1.0)
    bars = [
        TrendBar(
            str(each["drill"]),
            int(each["began_ms"]),
            str(each["result"] or "not ended"),
            each["rto_s"],
            _lost(each),
            round(100 * min(1.0, (each["rto_s"] or 0.0) / full_s), 2),
        )
        for each in drills
    ]
    return bars, round(100 * min(1.0, objective_s / full_s), 2)


def _lost(drill: Mapping[str, Any]) -> str:
    loss = Loss.of_drill(drill)
    return "" if loss.offsets is None else f"on the source alone: {loss.describe()}"
