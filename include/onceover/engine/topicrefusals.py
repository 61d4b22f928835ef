"""Why a topic is not copied, or not entirely as its source: the sentences, with the way out of each. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum, auto
from typing import Any, Final

from onceover.engine import commands, names
from onceover.engine.aside import Side
from onceover.engine.enrolment import MOST_PARTITIONS, Enrolment
from onceover.engine.lineage import Origin
from onceover.engine.naming import Naming
from onceover.engine.plan import Refusal
from onceover.engine.scope import Verdict
from onceover.engine.stops import StopCode
from onceover.errors import OnceoverError
from onceover.model import TopicPartition


class RefusalCode(StrEnum):
    """Every reason of ours why a topic is not taken in, or not entirely; docs/operations.md explains each.

    What a cluster answers when it refuses comes with codes of its own.
    """

    @staticmethod
    def _generate_next_value_(name: str, *_: Any) -> str:
        return name

    ENROLLED_ELSEWHERE = auto()
    CLAIMED_ELSEWHERE = auto()
    TWO_WAY = auto()
    RING = auto()
    CAME_FROM_TARGET = auto()
    GAVE_WAY = auto()
    TARGET_NOT_EMPTY = auto()
    PARTITION_COUNT = auto()
    TARGET_PARTITIONS = auto()
    TOO_MANY_PARTITIONS = auto()
    NAME_TOO_LONG = auto()
    NAME_REPEATS = auto()
    NAME_TAKEN = auto()
    NAME_COLLISION = auto()
    NAMING_CHANGED = auto()
    NO_LEADER = auto()
    OTHER_FLOW_UNREADABLE = auto()
    TARGET_RESTAMPS = auto()
    NOT_MANAGED = auto()
    CONFIG_UNREADABLE = auto()
    TARGET_REFUSES = auto()
    KEY_UNKNOWN = auto()
    KEY_REFUSED = auto()


# The one refusal that goes away by itself.
NO_LEADER = RefusalCode.NO_LEADER
# A topic is, or may be, another flow's, whatever is known about its positions.
NOT_OURS: Final = frozenset(
    {
        RefusalCode.ENROLLED_ELSEWHERE,
        RefusalCode.TWO_WAY,
        RefusalCode.RING,
        RefusalCode.CAME_FROM_TARGET,
        RefusalCode.OTHER_FLOW_UNREADABLE,
    }
)


def renamed(verdict: Verdict, enrolled_as: str) -> Refusal:
    """Return the refusal of a topic that is enrolled under another name."""
    return Refusal(
        verdict.topic,
        RefusalCode.NAMING_CHANGED,
        f"it is enrolled as {enrolled_as} and would be called {verdict.target_topic} now",
        "set topics.naming and source.alias back, or give the flow a new name to copy it anew",
    )


def copy_gone(old: Enrolment, flow: str) -> Refusal:
    """Return the refusal of an enrolled topic whose copy was deleted: its positions have to go with it."""
    return Refusal(
        old.source,
        StopCode.TARGET_MISSING,
        f"target topic {old.target} has been deleted, and the copied records with it",
        f"{commands.reseed(flow, old.sources()[0])}; it creates the topic again, for all its partitions",
    )


def hidden(old: Enrolment, side: Side, error: OnceoverError) -> Refusal:
    """Return the refusal of an enrolled topic that is there, or whose copy is, but may not be described."""
    on_source = side is Side.SOURCE
    topic = old.source if on_source else old.target
    return Refusal(
        old.source,
        StopCode.SOURCE_UNAUTHORIZED if on_source else StopCode.TARGET_UNAUTHORIZED,
        f"the principal may not describe {side} topic {topic}: {error.message}",
        f"grant it the rights listed in docs/operations.md on {topic}, then plan again",
    )


def bad_name(verdict: Verdict, code: RefusalCode, problem: str) -> Refusal:
    """Return the refusal of a topic whose copy cannot be called as it would be."""
    fix = f"add {verdict.topic} to topics.exclude, or give the flow a new name and another source.alias"
    return Refusal(verdict.topic, code, problem, fix)


def name_repeats(verdict: Verdict, again: str, flow: str) -> Refusal:
    """Return the refusal of a topic whose copy's name would begin with ``again`` over and over."""
    return Refusal(
        verdict.topic,
        RefusalCode.NAME_REPEATS,
        f"its copy would be called {verdict.target_topic}, with {again} again and again: flows whose files "
        "call the clusters differently copy each other's copies, in one more topic each time",
        "write the same alias of a cluster in all flow files, which leaves such topics out by their names; "
        f"or add {verdict.topic} to topics.exclude of flow {flow}",
    )


def owned_elsewhere(verdict: Verdict, owner: str, flow: str) -> Refusal:
    """Return the refusal of a target topic that flow ``owner`` writes."""
    return Refusal(
        verdict.topic,
        RefusalCode.ENROLLED_ELSEWHERE,
        f"flow {owner} already writes target topic {verdict.target_topic}; two flows would mix their records",
        f"add {verdict.topic} to topics.exclude of flow {flow}; if flow {owner} is retired for good, delete "
        f"its topic {names.state_topic(owner)}",
    )


