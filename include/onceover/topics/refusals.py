"""Why a topic is not copied, or not entirely as its source: the sentences, with the way out of each. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from onceover.errors import OnceoverError
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.plan import Refusal
from onceover.shown import some
from onceover.state import names
from onceover.state.records.enrolment import MOST_PARTITIONS, Enrolment
from onceover.stops.aside import TroubleSide
from onceover.stops.codes import StopCode
from onceover.topics.codes import TopicCode
from onceover.topics.hops import ReturnOrigin
from onceover.topics.namingpolicy import NamingPolicy
from onceover.topics.scope import ScopeDecision

_NAMED: Final = 3
# A topic is, or may be, another flow's, whatever is known about its positions.
NOT_OURS: Final = frozenset(
    {
        TopicCode.ENROLLED_ELSEWHERE,
        TopicCode.TWO_WAY,
        TopicCode.RING,
        TopicCode.CAME_FROM_TARGET,
        TopicCode.OTHER_FLOW_UNREADABLE,
    }
)


def renamed(decision: ScopeDecision, enrolled_as: str) -> Refusal:
    """Return the refusal of a topic that is enrolled under another name."""
    return Refusal(
        decision.topic,
        TopicCode.NAMING_CHANGED,
        f"it is enrolled as {enrolled_as} and would be called {decision.target_topic} now",
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


def source_gone(old: Enrolment, flow: str) -> Refusal:
    """Return the refusal of an enrolled topic that was deleted."""
    return Refusal(
        old.source,
        StopCode.SOURCE_MISSING,
        f"source topic {old.source} has been deleted",
        f"add {old.source} to topics.exclude of flow {flow}, which keeps what was copied; or create it again"
        f" on the source, then {commands.reseed(flow, old.sources()[0])}",
    )


def made_anew(old: Enrolment, side: TroubleSide, flow: str) -> Refusal:
    """Return the refusal of an enrolled topic that is another one by now, or whose copy is."""
    on_source = side is TroubleSide.SOURCE
    topic = old.source if on_source else old.target
    effect = "its offsets mean other records now" if on_source else "what was copied is gone"
    return Refusal(
        old.source,
        StopCode.SOURCE_RECREATED if on_source else StopCode.TARGET_RECREATED,
        f"{side} topic {topic} was deleted and created anew: {effect}",
        f"{commands.reseed(flow, old.sources()[0])}; {commands.command('status', flow)} names each partition",
    )


def waiting(old: Enrolment, side: TroubleSide, partitions: Sequence[TopicPartition], flow: str) -> Refusal:
    """Return the refusal of partitions of such a topic that wait, where others were copied anew since."""
    first = partitions[0]
    anew = made_anew(old, side, flow)
    return replace(
        anew,
        message=f"{anew.message}; {some(partitions, _NAMED)} still wait, others are copied anew",
        resolve=f"{commands.reseed(flow, first)}; {commands.command('status', flow)} names each partition",
    )


def hidden(old: Enrolment, side: TroubleSide, error: OnceoverError) -> Refusal:
    """Return the refusal of an enrolled topic that is there, or whose copy is, but may not be described."""
    on_source = side is TroubleSide.SOURCE
    topic = old.source if on_source else old.target
    return Refusal(
        old.source,
        StopCode.SOURCE_UNAUTHORIZED if on_source else StopCode.TARGET_UNAUTHORIZED,
        f"the principal may not describe {side} topic {topic}: {error.message}",
        f"grant it the rights listed in docs/operations.md on {topic}, then plan again",
    )


def barred_copy(about: str, topic: str) -> Refusal:
    """Return the refusal of what would write progress of a target topic that may not be read.

    Args:
        about: what is refused: a source topic, or a partition.
    """
    return Refusal(
        about,
        StopCode.TARGET_UNAUTHORIZED,
        f"the principal may not read target topic {topic}: positions of it take READ on the topic",
        f"grant it the rights listed in docs/operations.md on {topic}, then plan again",
    )


def bad_name(decision: ScopeDecision, code: TopicCode, problem: str) -> Refusal:
    """Return the refusal of a topic whose copy cannot be called as it would be."""
    fix = f"add {decision.topic} to topics.exclude, or give the flow a new name and another source.alias"
    return Refusal(decision.topic, code, problem, fix)


def name_repeats(decision: ScopeDecision, again: str, flow: str) -> Refusal:
    """Return the refusal of a topic whose copy's name would begin with ``again`` over and over."""
    return Refusal(
        decision.topic,
        TopicCode.NAME_REPEATS,
        f"its copy would be called {decision.target_topic}, with {again} again and again: flows whose files "
        "call the clusters differently copy each other's copies, in one more topic each time",
        "write the same alias of a cluster in all flow files, which leaves such topics out by their names; "
        f"or add {decision.topic} to topics.exclude of flow {flow}",
    )


