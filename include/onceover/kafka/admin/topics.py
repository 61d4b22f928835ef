"""Creating and deleting topics, and reading and setting their configuration.

One topic's failure is that topic's: calls over many topics return what failed by name and raise only
what concerns them all. Each call has a connection of its own (``kafka.admin.changes``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from onceover.backoff import Deadline
from onceover.errors import OnceoverError, Retriable
from onceover.kafka.admin import topiccalls
from onceover.kafka.admin.changes import AdminAnswer, asked, changed, refused
from onceover.kafka.admin.topiccalls import ConfigValue, NewTopic
from onceover.kafka.codes import KafkaCode
from onceover.kafka.link.channel import Channel
from onceover.kafka.ports import DEFAULT_TIMEOUT_S, Cluster, TopicInfo

# ConfigSource.DYNAMIC_TOPIC_CONFIG: set on the topic itself, not inherited from the broker.
_SET_ON_TOPIC: Final = 1
# Kafka's names: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG,
# POLICY_VIOLATION.
_UNKNOWN_TOPIC, _TOPIC_EXISTS, _INVALID_PARTITIONS, _INVALID_CONFIG, _POLICY_VIOLATION = 3, 36, 37, 40, 44
_UNKNOWN_TOPIC_ID: Final = 100
_CODES: Final = {
    _TOPIC_EXISTS: KafkaCode.TOPIC_EXISTS,
    _UNKNOWN_TOPIC: KafkaCode.TOPIC_MISSING,
    _INVALID_CONFIG: KafkaCode.INVALID_CONFIG,
    _POLICY_VIOLATION: KafkaCode.POLICY_VIOLATION,
    _UNKNOWN_TOPIC_ID: KafkaCode.TOPIC_MISSING,
}

# A thousand topics took one broker 13 s to bring up (measured, two shared cores).
_LED_WITHIN_S_EACH: Final = 0.05
_NAMED: Final = 5

# What makes a topic take a record whatever its time. By default one from more than an hour ahead is refused,
# and so is whatever a machine writes whose clock is. Brokers before 3.6 have no such limits, and refuse the
# keys.
ANY_TIME: Final[Mapping[str, str]] = {
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
}

Failures = dict[str, OnceoverError]


@dataclass(frozen=True)
class TopicSpec:
    """A topic to create. ``replication_factor`` -1 takes the broker's default."""

    name: str
    partitions: int
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicConfigs:
    """What a cluster says about topics' configuration.

    Args:
        overrides: each topic's own configuration, without what it inherits from the broker; topics that
            do not exist are left out.
        keys: every key that the cluster knows; empty when no topic was described.
        failures: topics that could not be described.
        append_time: topics whose records get the broker's clock, by their own configuration or its default.
        standing: of the keys that were asked for what holds for each topic, its own or the broker's default.
        defaults: of the same keys what a topic inherits that does not set them.
    """

    overrides: Mapping[str, Mapping[str, str]]
    keys: frozenset[str]
    failures: Mapping[str, OnceoverError]
    append_time: frozenset[str] = frozenset()
    standing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)


