"""What a flow's filter does not reach: copying nothing is told from having nothing to do. Pure.

Invariant: a remark never stops anything; topics may come later, and patterns may be there for them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from onceover.planning.plan import Refusal
from onceover.topics.codes import TopicCode
from onceover.topics.scope import Rules, ScopeDecision

_INCLUDE: Final = "topics.include"
_NAMED: Final = 5
# Brokers leave out of a list of topics what a login may not describe, as if it were not there.
_UNSEEN: Final = "where it is there, grant DESCRIBE on it, without which brokers do not show it"


def scope_remarks(flow: str, rules: Rules, decisions: Collection[ScopeDecision]) -> list[Refusal]:
    """Return what deserves a look: no topic in scope at all, or a pattern that brings none in.

    Args:
        flow: its name.
        rules: from the flow file.
        decisions: on every topic that is on the source or enrolled.
    """
    inside = [decision.topic for decision in decisions if decision.inside]
    if not inside:
        return [_nothing(flow, rules)]
    return [
        _idle(flow, pattern, decisions)
        for pattern in rules.include
        if not any(re.fullmatch(pattern, topic) for topic in inside)
    ]


def nothing_in_scope(remarks: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the sentence that says so where remarks, as documents, say that nothing is in scope."""
    return next(
        (f"{r['message']}; {r['resolve']}" for r in remarks if r["code"] == TopicCode.NOTHING_IN_SCOPE), None
    )


def _nothing(flow: str, rules: Rules) -> Refusal:
    more = ", ..." if len(rules.include) > _NAMED else ""
    return Refusal(
        _INCLUDE,
        TopicCode.NOTHING_IN_SCOPE,
        f"no topic of the source is in scope of flow {flow}, nothing is copied: "
        f"{', '.join(rules.include[:_NAMED])}{more}",
        f"correct the patterns, or create the topic; {_UNSEEN}; which is in and which is out: {_look(flow)}",
        blocks=False,
    )


def _idle(flow: str, pattern: str, decisions: Iterable[ScopeDecision]) -> Refusal:
    left_out = next((v for v in decisions if re.fullmatch(pattern, v.topic)), None)
    why = (
        f"pattern {pattern} matches no topic of the source"
        if left_out is None
        else f"pattern {pattern} matches only topics that are left out, such as {left_out.topic} "
        f"({left_out.reason})"
    )
    return Refusal(
        _INCLUDE,
        TopicCode.PATTERN_WITHOUT_TOPIC,
        why,
        "correct the pattern, or leave it for topics that will come; "
        + (f"{_UNSEEN}; " if left_out is None else "")
        + f"all topics: {_look(flow)}",
        blocks=False,
    )


def _look(flow: str) -> str:
    return f"onceover flow check {flow} --explain"
