"""What has to be done so that every topic in scope is copied, from what both clusters look like now. Pure.

Invariants: a partition that has progress never gets a new start offset here; a target topic that holds
records, belongs to another flow or is copied back by one is refused and not touched; a target topic that
the flow neither created nor adopted is changed by nothing but ``onceover topics apply``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from onceover.errors import OnceoverError, UsageError
from onceover.kafka.admin.topics import TopicSpec
from onceover.kafka.ports import TopicInfo
from onceover.model import TopicPartition
from onceover.planning.plan import Plan, Refusal
from onceover.state.records.enrolment import MOST_PARTITIONS, Enrolment, LeftAt
from onceover.state.records.managed import Managed
from onceover.stops.aside import TroubleSide
from onceover.topics import refusals
from onceover.topics.changes import (
    AddPartitions,
    Adopt,
    ConfigDiff,
    CreateTopic,
    SetConfig,
    TopicStep,
    diff,
)
from onceover.topics.codes import TopicCode
from onceover.topics.configs import APPEND_TIME, OF_EVERY_COPY, TIMESTAMP_TYPE, config_to_copy
from onceover.topics.hops import ReturnOrigin, Way
from onceover.topics.namingpolicy import MAX_TOPIC_NAME, colliding, goes_round
from onceover.topics.scope import Rules, ScopeDecision, explain
from onceover.topics.scopecheck import scope_remarks

# For plans of whoever enrols nothing.
NOBODY_ENROLS: Final = LeftAt(0, 0)


@dataclass(frozen=True)
class Loop:
    """Another flow that brings our source topic from our target, or several that do so together.

    Args:
        flow: its name, of several the latest one's; ``at_ms`` when it enrolled the topic.
        ring: names of all of several that copy our target topic back to where it came from, beginning with
            the one that writes our source topic.
        origin: what they bring instead is another topic of our target; None where it is that one.
    """

    flow: str
    at_ms: int
    ring: tuple[str, ...] = ()
    origin: ReturnOrigin | None = None


@dataclass(frozen=True)
class OtherWriter:
    """Another flow that writes a target topic, or has written it.

    Args:
        flow: its name; ``at_ms`` when it enrolled the topic.
        active: False when the topic has left its filter.
    """

    flow: str
    at_ms: int
    active: bool = True


@dataclass(frozen=True)
class View:
    """Live state that the plan is computed from.

    Args:
        flow: the flow's name.
        rules: which topics are in, and how they are called.
        source: all source topics, by name; ``target`` likewise.
        enrolled: what is enrolled already, by target topic.
        managed: the target topics that the flow looks after.
        elsewhere: target topics that other flows have enrolled.
        loops: source topics that other flows write from our copies.
        former_loops: of those that are not written so any more: by whom they were, and ``at_ms`` until when.
        upstream: through which flows the records of source topics have come that other flows write.
        unreadable: other flows whose state cannot be read now, with the reason.
        hidden: enrolled source topics that a cluster does not show to the principal, they or their copies:
            on which side, and its answer when asked by name.
        unseen: target topics that are yet to be made, or are there and not shown: the target's answer when
            asked for them by name.
        target_ends: high watermark of target partitions that are not enrolled yet, or of topics that were
            left to another flow.
        overrides: source topics' own configuration, as far as it was read; ``target_overrides`` likewise.
        keys: configuration keys that the target knows; empty when that is not known.
        unread: source topics in scope whose configuration could not be read, and why; ``target_unread`` those
            of the target by its topics' names.
        standing: of keys that are only ever widened, or say when cleaners may come, what holds for target
            topics; ``defaults`` for new ones.
        restamped: target topics that give records the time at which they are copied.
        sync_configs: whether configuration is copied.
        adopt: whether target topics that are not managed are taken over (``topics apply``).
        now: generation and clock of the run that plans; 0 for whoever enrols nothing.
    """

    flow: str
    rules: Rules
    source: Mapping[str, TopicInfo]
    target: Mapping[str, TopicInfo]
    enrolled: Mapping[str, Enrolment] = field(default_factory=dict)
    managed: Mapping[str, Managed] = field(default_factory=dict)
    elsewhere: Mapping[str, OtherWriter] = field(default_factory=dict)
    loops: Mapping[str, Loop] = field(default_factory=dict)
    former_loops: Mapping[str, Loop] = field(default_factory=dict)
    upstream: Mapping[str, Way] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, tuple[TroubleSide, OnceoverError]] = field(default_factory=dict)
    unseen: Mapping[str, OnceoverError] = field(default_factory=dict)
    target_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    target_overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    unread: Mapping[str, OnceoverError] = field(default_factory=dict)
    target_unread: Mapping[str, OnceoverError] = field(default_factory=dict)
    standing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    restamped: frozenset[str] = frozenset()
    sync_configs: bool = True
    adopt: bool = False
    now: LeftAt = NOBODY_ENROLS

    def decisions(self) -> list[ScopeDecision]:
        """Return the decision on every topic that is on the source or enrolled, by name."""
        by_name = self.enrolled_by_source
        return [
            explain(name, self.rules, is_internal=name in self.source and self.source[name].is_internal)
            for name in sorted(self.source.keys() | by_name.keys())
        ]

    def known(self, record: Enrolment) -> Enrolment:
        """Return the record of an enrolled topic with what another flow's state adds to it."""
        former = self.former_loops.get(record.source)
        return record if former is None else record.after(former.flow, former.at_ms)

    @property
    def enrolled_by_source(self) -> dict[str, Enrolment]:
        """What is enrolled, by source topic."""
        return {e.source: e for e in self.enrolled.values()}