def claimed_elsewhere(topic: str, flow: str) -> Refusal:
    """Return the refusal of a source topic that ``flow`` is taking in, or was when it was interrupted."""
    return Refusal(
        topic,
        RefusalCode.CLAIMED_ELSEWHERE,
        f"flow {flow} claims the same topic, and goes first; two flows would mix their records",
        f"add {topic} to topics.exclude of one of them; if flow {flow} was interrupted while it began, start "
        f"it once, which settles it; if it is retired for good, delete its topic {names.state_topic(flow)}",
    )


def looping(verdict: Verdict, flow: str, other: str, ring: tuple[str, ...]) -> Refusal:
    """Return the refusal of a topic that other flows copy back.

    Args:
        flow: this one.
        other: the one that does so alone.
        ring: those that do so together, beginning with the one that writes the topic; empty where one does.
    """
    if len(ring) > 1:
        return _ring(verdict, flow, ring)
    return Refusal(
        verdict.topic,
        RefusalCode.TWO_WAY,
        f"flow {other} copies target topic {verdict.target_topic} back to {verdict.topic}: "
        "records would go round for ever",
        f"add {verdict.topic} to topics.exclude of flow {flow}, or use `naming: prefix` in both flows; if "
        f"flow {other} is retired for good, delete its topic {names.state_topic(other)} on this flow's "
        "source",
    )


def came_from_target(verdict: Verdict, flow: str, origin: Origin, naming: Naming) -> Refusal:
    """Return the refusal of a topic whose records come from the target, and have another name there.

    Args:
        flow: this one; ``naming`` its names.
        origin: where on the target they come from, and by which flows.
    """
    first, alias = origin.first, origin.alias
    route = ", then ".join(hop.flow for hop in reversed(origin.way))
    message = (
        f"its records come from the target: flow {route} copied topic {first.topic} of that cluster; brought "
        f"back as {verdict.target_topic}, they would go round for ever, in one more topic each time"
    )
    fix = f"add {verdict.topic} to topics.exclude of flow {flow}"
    if alias is not None and alias != naming.target_alias:
        message += f". Flow {first.flow} calls that cluster {alias}, this flow calls it {naming.target_alias}"
        if (
            alias != naming.source_alias
            and replace(naming, target_alias=alias).hop(verdict.topic) is not None
        ):
            fix = (
                f"write {alias} as target.alias of flow {flow} and start it again, which leaves such topics "
                f"out by their names: a cluster needs the same alias in all flow files; or {fix}"
            )
    writer = origin.way[0].flow
    fix += f"; if flow {writer} is retired for good, delete its topic {names.state_topic(writer)} on this "
    return Refusal(verdict.topic, RefusalCode.CAME_FROM_TARGET, message, f"{fix}flow's source")


def gave_way(verdict: Verdict, flow: str, other: str) -> Refusal:
    """Return the refusal of a topic that could be copied again, but not from its old position.

    Args:
        flow: this one; ``other`` to which it was left.
    """
    options = "latest", "--topic", re.escape(verdict.topic), "--replace"
    return Refusal(
        verdict.topic,
        RefusalCode.GAVE_WAY,
        f"it was left to flow {other}, and nothing is in its way any more; but from its old position, what "
        f"has come from target topic {verdict.target_topic} to {verdict.topic} since would be copied back",
        f"while nobody writes to {verdict.topic}, {commands.seed_plan(flow, *options)} shows what is left "
        f"out by going on at its end, and {commands.seed_apply(flow, *options)} does it; where else it can "
        f"go on: docs/topics.md; or add {verdict.topic} to topics.exclude of flow {flow}",
    )


def _ring(verdict: Verdict, flow: str, flows: tuple[str, ...]) -> Refusal:
    writer, route = flows[0], ", then ".join(reversed(flows))
    return Refusal(
        verdict.topic,
        RefusalCode.RING,
        f"target topic {verdict.target_topic} is copied on and back to {verdict.topic}, by flow {route}: "
        "records would go round for ever",
        f"add {verdict.topic} to topics.exclude of flow {flow}, or use `naming: prefix` in all of them; "
        f"if flow {writer} is retired for good, delete its topic {names.state_topic(writer)} on this flow's "
        "source; if another one is, start the flow that copies on from it once",
    )


def other_unreadable(verdict: Verdict, flow: str, problem: str) -> Refusal:
    """Return the refusal of a new topic while nobody knows what ``flow`` copies."""
    return Refusal(
        verdict.topic,
        RefusalCode.OTHER_FLOW_UNREADABLE,
        f"the state of flow {flow} cannot be read ({problem}): whether it copies the topic is not known",
        f"see to flow {flow}; topics that are copied already go on",
    )


