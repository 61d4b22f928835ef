"""Whether a topic is part of a flow, and why. Pure; the only place that decides it.

Invariant: the answer depends on the topic's name, on the flow file, and on whether Kafka calls the topic
internal; never on what has been copied so far. Every answer has its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeVar

from onceover.topics.namingpolicy import PREFIX, NamingPolicy

# Never copied, whatever the filter says: their contents mean something to one cluster only.
INTERNAL: Final = (
    (re.compile(r"__.*"), "an internal topic of Kafka or Onceover"),
    (re.compile(r"mm2-.*\.internal|.*\.checkpoints\.internal|heartbeats"), "MirrorMaker 2's own"),
    (re.compile(r"connect-(configs|offsets|status)"), "Kafka Connect's own"),
)
_HEARTBEATS: Final = "heartbeats"


def _same_count(source_partitions: int) -> int:
    return source_partitions


@dataclass(frozen=True)
class Rules:
    """What decides; two that are equal decide the same.

    Args:
        include: anchored regular expressions; ``exclude`` likewise, and it wins.
        naming: names on the target, and hop detection.
        target_partitions: partitions of a copy for so many of its source; more than those only where a
            handler wants it. Raises ``UsageError`` for fewer.
        one_to_one: whether records stay in their partition; a handler may give them to any other.
        chosen: topics named one by one, which are in whatever their names say, and no others (rehearsals);
            None for the filter.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    naming: NamingPolicy
    target_partitions: Callable[[int], int] = field(default=_same_count, compare=False)
    one_to_one: bool = True
    chosen: frozenset[str] | None = None


class OnSource(Protocol):
    """A topic of the source, as its metadata has it."""

    @property
    def is_internal(self) -> bool:
        """Whether Kafka calls it internal."""


T = TypeVar("T", bound=OnSource)


class ScopeRule(StrEnum):
    """What decides about a topic. CHOSEN, NOT_CHOSEN: topics were named one by one (rehearsals)."""

    INCLUDED = "included"
    EXCLUDED = "excluded"
    NOT_INCLUDED = "not_included"
    INTERNAL = "internal"
    HOP = "hop"
    CHOSEN = "chosen"
    NOT_CHOSEN = "not_chosen"


class Ruling(NamedTuple):
    """A ``rule``, why it holds in words, and the ``pattern`` of the flow file that has decided; else None."""

    rule: ScopeRule
    reason: str
    pattern: str | None = None


@dataclass(frozen=True)
class ScopeDecision:
    """How a ``ruling`` puts ``topic`` in or out, and how its copy is called."""

    topic: str
    ruling: Ruling
    target_topic: str

    @property
    def inside(self) -> bool:
        """Tell whether the topic is part of the flow."""
        return self.ruling.rule in (ScopeRule.INCLUDED, ScopeRule.CHOSEN)

    @property
    def reason(self) -> str:
        """Return why, in words."""
        return self.ruling.reason


def explain(topic: str, rules: Rules, *, is_internal: bool = False) -> ScopeDecision:
    """Return whether ``topic`` is part of the flow, and why.

    Args:
        topic: name on the source.
        rules: from the flow file.
        is_internal: whether the source's metadata calls it internal; unknown without a connection.
    """
    ruling = _decide(topic, rules, is_internal=is_internal)
    return ScopeDecision(topic, ruling, rules.naming.target_name(topic))


def explain_all(topics: Mapping[str, OnSource], rules: Rules) -> list[ScopeDecision]:
    """Return whether each topic of the source is part of the flow, and why; by name.

    Args:
        topics: all that the source has.
        rules: from the flow file.
    """
    return [explain(name, rules, is_internal=topics[name].is_internal) for name in sorted(topics)]


def in_scope(topics: Mapping[str, T], rules: Rules) -> dict[str, T]:
    """Return those of the source's topics that are part of the flow, taken in or not; by name."""
    return {each.topic: topics[each.topic] for each in explain_all(topics, rules) if each.inside}


def _decide(topic: str, rules: Rules, *, is_internal: bool) -> Ruling:
    if rules.chosen is not None:
        if topic in rules.chosen:
            return Ruling(ScopeRule.CHOSEN, "chosen")
        return Ruling(ScopeRule.NOT_CHOSEN, "not chosen")
    internal = internal_reason(topic, rules.naming)
    if internal is not None:
        return Ruling(ScopeRule.INTERNAL, f"internal: {internal}")
    if is_internal:
        return Ruling(ScopeRule.INTERNAL, "internal: the source cluster says so")
    hop = rules.naming.hop(topic)
    if hop is not None:
        return Ruling(ScopeRule.HOP, f"hop: its name carries {hop}, so it came from the target")
    excluded = _first(rules.exclude, topic)
    if excluded is not None:
        return Ruling(ScopeRule.EXCLUDED, f"exclude: {excluded}", excluded)
    included = _first(rules.include, topic)
    if included is not None:
        return Ruling(ScopeRule.INCLUDED, f"include: {included}", included)
    return Ruling(ScopeRule.NOT_INCLUDED, "no include pattern matches")


def internal_reason(topic: str, naming: NamingPolicy) -> str | None:
    """Return whose internal topic it is by its name, None when it is nobody's."""
    for pattern, whose in INTERNAL:
        if pattern.fullmatch(topic):
            return whose
    aliases = (naming.source_alias, naming.target_alias)
    if naming.policy == PREFIX and topic in {f"{alias}.{_HEARTBEATS}" for alias in aliases}:
        return "MirrorMaker 2's own"
    return None


def _first(patterns: Iterable[str], topic: str) -> str | None:
    return next((pattern for pattern in patterns if re.fullmatch(pattern, topic)), None)