@dataclass(frozen=True, kw_only=True)
class TopicPlan(Plan):
    """What to do with topics; ``changes`` are those of ``steps``.

    Args:
        steps: changes of the target cluster, in their order.
        enrol: source topics to enrol, or to enrol again with more partitions: by the flow's leader only.
        turn: enrolments as they will be, of topics that leave the filter or return to it.
        forget: keys by target topic that the flow has removed already, but an interruption kept on record.
    """

    steps: tuple[TopicStep, ...] = ()
    enrol: tuple[str, ...] = ()
    turn: tuple[Enrolment, ...] = ()
    forget: Mapping[str, frozenset[str]] = field(default_factory=dict)


def plan_topics(view: View) -> TopicPlan:
    """Return what has to be done; applying it and planning again gives an empty plan."""
    return _Planning(view).run()


class _Planning:
    def __init__(self, view: View) -> None:
        self._view = view
        self._steps: list[TopicStep] = []
        self._enrol: list[str] = []
        self._turn: list[Enrolment] = []
        self._refused: list[Refusal] = []
        self._forget: dict[str, frozenset[str]] = {}
        self._forms: dict[str, str] = {}

    def run(self) -> TopicPlan:
        decisions = self._view.decisions()
        self._refused += scope_remarks(self._view.flow, self._view.rules, decisions)
        enrolled = self._view.enrolled_by_source
        self._forms = {colliding(name): name for name in self._view.target}
        for decision in decisions:
            old, info = enrolled.get(decision.topic), self._view.source.get(decision.topic)
            if old is not None:
                self._known(decision, old, info)
            elif decision.inside and info is not None:
                self._new(decision, info)
        return TopicPlan(
            operation="topics",
            flow=self._view.flow,
            steps=tuple(self._steps),
            changes=tuple(step.change for step in self._steps),
            refused=tuple(self._refused),
            enrol=tuple(self._enrol),
            turn=tuple(self._turn),
            forget=self._forget,
        )

    # ---- topics that are enrolled

    def _known(self, decision: ScopeDecision, record: Enrolment, info: TopicInfo | None) -> None:
        wanted, old = decision.inside, self._view.known(record)
        if wanted and decision.target_topic != old.target:
            self._refused.append(refusals.renamed(decision, old.target))
            return
        why = self._why_not(decision, old)
        if wanted and why is not None:
            self._refused.append(why)
            wanted = False
        other = self._other(decision, old)
        if other is not None and not old.is_promoted:
            # Also a topic that is not wanted: what it has copied comes back to its source from now on.
            turned = old.left_to(other.flow, self._view.now)
        elif wanted and not old.active:
            turned = old.back()
        else:
            turned = old if wanted else old.leaving(self._view.now)
        if turned != record:
            self._turn.append(turned)
        if not wanted or self._is_hidden(old):
            return
        broken_off = self._broken_off(old, info)
        if broken_off is None and info is not None:
            self._note_unread(decision)
            self._keeps_timestamps(decision, blocks=False)
            self._grow(decision, info, old)
            self._sync(decision)
            if self._view.adopt and record.active:
                self._tell_of_waiting(old)
        elif broken_off is not None and self._view.adopt and record.active:
            # For who asks what to do; in a running flow its stopped partitions say it.
            self._refused.append(broken_off)

    def _other(self, decision: ScopeDecision, old: Enrolment) -> Loop | OtherWriter | None:
        """Return to whom this flow leaves an enrolled topic, None for nobody."""
        owner, loop = self._view.elsewhere.get(old.target), self._view.loops.get(decision.topic)
        if owner is not None and owner.active and self._gives_way(old, owner):
            return owner
        return loop if loop is not None and self._gives_way(old, loop) else None

    def _why_not(self, decision: ScopeDecision, old: Enrolment) -> Refusal | None:
        """Return why an enrolled topic may not be copied now, None where it may."""
        other = self._other(decision, old)
        if isinstance(other, OtherWriter):
            return refusals.owned_elsewhere(decision, other.flow, self._view.flow)
        if other is not None:
            # What was promoted is meant to be copied back.
            return replace(copied_back(self._view, decision, other), blocks=not old.is_promoted)
        if old.promoted is not None and old.is_promoted:
            return refusals.promoted(decision.topic, old.target, old.promoted.drill, self._view.flow)
        if not old.active and self._view.unreadable:
            # Perhaps it has left for the very flow that cannot be read.
            return refusals.other_unreadable(decision, *self._unreadable)
        if old.gave_way is not None and old.waits_to_be_placed and self._holds_records(old.target):
            return refusals.gave_way(decision, self._view.flow, old.gave_way.flow)
        return None

    def _holds_records(self, name: str) -> bool:
        """Tell whether anything was ever written to a target topic; one that is gone holds nothing."""
        existing = self._view.target.get(name)
        numbers = existing.partitions if existing else ()
        return any(self._view.target_ends.get(TopicPartition(name, p), 1) for p in numbers)

    @property
    def _unreadable(self) -> tuple[str, str]:
        """A flow whose state cannot be read, and why."""
        return next(iter(self._view.unreadable.items()))

    def _is_hidden(self, old: Enrolment) -> bool:
        """Tell whether an enrolled topic or its copy is there but not shown to us; say so to who asks."""
        found = self._view.hidden.get(old.source)
        if found is not None and self._view.adopt:
            self._refused.append(refusals.hidden(old, *found))
        return found is not None

    def _broken_off(self, old: Enrolment, info: TopicInfo | None) -> Refusal | None:
        """Return why an enrolled topic or its copy are not those that were enrolled, None where they are.

        A namesake is neither: without the retention that the source's lacks, the copy would lose what may be
        the last records of the topic that was deleted; and a copy's may be somebody else's.
        """
        flow, copy = self._view.flow, self._view.target.get(old.target)
        if info is None:
            return refusals.source_gone(old, flow)
        if info.topic_id != old.source_id:
            return refusals.made_anew(old, TroubleSide.SOURCE, flow)
        if copy is None:
            return refusals.copy_gone(old, flow)
        return None if copy.topic_id == old.target_id else refusals.made_anew(old, TroubleSide.TARGET, flow)

    def _tell_of_waiting(self, old: Enrolment) -> None:
        """Name the partitions that wait for a reseed of their own, where one has accepted the topics."""
        ids = {tp: old.ids_of(tp.partition) for tp in old.sources()}
        waiting = [tp for tp in ids if ids[tp] != old.ids]
        if waiting:
            is_source = any(ids[tp][0] != str(old.source_id) for tp in waiting)
            side = TroubleSide.SOURCE if is_source else TroubleSide.TARGET
            self._refused.append(refusals.waiting(old, side, waiting, self._view.flow))

    def _gives_way(self, old: Enrolment, other: Loop | OtherWriter) -> bool:
        """Tell whether this flow leaves the topic to the other one.

        Where both have enrolled it, as versions without claims could, the later one gives way. What comes
        back under another name is no ring, which one of all has to open: no other flow can end it.
        """
        if isinstance(other, Loop) and other.origin is not None:
            return True
        return not old.active or (other.at_ms, other.flow) < (old.at_ms, self._view.flow)

    def _grow(self, decision: ScopeDecision, info: TopicInfo, old: Enrolment) -> None:
        existing = self._view.target[old.target]
        # A shrunk topic is the lanes' business, as one that is deleted or made anew: they stop it (G5).
        if len(info.partitions) < len(old.start):
            return
        wanted = self._wanted_partitions(decision, info)
        if wanted is None:
            return
        grown = len(info.partitions) > len(old.start)
        if grown and not self._check_size(decision, info):
            return
        ours = self._view.adopt or existing.name in self._view.managed
        # Without growth on the source, a new handler may want more.
        more = len(existing.partitions) < wanted and (grown or ours)
        # All of a topic that grows is asked for its leaders: one that is away would end the whole flow.
        if (more or grown) and not self._check_leaders(decision, info):
            return
        if more:
            counts = len(existing.partitions), wanted
            self._steps.append(AddPartitions(info.name, old.target, *counts))
        if grown:
            self._enrol.append(info.name)

    def _wanted_partitions(self, decision: ScopeDecision, info: TopicInfo) -> int | None:
        """Return how many partitions the copy has; None where the flow's handler wants too few."""
        try:
            return self._view.rules.target_partitions(len(info.partitions))
        except UsageError as error:
            fix = error.resolve or "correct the handler"
            message = f"{error.message} (seen: {error.seen})"
            self._refused.append(Refusal(decision.topic, TopicCode.TARGET_PARTITIONS, message, fix))
            return None

    # ---- topics that are not

    def _new(self, decision: ScopeDecision, info: TopicInfo) -> None:
        for check in (
            self._check_size,
            self._check_name,
            self._check_others,
            self._check_seen,
            self._check_leaders,
            self._check_config,
        ):
            if not check(decision, info):
                return
        wanted = self._wanted_partitions(decision, info)
        if wanted is None:
            return
        if decision.target_topic in self._view.target:
            self._note_unread(decision)
            self._take(decision, wanted)
        elif not self._view.sync_configs or info.name in self._view.overrides:
            self._create(decision, wanted)

    def _check_size(self, decision: ScopeDecision, info: TopicInfo) -> bool:
        """Take in no more partitions than a topic's record has room for, repairs of each included."""
        if len(info.partitions) <= MOST_PARTITIONS:
            return True
        self._refused.append(refusals.too_many_partitions(decision, len(info.partitions), self._view.flow))
        return False

    def _check_name(self, decision: ScopeDecision, _: TopicInfo) -> bool:
        name = decision.target_topic
        again = goes_round(self._view.rules.naming, decision.topic)
        if again is not None:
            self._refused.append(refusals.name_repeats(decision, again, self._view.flow))
            return False
        other = self._forms.setdefault(colliding(name), name)
        if len(name) > MAX_TOPIC_NAME:
            problem = f"the name {name} would have {len(name)} characters, Kafka allows {MAX_TOPIC_NAME}"
            code = TopicCode.NAME_TOO_LONG
        elif name in self._view.enrolled:
            problem = f"source topic {self._view.enrolled[name].source} is copied to {name} already"
            code = TopicCode.NAME_TAKEN
        elif other != name and name not in self._view.target:
            problem = (
                f"the target refuses {name} beside {other}: the names differ in dots and underscores only"
            )
            code = TopicCode.NAME_COLLISION
        else:
            return True
        self._refused.append(refusals.bad_name(decision, code, problem))
        return False

    def _check_others(self, decision: ScopeDecision, _: TopicInfo) -> bool:
        owner = self._view.elsewhere.get(decision.target_topic)
        loop = self._view.loops.get(decision.topic)
        if owner is not None:
            self._refused.append(refusals.owned_elsewhere(decision, owner.flow, self._view.flow))
        elif loop is not None:
            self._refused.append(copied_back(self._view, decision, loop))
        elif self._view.unreadable:
            self._refused.append(refusals.other_unreadable(decision, *self._unreadable))
        else:
            return True
        return False

    def _check_seen(self, decision: ScopeDecision, _: TopicInfo) -> bool:
        """Make no copy that would not be seen when it is there: each plan would make it once more."""
        error = self._view.unseen.get(decision.target_topic)
        if error is not None:
            self._refused.append(refusals.not_enrolled(decision.topic, decision.target_topic, error))
        return error is None

    def _check_leaders(self, decision: ScopeDecision, info: TopicInfo) -> bool:
        """Leave a topic for later while a broker with its partitions is away: others need not wait for it."""
        for side, topic in (("source", info), ("target", self._view.target.get(decision.target_topic))):
            if topic is not None and not topic.is_led:
                self._refused.append(refusals.leaderless(decision, topic.name, side))
                return False
        return True

    def _check_config(self, decision: ScopeDecision, _: TopicInfo) -> bool:
        """Take no topic in without its configuration: the broker's retention may delete what is copied."""
        error = self._view.unread.get(decision.topic)
        if error is not None:
            self._refused.append(refusals.config_unread(decision, error, blocks=True))
        return error is None

    def _note_unread(self, decision: ScopeDecision) -> None:
        """Say that configuration of a topic that is copied all the same is not followed."""
        if not self._view.sync_configs:
            return
        unread = self._view.unread.get(decision.topic) or self._view.target_unread.get(decision.target_topic)
        if unread is not None:
            self._refused.append(refusals.config_unread(decision, unread, blocks=False))

    def _create(self, decision: ScopeDecision, partitions: int) -> None:
        wanted = self._wanted(decision)
        config = {key: value for key, value in wanted.items() if self._understood(decision, key, value)}
        spec = TopicSpec(decision.target_topic, partitions, -1, {**config, **OF_EVERY_COPY})
        self._steps.append(CreateTopic(decision.topic, spec))
        self._enrol.append(decision.topic)

    def _take(self, decision: ScopeDecision, here: int) -> None:
        """Take a target topic that is there already, if it is empty and has ``here`` partitions."""
        existing = self._view.target[decision.target_topic]
        there = len(existing.partitions)
        ours = self._view.adopt or existing.name in self._view.managed
        if self._holds_records(existing.name):
            self._refused.append(refusals.not_empty(decision, self._view.flow))
            return
        if there > here or (there < here and not ours):
            self._refused.append(refusals.partition_count(decision, there, here, self._view.flow))
            return
        if not self._keeps_timestamps(decision, blocks=True):
            return
        if there < here:
            self._steps.append(AddPartitions(decision.topic, existing.name, there, here))
        self._sync(decision)
        self._enrol.append(decision.topic)

    # ---- configuration

    def _keeps_timestamps(self, decision: ScopeDecision, *, blocks: bool) -> bool:
        """See to it that an existing copy leaves records their timestamps (G1); tell whether it will."""
        name = decision.target_topic
        if name not in self._view.restamped:
            return True
        if not (self._view.adopt or name in self._view.managed):
            self._refused.append(refusals.restamped(decision, self._view.flow, blocks=blocks))
            return False
        wanted = ConfigDiff(TIMESTAMP_TYPE, APPEND_TIME, OF_EVERY_COPY[TIMESTAMP_TYPE])
        self._steps.append(SetConfig(decision.topic, name, wanted, needed=blocks))
        return True

    def _wanted(self, decision: ScopeDecision) -> dict[str, str]:
        """Return the configuration that the copy gets."""
        own = self._view.overrides.get(decision.topic, {}) if self._view.sync_configs else {}
        return config_to_copy(own, self._view.standing.get(decision.target_topic, self._view.defaults))

    def _understood(self, decision: ScopeDecision, key: str, value: str) -> bool:
        """Tell whether the target can take a key; say so where it cannot."""
        if self._view.keys and key not in self._view.keys:
            self._refused.append(refusals.left_out(decision, TopicCode.KEY_UNKNOWN, key, "does not know"))
            return False
        managed = self._view.managed.get(decision.target_topic)
        if managed is not None and managed.refused.get(key) == value:
            self._refused.append(
                refusals.left_out(decision, TopicCode.KEY_REFUSED, f"{key}={value}", "does not take")
            )
            return False
        return True

    def _sync(self, decision: ScopeDecision) -> None:
        """Make an existing copy's configuration follow, if it is the flow's to change."""
        view, name = self._view, decision.target_topic
        if not view.sync_configs or decision.topic not in view.overrides or name not in view.target_overrides:
            return
        wanted = {k: v for k, v in self._wanted(decision).items() if self._understood(decision, k, v)}
        managed = view.managed.get(name)
        found = diff(wanted, view.target_overrides[name], managed or Managed(), view.defaults)
        if managed is not None:
            self._steps += [SetConfig(decision.topic, name, one) for one in found]
            if gone := managed.keys - wanted.keys() - view.target_overrides[name].keys():
                self._forget[name] = gone
        elif view.adopt:
            self._steps.append(Adopt(decision.topic, name, frozenset(wanted)))
            self._steps += [SetConfig(decision.topic, name, one) for one in found]
        elif found:
            self._refused.append(refusals.unmanaged(decision, [one.key for one in found], view.flow))


def without(plan: TopicPlan, refused: Sequence[Refusal]) -> TopicPlan:
    """Return the plan without the source topics that ``refused`` names, and with the reasons."""
    left_out = {refusal.object for refusal in refused}
    steps = tuple(step for step in plan.steps if step.source not in left_out)
    return replace(
        plan,
        steps=steps,
        changes=tuple(step.change for step in steps),
        refused=(*plan.refused, *refused),
        enrol=tuple(topic for topic in plan.enrol if topic not in left_out),
        turn=tuple(enrolment for enrolment in plan.turn if enrolment.source not in left_out),
    )


def copied_back(view: View, decision: ScopeDecision, loop: Loop) -> Refusal:
    """Return the refusal of a topic that other flows bring from the target."""
    if loop.origin is not None:
        return refusals.came_from_target(decision, view.flow, loop.origin, view.rules.naming)
    return refusals.looping(decision, view.flow, loop.flow, loop.ring)


def overlap(view: View) -> list[tuple[ScopeDecision, Loop]]:
    """Return the topics in scope that other flows copy back."""
    return [(v, view.loops[v.topic]) for v in view.decisions() if v.inside and v.topic in view.loops]