def leaderless(verdict: Verdict, topic: str, side: str) -> Refusal:
    """Return the refusal of a topic that has to wait for a broker."""
    return Refusal(
        verdict.topic,
        NO_LEADER,
        f"partitions of {topic} have no leader on the {side} at the moment",
        "bring the broker back; it is looked at again at the next discovery",
    )


def not_empty(verdict: Verdict, flow: str) -> Refusal:
    """Return the refusal of a target topic with records that are not this flow's."""
    return Refusal(
        verdict.topic,
        RefusalCode.TARGET_NOT_EMPTY,
        f"target topic {verdict.target_topic} holds records already, and what they are is not known",
        f"delete target topic {verdict.target_topic} if it may go, or add {verdict.topic} to topics.exclude "
        f"of flow {flow}; where its records are known to be copies: docs/seeding.md",
    )


def grown_into(topic: str, target: TopicPartition, flow: str) -> Refusal:
    """Return the refusal of partitions that were added to a topic: ``target`` holds others' records."""
    return Refusal(
        topic,
        RefusalCode.TARGET_NOT_EMPTY,
        f"{topic} has grown, and {target} holds records already that the flow has not written; its added"
        " partitions are not copied, the others are",
        f"delete target topic {target.topic} if those may go, and do what `onceover status {flow}` then says"
        f" of its partitions; or add {topic} to topics.exclude of flow {flow}",
    )


def partition_count(verdict: Verdict, seen: int, needed: int, flow: str) -> Refusal:
    """Return the refusal of a target topic with another number of partitions."""
    fix = f"delete target topic {verdict.target_topic}, which is empty: the flow creates it as it needs it"
    if seen < needed:
        fix = f"{commands.command('topics', 'apply', flow)} adds the missing ones"
    return Refusal(
        verdict.topic,
        RefusalCode.PARTITION_COUNT,
        f"target topic {verdict.target_topic} has {seen} partitions, the flow needs {needed}",
        fix,
    )


def too_many_partitions(verdict: Verdict, seen: int, flow: str) -> Refusal:
    """Return the refusal of a topic, or of partitions that were added to one, beyond what a record holds."""
    return Refusal(
        verdict.topic,
        RefusalCode.TOO_MANY_PARTITIONS,
        f"it has {seen} partitions, and a flow keeps {MOST_PARTITIONS} of a topic on record at most; if it "
        "has grown to that, its added partitions are not copied, the others are",
        f"spread its records over more topics, or add {verdict.topic} to topics.exclude of flow {flow}",
    )


def config_unread(verdict: Verdict, error: OnceoverError, *, blocks: bool) -> Refusal:
    """Return the refusal of a topic whose configuration cannot be read.

    Args:
        blocks: False for one that is copied all the same; its configuration is not followed meanwhile.
    """
    effect = "it is not taken in without" if blocks else "the copy's is not kept in line meanwhile"
    return Refusal(
        verdict.topic,
        RefusalCode.CONFIG_UNREADABLE,
        f"its configuration cannot be read ({error.message}): {effect}",
        error.resolve or "it is looked at again at the next discovery",
        blocks=blocks,
    )


def restamped(verdict: Verdict, flow: str, *, blocks: bool) -> Refusal:
    """Return the refusal of a target topic that overwrites timestamps.

    Args:
        blocks: False for one that is copied all the same.
    """
    return Refusal(
        verdict.topic,
        RefusalCode.TARGET_RESTAMPS,
        f"target topic {verdict.target_topic} gives records the time at which they are copied "
        "(message.timestamp.type=LogAppendTime, its own or its brokers' default)",
        f"{commands.command('topics', 'apply', flow)} sets CreateTime on it"
        + ("" if blocks else "; what was copied until then keeps the times that it got"),
        blocks=blocks,
    )


def not_enrolled(source: str, target: str, error: OnceoverError) -> Refusal:
    """Return the refusal of a topic to whose counterpart the target takes no progress, or which it hides."""
    return Refusal(
        source,
        RefusalCode.TARGET_REFUSES,
        f"the target does not let the flow work with topic {target}: {error.message}",
        error.resolve or "see to the topic; it is looked at again at the next discovery",
    )


def unmanaged(verdict: Verdict, keys: list[str], flow: str) -> Refusal:
    """Return the remark that a topic's configuration differs and is not the flow's to change."""
    return Refusal(
        verdict.topic,
        RefusalCode.NOT_MANAGED,
        f"target topic {verdict.target_topic} was not created by this flow and differs in {', '.join(keys)}",
        f"{commands.command('topics', 'plan', flow)} shows it, "
        f"{commands.command('topics', 'apply', flow)} would set it",
        blocks=False,
    )


def left_out(verdict: Verdict, code: RefusalCode, key: str, why: str) -> Refusal:
    """Return the remark that the copy does not get a configuration key."""
    return Refusal(
        verdict.topic,
        code,
        f"the target {why} {key}, which is not copied",
        "nothing to do unless the copy needs it: then set it on the target by hand",
        blocks=False,
    )