class Admin:
    """Administration of one cluster.

    Every call raises ``Retriable`` where the cluster is away, ``UsageError`` where it does not let us in, and
    ``NeedsOperator`` or ``UsageError`` where it says no. Where another cluster answers than the one that is
    meant, nothing is asked or changed (FOREIGN_CLUSTER).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._alias = cluster.alias
        self._cluster = cluster

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Create the topics that do not exist yet; an existing one is left as it is.

        Of what they are to be, ``ANY_TIME`` is left out where the brokers do not know it.
        """
        wanted = {spec.name: spec for spec in specs}
        failed = self.try_create(wanted.values())
        timed = [wanted[name] for name, error in failed.items() if error.code == KafkaCode.INVALID_CONFIG]
        again = [_without_times(spec) for spec in timed if ANY_TIME.items() <= spec.config.items()]
        for spec in again:
            del failed[spec.name]
        for error in [*failed.values(), *self.try_create(again).values()]:
            if error.code != KafkaCode.TOPIC_EXISTS:
                raise error

    def make_topics(
        self, specs: Sequence[TopicSpec], deadline: Deadline | None = None
    ) -> Mapping[str, TopicInfo]:
        """Create the topics that do not exist yet, and return all of them once they have leaders.

        An existing one is left as it is, with as many partitions as it has.

        Args:
            deadline: as for ``await_leaders``.
        """
        self.create_topics(specs)
        return await_leaders(self._cluster, dict.fromkeys((spec.name for spec in specs), 1), deadline)

    def await_partitions(self, specs: Iterable[TopicSpec]) -> None:
        """Return once topics have all the partitions that they are to have, with leaders.

        Raises:
            As ``await_leaders``.
        """
        await_leaders(self._cluster, {spec.name: spec.partitions for spec in specs})

    def try_create(self, specs: Iterable[TopicSpec], *, validate_only: bool = False) -> Failures:
        """Create topics; return what failed, by name.

        Args:
            specs: one request carries them all.
            validate_only: ask whether it would work, and create nothing.
        """
        wanted = [
            NewTopic(s.name, s.partitions, s.replication_factor, (), tuple(s.config.items())) for s in specs
        ]
        if not wanted:
            return {}

        def ask(connection: Channel) -> dict[str, AdminAnswer]:
            return topiccalls.create_topics(connection, wanted, validate_only=validate_only)

        return self._failures(changed(self._cluster, ask), "create topic {}", "CREATE")

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics; one that does not exist is gone already."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return
        answers = changed(self._cluster, lambda c: topiccalls.delete_topics(c, wanted))
        for error in self._failures(answers, "delete topic {}", "DELETE").values():
            if error.code != KafkaCode.TOPIC_MISSING:
                raise error

    def delete_topic(self, name: str, topic_id: UUID) -> None:
        """Delete the topic of that id; a namesake that was made since stays.

        Raises:
            NeedsOperator: TOPIC_MISSING, there is no such topic any more.
        """
        answers = changed(self._cluster, lambda c: {name: topiccalls.delete_topic(c, topic_id)})
        for error in self._failures(answers, "delete topic {}", "DELETE").values():
            raise error

    def grow_topic(self, name: str, count: int) -> None:
        """Add partitions so that the topic has ``count``; a topic that has them already is left alone."""
        answers = changed(self._cluster, lambda c: {name: topiccalls.create_partitions(c, name, count)})
        if answers[name].error_code not in (0, _INVALID_PARTITIONS):
            raise self._translated(answers[name], f"add partitions to topic {name}", "ALTER")

    def topic_configs(self, names: Iterable[str], *, standing: Collection[str] = ()) -> TopicConfigs:
        """Return the topics' configuration, in one request.

        Args:
            names: of the topics.
            standing: keys whose value is wanted also where a topic inherits it.
        """
        wanted = list(dict.fromkeys(names))
        found: dict[str, dict[str, str]] = {}
        keys: set[str] = set()
        append_time: set[str] = set()
        held: dict[str, dict[str, str]] = {}
        defaults: dict[str, str] = {}
        described = (
            asked(self._cluster, lambda c: topiccalls.describe_topic_configs(c, wanted)) if wanted else {}
        )
        answers = {name: answer for name, (answer, _) in described.items()}
        failures = self._failures(answers, "describe the configuration of topic {}", "DESCRIBE_CONFIGS")
        for name in described.keys() - failures.keys():
            entries: Mapping[str, ConfigValue] = described[name][1]
            keys.update(entries)
            timestamps = entries.get("message.timestamp.type")
            if timestamps is not None and timestamps.value == "LogAppendTime":
                append_time.add(name)
            found[name] = {
                key: entry.value
                for key, entry in entries.items()
                if entry.source == _SET_ON_TOPIC and entry.value is not None
            }
            values = {key: entries[key].value for key in standing if key in entries}
            held[name] = {key: value for key, value in values.items() if value is not None}
            defaults |= {key: value for key, value in held[name].items() if key not in found[name]}
        gone = {name for name, error in failures.items() if error.code == KafkaCode.TOPIC_MISSING}
        kept = {name: error for name, error in failures.items() if name not in gone}
        return TopicConfigs(found, frozenset(keys), kept, frozenset(append_time), held, defaults)

    def alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Failures:
        """Set topics' own configuration, None removes a key; return what failed, by topic.

        A topic's changes are made together or not at all; its other keys stay (KIP-339).
        """
        wanted = {topic: keys for topic, keys in changes.items() if keys}
        if not wanted:
            return {}
        answers = changed(self._cluster, lambda c: topiccalls.alter_topic_configs(c, wanted))
        return self._failures(answers, "set the configuration of topic {}", "ALTER_CONFIGS")

    def _failures(self, answers: Mapping[str, AdminAnswer], what: str, operation: str) -> Failures:
        """Raise what is worth trying again, return the rest."""
        found = {
            name: self._translated(answer, what.format(name), operation)
            for name, answer in answers.items()
            if answer.error_code
        }
        for problem in found.values():
            if isinstance(problem, Retriable):
                raise problem
        return found

    def _translated(self, answer: AdminAnswer, what: str, operation: str) -> OnceoverError:
        code = _CODES.get(answer.error_code, KafkaCode.ADMIN_REFUSED)
        return refused(self._alias, what, answer, right=f"{operation} on the topic", code=code)


def _without_times(spec: TopicSpec) -> TopicSpec:
    return replace(spec, config={key: value for key, value in spec.config.items() if key not in ANY_TIME})


def await_leaders(
    cluster: Cluster, wanted: Mapping[str, int], deadline: Deadline | None = None
) -> Mapping[str, TopicInfo]:
    """Return topics once all of them have leaders: a broker tells of a new topic before it has any.

    Args:
        wanted: how many partitions each has at least, by name.
        deadline: without one ``led_within``.

    Raises:
        Retriable: NO_LEADER, not in time; or the cluster is away.
        UsageError: not authorized to describe one of them.
    """
    if not wanted:
        return {}

    def led() -> Mapping[str, TopicInfo]:
        found = cluster.topics(sorted(wanted))
        missing = [name for name, count in wanted.items() if not _is_whole(found.get(name), count)]
        if missing:
            named = ", ".join(missing[:_NAMED])
            raise Retriable(
                f"{len(missing)} topics have no leaders yet: {named}",
                code=KafkaCode.NO_LEADER,
                where=cluster.alias,
            )
        return found

    return cluster.retry(led, deadline or led_within(len(wanted)))


def led_within(topics: int, few_s: float = DEFAULT_TIMEOUT_S) -> Deadline:
    """Return until when so many topics are waited for that were made a moment ago; ``few_s`` of a few."""
    return Deadline(few_s + _LED_WITHIN_S_EACH * topics)


def _is_whole(topic: TopicInfo | None, partitions: int) -> bool:
    return topic is not None and len(topic.partitions) >= partitions and topic.is_led
