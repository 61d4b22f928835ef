"""Doing what a topic plan says: the only code that creates or changes target topics.

Invariant: it may be interrupted anywhere and run again with a new plan, and ends in the same state. What a
topic or key is refused for stops that topic or key only. The record of what the flow looks after is
written before the change it stands for, and tidied up after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice
from typing import Final, Protocol, TypeVar

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.admin.topics import Failures, TopicSpec
from onceover.kafka.codes import KafkaCode
from onceover.kafka.ports import Notes, TopicCatalog
from onceover.planning.plan import Done, Refusal, nobody
from onceover.state import names
from onceover.state.records.managed import Managed
from onceover.state.steps import Step, reached
from onceover.topics.changes import AddPartitions, Adopt, CreateTopic, SetConfig
from onceover.topics.configs import OF_EVERY_COPY, TIMESTAMP_TYPE
from onceover.topics.plan import TopicPlan

T = TypeVar("T")

# One request carries so many topics: far below every broker's request limit, and a failure in between
# leaves little to do again.
_PER_REQUEST: Final = 200
# One key may be the reason, and the others are as good without it.
_OVER_A_KEY: Final = frozenset({KafkaCode.INVALID_CONFIG, KafkaCode.POLICY_VIOLATION})
_NAMED: Final = 3


class TopicAdmin(Protocol):
    """What is needed of ``kafka.admin.topics.Admin``."""

    def try_create(self, specs: Iterable[TopicSpec], *, validate_only: bool = False) -> Failures:
        """Create topics; return what failed, by name."""

    def grow_topic(self, name: str, count: int) -> None:
        """Add partitions so that the topic has ``count``."""

    def alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Failures:
        """Set or remove configuration keys; return what failed, by topic."""


@dataclass
class TopicApply:
    """Applies the steps of one plan.

    Args:
        admin: of the target.
        notes: writes what the flow looks after.
        managed: what is kept there now, by target topic; kept up to date here.
        done: told of each change that is done, for the journal.

    Attributes:
        refused: what could not be done, with the reason; empty when all went well.
        overtaken: topics that somebody else has made since the plan: nobody has looked at them. Whoever goes
            on to write into the plan's topics plans anew (``check_not_overtaken``).
        configured: topics that were there, and whose configuration was changed.
    """

    admin: TopicAdmin
    notes: Notes
    managed: dict[str, Managed]
    done: Done = nobody
    refused: list[Refusal] = field(default_factory=list)
    overtaken: list[str] = field(default_factory=list)
    configured: set[str] = field(default_factory=set)

    def check_not_overtaken(self, target: TopicCatalog) -> None:
        """See to it that each topic that was to be made is as the plan has it.

        One that may not be seen has been there all along, and the next plan would not show it either: whoever
        writes into it is refused.

        Raises:
            Retriable: TOPIC_EXISTS, somebody else was faster: the next plan looks at what is there. Or the
                target is away.
        """
        if not self.overtaken:
            return
        hidden = target.retry(lambda: target.hidden_topics(self.overtaken))
        if new := [topic for topic in self.overtaken if topic not in hidden]:
            raise Retriable(
                f"somebody else has made {', '.join(new[:_NAMED])} since it was planned",
                code=KafkaCode.TOPIC_EXISTS,
                resolve="run again: it is looked at first, and taken as it is where it is as it should be",
            )

    def run(self, plan: TopicPlan) -> None:
        """Do all steps of the plan: topics, then partitions, then configuration.

        Raises:
            Retriable: the target is away; plan anew and go on.
        """
        steps = plan.steps
        creations = [step for step in steps if isinstance(step, CreateTopic)]
        for batch in _batches(creations):
            self._create(batch)
        for step in steps:
            if isinstance(step, AddPartitions):
                self._grow(step)
        adoptions = [step for step in steps if isinstance(step, Adopt)]
        self._mark({a.topic: self._kept(a.topic).with_keys(a.keys) for a in adoptions})
        for adoption in adoptions:
            self.done(adoption.change)
        topics: dict[str, list[SetConfig]] = {}
        for step in steps:
            if isinstance(step, SetConfig):
                topics.setdefault(step.topic, []).append(step)
        for group in _batches(list(topics.values())):
            self._configure({steps[0].topic: steps for steps in group})
        self._mark({topic: self._kept(topic).without_keys(keys) for topic, keys in plan.forget.items()})

    # ---- creating

    def _create(self, steps: Sequence[CreateTopic]) -> None:
        before = {s.topic: self.managed.get(s.topic) for s in steps}
        self._mark({s.topic: self._kept(s.topic).with_keys(s.spec.config) for s in steps})
        reached(Step.TOPIC_CREATE)
        failures = self.admin.try_create([s.spec for s in steps])
        doubtful = [s.spec for s in steps if s.topic in failures and failures[s.topic].code in _OVER_A_KEY]
        # Together: of thousands whose names a policy forbids it is asked at each discovery.
        bare = self.admin.try_create(map(_least, doubtful), validate_only=True) if doubtful else {}
        for step in steps:
            problem = failures.get(step.topic)
            if problem is not None and problem.code in _OVER_A_KEY:
                problem = self._create_without_refused(step.spec, problem, bare.get(step.topic))
            if problem is None:
                self.done(step.change)
                continue
            is_there = problem.code == KafkaCode.TOPIC_EXISTS
            if before[step.topic] is None:
                # Somebody else was faster, or it is not there at all: it is not ours.
                self._write({step.topic: None})
                if is_there:
                    self.overtaken.append(step.topic)
            if not is_there:
                self._refuse(step.source, problem)

    def _create_without_refused(
        self, spec: TopicSpec, why: OnceoverError, bare: OnceoverError | None
    ) -> OnceoverError | None:
        """Find the keys that the target does not take, by asking for each alone; create without them.

        Not where it is not about those: a policy may forbid the name. Nor without what every copy has.

        Args:
            why: it was refused; ``bare`` the same with no more than every copy has.
        """
        demands = bare is not None and bare.code == KafkaCode.POLICY_VIOLATION
        if bare is not None and demands and bare.message == why.message:
            return bare
        least = _least(spec).config
        alone = {
            key: self._tried(spec, {**least, key: value})
            for key, value in spec.config.items()
            if key not in least
        }
        # A policy that wants to see some of them refuses each alone.
        codes = {KafkaCode.INVALID_CONFIG} if demands else _OVER_A_KEY
        refused = {key for key, error in alone.items() if error is not None and error.code in codes}
        if demands:
            refused.update(self._refused_beside(spec, least, alone.keys() - refused))
        left = {key: value for key, value in spec.config.items() if key not in refused}
        self._mark({spec.name: self._kept(spec.name).refusing({key: spec.config[key] for key in refused})})
        return self.admin.try_create([replace(spec, config=left)]).get(spec.name)

    def _refused_beside(
        self, spec: TopicSpec, least: Mapping[str, str], keys: Collection[str]
    ) -> Collection[str]:
        """Return which of some keys, one or two, a policy does not take beside those that it wants to see."""
        for without in chain(*(combinations(sorted(keys), count) for count in range(3))):
            left = {key: spec.config[key] for key in keys if key not in without}
            if self._tried(spec, {**least, **left}) is None:
                return without
        return ()

    def _tried(self, spec: TopicSpec, config: Mapping[str, str]) -> OnceoverError | None:
        return self.admin.try_create([replace(spec, config=config)], validate_only=True).get(spec.name)

    def _grow(self, step: AddPartitions) -> None:
        reached(Step.TOPIC_GROW)
        try:
            self.admin.grow_topic(step.topic, step.to)
        except (NeedsOperator, UsageError) as error:
            self._refuse(step.source, error)
        else:
            self.done(step.change)

    # ---- configuration

    def _configure(self, topics: Mapping[str, Sequence[SetConfig]]) -> None:
        wanted = {name: {s.diff.key: s.diff.to for s in steps} for name, steps in topics.items()}
        setting = {name: [k for k, v in keys.items() if v is not None] for name, keys in wanted.items()}
        self._mark({name: self._kept(name).with_keys(keys) for name, keys in setting.items()})
        reached(Step.TOPIC_CONFIG)
        failures = self.admin.alter_configs(wanted)
        for name, steps in topics.items():
            problem = failures.get(name)
            if problem is None:
                self._configured(name, steps)
            elif problem.code in _OVER_A_KEY:
                self._configure_singly(name, steps)
            elif problem.code != KafkaCode.TOPIC_MISSING:
                self._refuse(steps[0].source, problem, blocks=any(step.needed for step in steps))

    def _configure_singly(self, name: str, steps: Sequence[SetConfig]) -> None:
        for step, problem in self._refused_singly(name, steps).items():
            if problem.code == KafkaCode.TOPIC_MISSING:
                continue
            if step.diff.key == TIMESTAMP_TYPE or problem.code not in _OVER_A_KEY:
                self._refuse(step.source, problem, blocks=step.needed)
            elif step.diff.to is not None:
                self._mark({name: self._kept(name).refusing({step.diff.key: step.diff.to})})
            else:
                # It stays as it is, and is the operator's from now on.
                self._mark({name: self._kept(name).without_keys([step.diff.key])})
                self._refuse(step.source, problem, blocks=False)

    def _refused_singly(self, name: str, steps: Sequence[SetConfig]) -> dict[SetConfig, OnceoverError]:
        """Make each change alone, again while others are taken: one may be valid only behind another."""
        left: Collection[SetConfig] = steps
        while True:
            problems: dict[SetConfig, OnceoverError] = {}
            for step in left:
                problem = self.admin.alter_configs({name: {step.diff.key: step.diff.to}}).get(name)
                if problem is None:
                    self._configured(name, [step])
                else:
                    problems[step] = problem
            if len(problems) in (0, len(left)):
                return problems
            left = list(problems)

    def _configured(self, name: str, steps: Sequence[SetConfig]) -> None:
        self.configured.add(name)
        removed = [step.diff.key for step in steps if step.diff.to is None]
        if removed:
            self._mark({name: self._kept(name).without_keys(removed)})
        for step in steps:
            self.done(step.change)

    # ---- records

    def _kept(self, topic: str) -> Managed:
        return self.managed.get(topic, Managed())

    def _mark(self, records: Mapping[str, Managed]) -> None:
        changed = {t: m for t, m in records.items() if self.managed.get(t) != m}
        if changed:
            reached(Step.TOPIC_MARK)
            self._write(changed)

    def _write(self, records: Mapping[str, Managed | None]) -> None:
        self.notes.write_all(
            {names.managed_key(t): None if m is None else m.to_json() for t, m in records.items()}
        )
        for topic, managed in records.items():
            if managed is None:
                self.managed.pop(topic, None)
            else:
                self.managed[topic] = managed

    def _refuse(self, source: str, error: OnceoverError, *, blocks: bool = True) -> None:
        resolve = error.resolve or "correct it on the target; it is tried again at the next discovery"
        self.refused.append(Refusal(source, error.code, error.message, resolve, blocks))


def _least(spec: TopicSpec) -> TopicSpec:
    """Return the topic with what every copy has, and nothing else."""
    return replace(spec, config={key: value for key, value in spec.config.items() if key in OF_EVERY_COPY})


def _batches(items: Sequence[T]) -> Iterator[list[T]]:
    left = iter(items)
    while batch := list(islice(left, _PER_REQUEST)):
        yield batch