def owned_elsewhere(decision: ScopeDecision, owner: str, flow: str) -> Refusal:
    """Return the refusal of a target topic that flow ``owner`` writes."""
    return Refusal(
        decision.topic,
        TopicCode.ENROLLED_ELSEWHERE,
        f"flow {owner} already writes target topic {decision.target_topic}; two flows would mix their "
        "records",
        f"add {decision.topic} to topics.exclude of flow {flow}; if flow {owner} is retired for good, delete "
        f"its topic {names.state_topic(owner)}",
    )


def claimed_elsewhere(topic: str, flow: str) -> Refusal:
    """Return the refusal of a source topic that ``flow`` is taking in, or was when it was interrupted."""
    return Refusal(
        topic,
        TopicCode.CLAIMED_ELSEWHERE,
        f"flow {flow} claims the same topic, and goes first; two flows would mix their records",
        f"add {topic} to topics.exclude of one of them; if flow {flow} was interrupted while it began, start "
        f"it once, which settles it; if it is retired for good, delete its topic {names.state_topic(flow)}",
    )


def looping(decision: ScopeDecision, flow: str, other: str, ring: tuple[str, ...]) -> Refusal:
    """Return the refusal of a topic that other flows copy back.

    Args:
        flow: this one.
        other: the one that does so alone.
        ring: those that do so together, beginning with the one that writes the topic; empty where one does.
    """
    if len(ring) > 1:
        return _ring(decision, flow, ring)
    return Refusal(
        decision.topic,
        TopicCode.TWO_WAY,
        f"flow {other} copies target topic {decision.target_topic} back to {decision.topic}: "
        "records would go round for ever",
        f"add {decision.topic} to topics.exclude of flow {flow}, or use `naming: prefix` in both flows; if "
        f"flow {other} is retired for good, delete its topic {names.state_topic(other)} on this flow's "
        "source",
    )


def came_from_target(
    decision: ScopeDecision, flow: str, origin: ReturnOrigin, naming: NamingPolicy
) -> Refusal:
    """Return the refusal of a topic whose records come from the target, and have another name there.

    Args:
        flow: this one; ``naming`` its names.
        origin: where on the target they come from, and by which flows.
    """
    first, alias = origin.first, origin.alias
    route = ", then ".join(hop.flow for hop in reversed(origin.way))
    message = (
        f"its records come from the target: flow {route} copied topic {first.topic} of that cluster; brought "
        f"back as {decision.target_topic}, they would go round for ever, in one more topic each time"
    )
    fix = f"add {decision.topic} to topics.exclude of flow {flow}"
    if alias is not None and alias != naming.target_alias:
        message += f". Flow {first.flow} calls that cluster {alias}, this flow calls it {naming.target_alias}"
        if (
            alias != naming.source_alias
            and replace(naming, target_alias=alias).hop(decision.topic) is not None
        ):
            fix = (
                f"write {alias} as target.alias of flow {flow} and start it again, which leaves such topics "
                f"out by their names: a cluster needs the same alias in all flow files; or {fix}"
            )
    writer = origin.way[0].flow
    fix += f"; if flow {writer} is retired for good, delete its topic {names.state_topic(writer)} on this "
    return Refusal(decision.topic, TopicCode.CAME_FROM_TARGET, message, f"{fix}flow's source")


