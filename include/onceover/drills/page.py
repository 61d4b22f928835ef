"""The report of a drill as a page that stands alone: for people who decide, and for auditors. Pure.

Invariant: it is made from the drill's document alone, loads nothing and runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onceover.ages import age_text
from onceover.audit.report.htmlpage import render
from onceover.drills.about import trend
from onceover.drills.chain import DrillResult
from onceover.drills.codes import DrillCode
from onceover.drills.looks.rpo import rpo_text
from onceover.state.records.verdicts import Verdict

_TEMPLATES: Final = Path(__file__).with_name("templates")
_REHEARSAL: Final = "rehearsal"
_STATES: Final = {"done": Verdict.PASS, "failed": Verdict.FAIL}


def drill_page(told: Mapping[str, Any]) -> str:
    """Return the report as HTML.

    Args:
        told: ``DrillOutcome.document``.
    """
    return render(
        "drill",
        beside=_TEMPLATES,
        told=told,
        words=_words(told),
        verdict=told["verdict"] or Verdict.UNVERIFIABLE,
        heading=told["verdict"] or "Not ended",
        answer=_answer(told),
        findings=(
            ("What makes it fail", "Every other step was done all the same.", Verdict.FAIL, _failing(told)),
            (
                "What somebody should look at",
                "It does not make it fail.",
                Verdict.UNVERIFIABLE,
                [each for each in told["findings"] if not each["fails"]],
            ),
        ),
        tiles=_tiles(told),
        steps=[{**step, "pill": _STATES.get(step["state"], Verdict.UNVERIFIABLE)} for step in told["steps"]],
        trend=_trend(told),
        losses=_evidence(told, "look").get("losses") or (),
    )


def _words(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the page calls things."""
    plan, topics = told["plan"], ", ".join(told["plan"]["topics"])
    if told["mode"] == _REHEARSAL:
        copied = _evidence(told, "copy")
        left_out = copied.get("left_out", ())
        topics = ", ".join(topic for topic in plan["topics"] if topic not in left_out)
        return {
            "title": "rehearsal",
            "what": "Rehearsal of a failover",
            "subject": "What was rehearsed" if copied else "What was to be rehearsed",
            "subject_about": "No client was touched, and nothing stays on either cluster.",
            "subjects": (
                (
                    f"topics, of each partition the newest {plan['sample']:,} offsets",
                    topics or "canaries only",
                ),
                *((("chosen, and not copied", ", ".join(left_out)),) if left_out else ()),
                ("groups", ", ".join(plan["groups"]) or "the canaries' own"),
            ),
            "trend": "Seconds that clients would have waited for us, this rehearsal last.",
            "again": f"Again: onceover drill run {told['flow']};",
        }
    return {
        "title": "switchover",
        "what": f"{told['mode'].capitalize()} switchover",
        "subject": "What was switched over",
        "subject_about": "Until promote a failing run undoes itself; behind it it only goes forward.",
        "subjects": (("topics", topics), ("goes on behind", plan["goes_on"] or "nothing: it is the first")),
        "trend": "Seconds that clients waited for us, this one last.",
        "again": f"Go on where it was interrupted: onceover drill run {told['flow']} --mode {told['mode']};",
    }


def _answer(told: Mapping[str, Any]) -> str:
    failed = [step["title"] for step in told["steps"] if step["error"] is not None]
    if told["verdict"] is None:
        return "The drill is running, or died: what is below was seen until then."
    if failed:
        return f"It failed at: {failed[0]}."
    if told["verdict"] == DrillResult.PASS and told["mode"] == "unplanned":
        return "The flow was fenced, and what had been copied was given to clients; what is missing is below."
    if told["verdict"] == DrillResult.PASS and told["mode"] != _REHEARSAL:
        return (
            "Writers were kept off, everything was copied and compared, groups were put in place, and the "
            "copies were given to clients."
        )
    if told["verdict"] == DrillResult.PASS:
        return (
            "A failover was rehearsed beside the running flow: records, positions and who reads on with them "
            "were checked on the target, and everything was taken away again."
        )
    if all(each["code"] == DrillCode.RTO_MISSED for each in _failing(told)):
        return "Every step was done, but took longer than the objective allows."
    return "Every step was done, and not everything is as it should be: what makes it fail is below."


def _failing(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in told["findings"] if each["fails"]]


def _tiles(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    compared, seconds = _evidence(told, "compare"), told["rto"]["seconds"]
    # What a switchover has compared while writers still wrote belongs to it.
    records = sum(_evidence(told, name).get("records", 0) for name in ("audit", "compare"))
    tiles = [
        (
            "-" if seconds is None else f"{seconds:.1f} s",
            f"for clients; objective {told['rto']['objective_s']:.0f} s",
        ),
        (f"{records:,}" if compared else "-", "records compared on both sides"),
        (f"{compared['different']:,}" if compared else "-", "of them different"),
        _loss_tile(told),
    ]
    return tiles + (_rehearsed(told) if told["mode"] == _REHEARSAL else _switched(told))


def _loss_tile(told: Mapping[str, Any]) -> tuple[str, str]:
    rpo = told["rpo"]
    age = "" if not rpo["offsets"] or rpo["seconds"] is None else f" / {age_text(rpo['seconds'])}"
    words = "offsets on the source alone"
    words += " / age of the oldest" if age else ""
    words += ", without warning" if told["mode"] == _REHEARSAL else ""
    number = "-" if rpo["offsets"] is None else f"{rpo['offsets']:,}"
    return f"{number}{age}", f"{words}; objective {rpo_text(rpo['objective'])}"


def _rehearsed(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    verified = _evidence(told, "verify")
    canaries = verified.get("canaries", ())
    lost = sum(each["missing"] for each in canaries)
    again = sum(each["repeated"] for each in canaries)
    positions = verified.get("positions")
    return [
        (f"{lost} / {again}" if canaries else "-", "canaries lost / repeated"),
        (f"{positions['exact']:,}" if positions else "-", "positions of groups checked exactly"),
    ]


def _switched(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    compared, verified = _evidence(told, "compare"), _evidence(told, "verify")
    return [
        (f"{compared['exact']:,}" if compared else "-", "positions of groups checked exactly"),
        (
            f"{verified['clients_on_the_target']:,} / {verified.get('clients_on_the_source', '?')}"
            if verified
            else "-",
            "consumers on the target / still on the source",
        ),
    ]


def _trend(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return this drill and those before it as bars, the oldest first."""
    this = {
        "drill": told["drill"],
        "began_ms": told["began_ms"],
        "result": told["verdict"],
        "rto_s": told["rto"]["seconds"],
        "rpo_offsets": told["rpo"]["offsets"],
        "rpo_s": told["rpo"]["seconds"],
    }
    bars, objective = trend([this, *told["about"]["earlier"]][::-1], told["rto"]["objective_s"])
    return {"bars": bars, "objective": objective}


def _evidence(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next((step["evidence"] for step in told["steps"] if step["name"] == name), {})
