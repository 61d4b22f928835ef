"""Two clusters as a topic plan sees them, and an admin client that changes the target of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from onceover.errors import NeedsOperator, OnceoverError, UsageError
from onceover.kafka.admin.topics import Failures, TopicSpec
from onceover.kafka.codes import KafkaCode
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.enrolment import Enrolment, LeftAt
from onceover.state.records.managed import Managed, read_managed
from onceover.topics.apply import TopicApply
from onceover.topics.namingpolicy import IDENTITY, NamingPolicy
from onceover.topics.plan import Loop, OtherWriter, TopicPlan, View, plan_topics
from onceover.topics.scope import Rules

FLOW = "f"
_LAGS = {"min": "0", "max": str((1 << 63) - 1)}


class Killed(Exception):
    """The process ended here."""


def topic(name: str, partitions: int, topic_id: UUID) -> TopicInfo:
    """Return a topic as metadata shows it."""
    return TopicInfo(name, topic_id, {n: PartitionInfo(1, 0) for n in range(partitions)}, False)


def source_id(name: str) -> UUID:
    """Return the id of a source topic."""
    return UUID(bytes=(b"s" + name.encode()).ljust(16, b"_")[:16])


def target_id(name: str) -> UUID:
    """Return the id of a target topic."""
    return UUID(bytes=(b"t" + name.encode()).ljust(16, b"_")[:16])


@dataclass
class World:
    """Both clusters. Sources and targets map names to partition counts.

    Args:
        ends: offsets that target topics hold already, in every partition.
        unread: source topics whose configuration cannot be read.
        unknown: configuration keys that the target refuses; ``undescribed`` when it does not tell its keys.
        policy: likewise, by a policy of its operator's; ``forbidden`` names of topics, ``demanded`` keys that
            each topic is to have.
        defaults: of the target's brokers.
        kill_after: effects until the process is killed, None for never.
    """

    source: dict[str, int]
    target: dict[str, int] = field(default_factory=dict)
    config: dict[str, dict[str, str]] = field(default_factory=dict)
    target_config: dict[str, dict[str, str]] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    enrolled: dict[str, Enrolment] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[str, OtherWriter] = field(default_factory=dict)
    loops: dict[str, Loop] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    policy: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    demanded: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    defaults: dict[str, str] = field(default_factory=dict)
    restamped: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    naming: str = IDENTITY
    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    adopt: bool = False
    sync_configs: bool = True
    kill_after: int | None = None

    @property
    def managed(self) -> dict[str, Managed]:
        """What the flow looks after."""
        return read_managed(self.state)

    def view(self) -> View:
        """Return what a reader would read."""
        unread = self.unread & self.source.keys() if self.sync_configs else ()
        rules = Rules(self.include, self.exclude, NamingPolicy(self.naming, "east", "west"))
        target = {n: topic(n, count, target_id(n)) for n, count in self.target.items()}
        return View(
            flow=FLOW,
            rules=rules,
            source={n: topic(n, count, source_id(n)) for n, count in self.source.items()},
            target=target,
            enrolled=self.enrolled,
            managed=self.managed,
            elsewhere=self.elsewhere,
            loops=self.loops,
            target_ends={
                TopicPartition(n, p): self.ends.get(n, 0) for n, t in target.items() for p in t.partitions
            },
            overrides={n: self.config.get(n, {}) for n in self.source if n not in self.unread},
            unread={n: UsageError("no right", resolve="grant it") for n in unread},
            target_overrides={n: self.target_config.get(n, {}) for n in self.target},
            keys=self.keys,
            standing={n: {**self.defaults, **self.target_config.get(n, {})} for n in self.target},
            defaults=self.defaults,
            restamped=self.restamped,
            sync_configs=self.sync_configs,
            adopt=self.adopt,
        )

    def plan(self) -> TopicPlan:
        """Plan from what is there now."""
        return plan_topics(self.view())

    def apply(self) -> TopicApply:
        """Plan and apply; topics are enrolled afterwards, as the leader would."""
        plan = self.plan()
        work = TopicApply(self, self, self.managed)
        work.run(plan)
        return work

    def enrol(self, name: str, partitions: int | None = None, target: str | None = None) -> None:
        """Enrol a topic by hand."""
        count, copy = partitions or self.source[name], target or name
        start = dict.fromkeys(range(count), 0)
        self.enrolled[copy] = Enrolment(name, copy, source_id(name), target_id(copy), start, 5)

    # ---- the target, as TopicApply changes it

    def _effect(self) -> None:
        if self.kill_after is not None:
            if self.kill_after == 0:
                raise Killed
            self.kill_after -= 1

    def try_create(self, specs: Iterable[TopicSpec], *, validate_only: bool = False) -> Failures:
        """Create topics."""
        failures: Failures = {}
        for spec in specs:
            if spec.name in self.target:
                failures[spec.name] = NeedsOperator("is there", code=KafkaCode.TOPIC_EXISTS)
            elif spec.name in self.forbidden:
                failures[spec.name] = NeedsOperator("forbidden", code=KafkaCode.POLICY_VIOLATION)
            elif problem := self._problem(spec.config) or self._lacking(spec.config):
                failures[spec.name] = problem
            elif not validate_only:
                self._effect()
                self.target[spec.name] = spec.partitions
                self.target_config[spec.name] = dict(spec.config)
        return failures

    def grow_topic(self, name: str, count: int) -> None:
        """Add partitions."""
        self._effect()
        self.target[name] = max(count, self.target[name])

    def alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Failures:
        """Change configuration, a topic at a time."""
        failures: Failures = {}
        for name, keys in changes.items():
            if name not in self.target:
                failures[name] = NeedsOperator("is not there", code=KafkaCode.TOPIC_MISSING)
                continue
            config = {**self.target_config.get(name, {}), **keys}
            left = {k: v for k, v in config.items() if v is not None}
            if problem := self._problem({k: v for k, v in left.items() if k in keys}, left):
                failures[name] = problem
            else:
                self._effect()
                self.target_config[name] = left
        return failures

    def _problem(
        self, keys: Mapping[str, str], whole: Mapping[str, str] | None = None
    ) -> OnceoverError | None:
        """Return why the target does not take these keys, with which a topic would have ``whole``."""
        lags = [int((whole or keys).get(f"{end}.compaction.lag.ms", at)) for end, at in _LAGS.items()]
        if self.unknown & keys.keys() or lags[0] > lags[1]:
            return NeedsOperator("unknown key", code=KafkaCode.INVALID_CONFIG)
        if self.policy & keys.keys():
            return NeedsOperator("policy", code=KafkaCode.POLICY_VIOLATION)
        return None

    def _lacking(self, config: Mapping[str, str]) -> OnceoverError | None:
        """Return why a policy does not let a topic be made with this configuration."""
        lacks = sorted(self.demanded - config.keys())
        return NeedsOperator(f"set {lacks}", code=KafkaCode.POLICY_VIOLATION) if lacks else None

    def write_all(self, records: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write notes, one after the other."""
        for key, value in records.items():
            self._effect()
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = dict(value)

    def manage(self, name: str, *keys: str) -> None:
        """Let the flow look after a target topic."""
        self.state[names.managed_key(name)] = Managed(frozenset(keys)).to_json()


def leave(enrolment: Enrolment) -> Enrolment:
    """Return the enrolment of a topic that has left the filter."""
    return enrolment.leaving(LeftAt(0, 0))