def gave_way(decision: ScopeDecision, flow: str, other: str) -> Refusal:
    """Return the refusal of a topic that could be copied again, but not from its old position.

    Args:
        flow: this one; ``other`` to which it was left.
    """
    options = "latest", "--topic", re.escape(decision.topic), "--replace"
    return Refusal(
        decision.topic,
        TopicCode.GAVE_WAY,
        f"it was left to flow {other}, and nothing is in its way any more; but from its old position, what "
        f"has come from target topic {decision.target_topic} to {decision.topic} since would be copied back",
        f"while nobody writes to {decision.topic}, {commands.seed_plan(flow, *options)} shows what is left "
        f"out by going on at its end, and {commands.seed_apply(flow, *options)} does it; where else it can "
        f"go on: docs/topics.md; or add {decision.topic} to topics.exclude of flow {flow}",
    )


def promoted(topic: str, target_topic: str, drill: str, flow: str) -> Refusal:
    """Return the remark that a topic is not copied any more, because its copy was promoted."""
    return Refusal(
        topic,
        TopicCode.PROMOTED,
        f"switchover {drill} has given its copy {target_topic} to clients: it is written to there, "
        "and not copied any more",
        f"nothing to do; {commands.command('drill', 'status', flow)} tells of it, docs/drills.md has the way "
        "back",
        blocks=False,
    )


def _ring(decision: ScopeDecision, flow: str, flows: tuple[str, ...]) -> Refusal:
    writer, route = flows[0], ", then ".join(reversed(flows))
    return Refusal(
        decision.topic,
        TopicCode.RING,
        f"target topic {decision.target_topic} is copied on and back to {decision.topic}, by flow {route}: "
        "records would go round for ever",
        f"add {decision.topic} to topics.exclude of flow {flow}, or use `naming: prefix` in all of them; "
        f"if flow {writer} is retired for good, delete its topic {names.state_topic(writer)} on this flow's "
        "source; if another one is, start the flow that copies on from it once",
    )


def other_unreadable(decision: ScopeDecision, flow: str, problem: str) -> Refusal:
    """Return the refusal of a new topic while nobody knows what ``flow`` copies."""
    return Refusal(
        decision.topic,
        TopicCode.OTHER_FLOW_UNREADABLE,
        f"the state of flow {flow} cannot be read ({problem}): whether it copies the topic is not known",
        f"see to flow {flow}; topics that are copied already go on",
    )


def leaderless(decision: ScopeDecision, topic: str, side: str) -> Refusal:
    """Return the refusal of a topic that has to wait for a broker."""
    return Refusal(
        decision.topic,
        TopicCode.NO_LEADER,
        f"partitions of {topic} have no leader on the {side} at the moment",
        "bring the broker back; it is looked at again at the next discovery",
    )


def not_empty(decision: ScopeDecision, flow: str) -> Refusal:
    """Return the refusal of a target topic with records that are not this flow's."""
    return Refusal(
        decision.topic,
        TopicCode.TARGET_NOT_EMPTY,
        f"target topic {decision.target_topic} holds records already, and what they are is not known",
        f"delete target topic {decision.target_topic} if it may go, or add {decision.topic} to "
        f"topics.exclude of flow {flow}; where its records are known to be copies: docs/seeding.md",
    )


def grown_into(topic: str, target: TopicPartition, flow: str) -> Refusal:
    """Return the refusal of partitions that were added to a topic: ``target`` holds others' records."""
    return Refusal(
        topic,
        TopicCode.TARGET_NOT_EMPTY,
        f"{topic} has grown, and {target} holds records already that the flow has not written; its added"
        " partitions are not copied, the others are",
        f"delete target topic {target.topic} if those may go, and do what `onceover status {flow}` then says"
        f" of its partitions; or add {topic} to topics.exclude of flow {flow}",
    )


