"""Which topics are in, which are out, and why: the ``topics`` of ``status``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onceover.kafka.ports import TopicInfo
from onceover.state.records.enrolment import Enrolment, Promoted
from onceover.topics.scope import Rules, ScopeDecision, explain, internal_reason

_SHOWN = 3


def topic_entries(
    rules: Rules,
    source: Mapping[str, TopicInfo],
    enrolments: Iterable[Enrolment],
    refused: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return an entry for every topic that is on the source or enrolled; internal ones are left out.

    Args:
        rules: from the flow file as it is now.
        source: all topics of the source.
        enrolments: all of the flow's.
        refused: what the running flow refuses, as it wrote it down.
    """
    known = {e.source: e for e in enrolments}
    problems = {r["object"]: r["message"] for r in refused if r.get("blocks", True)}
    entries = []
    for name in sorted(source.keys() | known.keys()):
        info, enrolment = source.get(name), known.get(name)
        internal = internal_reason(name, rules.naming) is not None or (info is not None and info.is_internal)
        if enrolment is not None or not internal:
            decision = explain(name, rules, is_internal=info.is_internal if info else False)
            entries.append(_entry(decision, info, enrolment, problems.get(name)))
    return entries


def _entry(
    decision: ScopeDecision, info: TopicInfo | None, enrolment: Enrolment | None, problem: str | None
) -> dict[str, Any]:
    copied = enrolment is not None and enrolment.active
    inside, reason, rule = decision.inside, decision.reason, str(decision.ruling.rule)
    if inside and problem is not None:
        inside, reason = copied, f"refused: {problem}"
    promoted = enrolment.promoted if enrolment is not None and enrolment.is_promoted else None
    if enrolment is not None and promoted is not None:
        inside = False
        reason = f"promoted: switchover {promoted.drill} has given {enrolment.target} to clients"
    partitions = len(info.partitions) if info else len(enrolment.start) if enrolment else 0
    return {
        "topic": decision.topic,
        "target_topic": enrolment.target if enrolment else decision.target_topic,
        "in": inside,
        "reason": reason,
        "rule": rule,
        "pattern": decision.ruling.pattern,
        "on_source": info is not None,
        "enrolled": enrolment is not None,
        "promoted": _promotion(promoted),
        "partitions": partitions,
    }


def _promotion(promoted: Promoted | None) -> dict[str, Any] | None:
    """Return which switchover, and up to which source offset each partition was copied before it."""
    if promoted is None:
        return None
    cuts = {str(partition): cut for partition, cut in sorted(promoted.cuts.items())}
    return {"drill": promoted.drill, "cuts": cuts}


def describe_topics(entries: Sequence[Mapping[str, Any]], flow: str) -> str | None:
    """Return one line about what is in and out, None when there are no topics."""
    inside = [entry for entry in entries if entry["in"]]
    outside = [entry for entry in entries if not entry["in"]]
    if not outside:
        return f"  topics: in {len(inside)}" if inside else None
    shown = ", ".join(str(entry["topic"]) for entry in outside[:_SHOWN])
    more = ", ..." if len(outside) > _SHOWN else ""
    return (
        f"  topics: in {len(inside)}, out {len(outside)}: {shown}{more} "
        f"(why: onceover status {flow} --topic TOPIC)"
    )