def partition_count(decision: ScopeDecision, seen: int, needed: int, flow: str) -> Refusal:
    """Return the refusal of a target topic with another number of partitions."""
    fix = f"delete target topic {decision.target_topic}, which is empty: the flow creates it as it needs it"
    if seen < needed:
        fix = f"{commands.command('topics', 'apply', flow)} adds the missing ones"
    return Refusal(
        decision.topic,
        TopicCode.PARTITION_COUNT,
        f"target topic {decision.target_topic} has {seen} partitions, the flow needs {needed}",
        fix,
    )


def too_many_partitions(decision: ScopeDecision, seen: int, flow: str) -> Refusal:
    """Return the refusal of a topic, or of partitions that were added to one, beyond what a record holds."""
    return Refusal(
        decision.topic,
        TopicCode.TOO_MANY_PARTITIONS,
        f"it has {seen} partitions, and a flow keeps {MOST_PARTITIONS} of a topic on record at most; if it "
        "has grown to that, its added partitions are not copied, the others are",
        f"spread its records over more topics, or add {decision.topic} to topics.exclude of flow {flow}",
    )


def config_unread(decision: ScopeDecision, error: OnceoverError, *, blocks: bool) -> Refusal:
    """Return the refusal of a topic whose configuration cannot be read.

    Args:
        blocks: False for one that is copied all the same; its configuration is not followed meanwhile.
    """
    effect = "it is not taken in without" if blocks else "the copy's is not kept in line meanwhile"
    return Refusal(
        decision.topic,
        TopicCode.CONFIG_UNREADABLE,
        f"its configuration cannot be read ({error.message}): {effect}",
        error.resolve or "it is looked at again at the next discovery",
        blocks=blocks,
    )


def restamped(decision: ScopeDecision, flow: str, *, blocks: bool) -> Refusal:
    """Return the refusal of a target topic that overwrites timestamps.

    Args:
        blocks: False for one that is copied all the same.
    """
    return Refusal(
        decision.topic,
        TopicCode.TARGET_RESTAMPS,
        f"target topic {decision.target_topic} gives records the time at which they are copied "
        "(message.timestamp.type=LogAppendTime, its own or its brokers' default)",
        f"{commands.command('topics', 'apply', flow)} sets CreateTime on it"
        + ("" if blocks else "; what was copied until then keeps the times that it got"),
        blocks=blocks,
    )


def not_enrolled(source: str, target: str, error: OnceoverError) -> Refusal:
    """Return the refusal of a topic to whose counterpart the target takes no progress, or which it hides."""
    return Refusal(
        source,
        TopicCode.TARGET_REFUSES,
        f"the target does not let the flow work with topic {target}: {error.message}",
        error.resolve or "see to the topic; it is looked at again at the next discovery",
    )


def unmanaged(decision: ScopeDecision, keys: list[str], flow: str) -> Refusal:
    """Return the remark that a topic's configuration differs and is not the flow's to change."""
    return Refusal(
        decision.topic,
        TopicCode.NOT_MANAGED,
        f"target topic {decision.target_topic} was not created by this flow and differs in {', '.join(keys)}",
        f"{commands.command('topics', 'plan', flow)} shows it, "
        f"{commands.command('topics', 'apply', flow)} would set it",
        blocks=False,
    )


def left_out(decision: ScopeDecision, code: TopicCode, key: str, why: str) -> Refusal:
    """Return the remark that the copy does not get a configuration key."""
    return Refusal(
        decision.topic,
        code,
        f"the target {why} {key}, which is not copied",
        "nothing to do unless the copy needs it: then set it on the target by hand",
        blocks=False,
    )
